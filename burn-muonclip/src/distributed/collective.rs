use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use burn::tensor::{Device, Tensor};

/// How tensors come from one member of a group to another.
///
/// A call has the tensors of all members, by rank, and is made by one thread for all of them, like Burn 0.23's `Tensor::all_reduce`, `broadcast` and so on.
pub trait Collective: Send + Sync {
    /// The device of every member, by rank.
    fn devices(&self) -> &[Device];

    /// The sum of what the members have, on the root's device. A member without a tensor adds nothing; at least one has one.
    ///
    /// # Panics
    /// If there is not one entry a member, or no tensor.
    fn reduce<const D: usize>(&self, tensors: Vec<Option<Tensor<D>>>, root: usize) -> Tensor<D>;

    /// The root's tensor, for every member on its own device.
    fn broadcast<const D: usize>(&self, tensor: Tensor<D>, root: usize) -> Vec<Tensor<D>>;

    /// Bytes that went from one member to another so far.
    fn bytes_moved(&self) -> u64;
}

/// Moves tensors from device to device, as every backend can, and adds up in the order of the ranks.
///
/// The same device may appear several times; what its members exchange is counted as if they had a device each. Clones count together.
#[derive(Clone, Debug)]
pub struct Transfers {
    devices: Vec<Device>,
    moved: Arc<AtomicU64>,
}

impl Transfers {
    /// For members on these devices, by rank.
    ///
    /// # Panics
    /// If there are none.
    pub fn new(devices: Vec<Device>) -> Self {
        assert!(!devices.is_empty(), "Transfers: a group needs a member");
        Self {
            devices,
            moved: Arc::default(),
        }
    }

    fn send<const D: usize>(&self, tensor: Tensor<D>, from: usize, to: usize) -> Tensor<D> {
        if from == to {
            return tensor;
        }
        let bytes = tensor.shape().num_elements() * tensor.dtype().size();
        self.moved.fetch_add(bytes as u64, Ordering::Relaxed);
        tensor.to_device(&self.devices[to])
    }
}

impl Collective for Transfers {
    fn devices(&self) -> &[Device] {
        &self.devices
    }

    fn reduce<const D: usize>(&self, tensors: Vec<Option<Tensor<D>>>, root: usize) -> Tensor<D> {
        let members = self.devices.len();
        assert!(
            tensors.len() == members,
            "Transfers: {} tensors for {members} members",
            tensors.len()
        );
        let present = tensors.into_iter().enumerate();
        let here = present.filter_map(|(rank, tensor)| Some(self.send(tensor?, rank, root)));
        here.reduce(|sum, tensor| sum + tensor)
            .expect("a member has a tensor")
    }

    fn broadcast<const D: usize>(&self, tensor: Tensor<D>, root: usize) -> Vec<Tensor<D>> {
        (0..self.devices.len())
            .map(|rank| self.send(tensor.clone(), root, rank))
            .collect()
    }

    fn bytes_moved(&self) -> u64 {
        self.moved.load(Ordering::Relaxed)
    }
}
