//! What the kernels for Burn's CPU backend share: the machine's vectors, and its threads.

pub mod lanes;
pub mod product;
pub mod shared;
pub mod tensors;
pub mod threads;
pub mod tile;

use burn::backend::DispatchDevice;
use burn::tensor::Tensor;

use crate::precision::is_for_kernels;

/// Whether kernels for the CPU backend can take `x`, and have something to do.
pub fn serves<const D: usize>(x: &Tensor<D>) -> bool {
    is_for_kernels(x.dtype())
        && x.shape().num_elements() > 0
        && matches!(x.device().inner().as_dispatch(), DispatchDevice::Flex(_))
}
