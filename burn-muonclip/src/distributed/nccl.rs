use std::sync::atomic::{AtomicU64, Ordering};

use burn::tensor::distributed::{ReduceOperation, all_reduce};
use burn::tensor::{Device, Tensor};

use super::threads::beside_each_other;
use super::{Collective, Transfers};

/// Adds up by Burn's all-reduce, which is NCCL between CUDA devices, and sends by [`Transfers`].
///
/// NCCL has an order of its own, so a step agrees with that of [`Transfers`] to rounding and not in every bit; and every member gets the sum, of
/// which the owner needs one. It has not been run: no machine with several CUDA devices was at hand.
#[derive(Debug)]
pub struct Nccl {
    transfers: Transfers,
    reduced: AtomicU64,
}

impl Nccl {
    /// For members on these devices, by rank, each another CUDA device.
    ///
    /// # Panics
    /// If there are none.
    pub fn new(devices: Vec<Device>) -> Self {
        Self {
            transfers: Transfers::new(devices),
            reduced: AtomicU64::new(0),
        }
    }
}

impl Collective for Nccl {
    fn devices(&self) -> &[Device] {
        self.transfers.devices()
    }

    fn reduce<const D: usize>(&self, tensors: Vec<Option<Tensor<D>>>, root: usize) -> Tensor<D> {
        // An all-reduce needs something of everybody.
        let Some(tensors) = tensors.iter().cloned().collect::<Option<Vec<_>>>() else {
            return self.transfers.reduce(tensors, root);
        };
        let devices = self.devices();
        let bytes = tensors[root].shape().num_elements() * tensors[root].dtype().size();
        // A ring sends everything twice, but for a member's own part.
        let moved = 2 * (devices.len() - 1) * bytes;
        self.reduced.fetch_add(moved as u64, Ordering::Relaxed);
        let mut sums = beside_each_other(tensors.into_iter(), |tensor| {
            all_reduce(tensor, ReduceOperation::Sum, devices.to_vec()).resolve()
        });
        sums.swap_remove(root)
    }

    fn broadcast<const D: usize>(&self, tensor: Tensor<D>, root: usize) -> Vec<Tensor<D>> {
        self.transfers.broadcast(tensor, root)
    }

    fn bytes_moved(&self) -> u64 {
        self.reduced.load(Ordering::Relaxed) + self.transfers.bytes_moved()
    }
}
