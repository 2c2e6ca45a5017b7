//! The tensors of a call as the kernels take them: contiguous, with their sizes by name.

use std::sync::Arc;

use burn::backend::TensorMetadata;
use burn::tensor::{DType, Shape};
use burn_cubecl::CubeBackend;
use burn_cubecl::kernel::into_contiguous;
use burn_cubecl::ops::numeric::{empty_device_contiguous_dtype, zeros_client};
use burn_cubecl::tensor::CubeTensor;
use cubecl::client::Client;
use cubecl::server::Handle;

use super::gate::Preparing;
use super::plan::Limits;
use crate::kda::definition::KdaTensors;
use crate::kda::plan::KdaPlan;

/// All inputs but the state.
pub(super) struct Inputs {
    /// `[B, T, H, K]`.
    pub(super) q: CubeTensor,
    /// `[B, T, H, K]`.
    pub(super) k: CubeTensor,
    /// `[B, T, HV, V]`.
    pub(super) v: CubeTensor,
    /// `[B, T, HV, K]`.
    pub(super) g: CubeTensor,
    /// `[B, T, HV]`.
    pub(super) beta: CubeTensor,
    /// `[HV]`.
    pub(super) a_log: CubeTensor,
    /// `[HV, K]`.
    pub(super) dt_bias: CubeTensor,
    pub(super) preparing: Preparing,
    pub(super) scale: f32,
    pub(super) sizes: Sizes,
    pub(super) plan: Arc<KdaPlan>,
    /// Of the device.
    pub(super) limits: Limits,
}

#[derive(Clone, Copy)]
pub(super) struct Sizes {
    /// `T`.
    pub(super) tokens: usize,
    /// `H`.
    pub(super) heads: usize,
    /// `HV`.
    pub(super) value_heads: usize,
    /// `K`.
    pub(super) key_dim: usize,
    /// `V`.
    pub(super) value_dim: usize,
}

impl Sizes {
    /// Value heads that share a query and key head.
    pub(super) fn group(&self) -> usize {
        self.value_heads / self.heads
    }
}

impl Inputs {
    /// The inputs, and the state as it was given.
    pub(super) fn new(tensors: KdaTensors<CubeBackend>, plan: Arc<KdaPlan>) -> (Self, CubeTensor) {
        let [_, tokens, heads, key_dim] = tensors.q.shape().dims();
        let [_, _, value_heads, value_dim] = tensors.v.shape().dims();
        let limits = Limits::of(&tensors.v.client);
        let inputs = Self {
            q: into_contiguous(tensors.q),
            k: into_contiguous(tensors.k),
            v: into_contiguous(tensors.v),
            g: into_contiguous(tensors.g),
            beta: into_contiguous(tensors.beta),
            a_log: into_contiguous(tensors.a_log),
            dt_bias: into_contiguous(tensors.dt_bias),
            preparing: Preparing::from(plan.preparation),
            scale: plan.scale as f32,
            sizes: Sizes {
                tokens,
                heads,
                value_heads,
                key_dim,
                value_dim,
            },
            plan,
            limits,
        };
        (inputs, tensors.state)
    }

    pub(super) fn client(&self) -> &Client {
        &self.v.client
    }

    /// How many sequences keep the device busy.
    pub(super) fn sequences_at_once(&self) -> usize {
        let Sizes {
            value_heads,
            value_dim,
            ..
        } = self.sizes;
        self.limits.sequences_at_once(value_heads, value_dim)
    }

    /// Whether some tokens are in no sequence.
    pub(super) fn has_padding(&self) -> bool {
        let covered: usize = self
            .plan
            .sequences
            .iter()
            .map(|sequence| sequence.len)
            .sum();
        covered < self.beta.shape().num_elements() / self.sizes.value_heads
    }

    /// A tensor for something that belongs to tokens: of zeros if some will not be written.
    pub(super) fn for_tokens(&self, like: &CubeTensor) -> CubeTensor {
        let (client, device) = (like.client.clone(), like.device.clone());
        let (shape, dtype) = (like.shape(), like.dtype);
        if self.has_padding() {
            into_contiguous(zeros_client(client, device, shape, dtype))
        } else {
            empty_device_contiguous_dtype(client, device, shape, dtype)
        }
    }

    /// Scratch memory for so many `f32`.
    pub(super) fn scratch(&self, numbers: usize) -> CubeTensor {
        let (client, device) = (self.v.client.clone(), self.v.device.clone());
        empty_device_contiguous_dtype(client, device, Shape::new([numbers]), DType::F32)
    }

    /// A tensor for a kernel that has nothing to write to it.
    pub(super) fn nothing_like(&self, like: &CubeTensor) -> CubeTensor {
        let (client, device) = (like.client.clone(), like.device.clone());
        empty_device_contiguous_dtype(client, device, Shape::new([4]), like.dtype)
    }

    /// A table of whole numbers on the device.
    pub(super) fn upload(&self, table: &[u32]) -> CubeTensor {
        let handle: Handle = self.client().create_from_slice(&to_bytes(table));
        let (client, device) = (self.v.client.clone(), self.v.device.clone());
        CubeTensor::new_contiguous(
            client,
            device,
            Shape::new([table.len()]),
            handle,
            DType::U32,
        )
    }
}

fn to_bytes(numbers: &[u32]) -> Vec<u8> {
    numbers
        .iter()
        .flat_map(|number| number.to_ne_bytes())
        .collect()
}

/// A state that may be written to: the given one where nobody else has it, else a copy.
pub(super) fn own(state: CubeTensor) -> CubeTensor {
    let state = into_contiguous(state);
    if state.can_mut() {
        state
    } else {
        into_contiguous(state.copy())
    }
}
