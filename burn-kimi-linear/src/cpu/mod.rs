//! What the kernels for Burn's CPU backend share: the machine's vectors, and its threads.

pub(crate) mod lanes;
pub(crate) mod shared;
pub(crate) mod tensors;
pub(crate) mod threads;

use burn::backend::DispatchDevice;
use burn::tensor::{DType, Tensor};

/// Whether the kernels of this crate for the CPU backend can take `x`.
pub(crate) fn serves<const D: usize>(x: &Tensor<D>) -> bool {
    let stored = matches!(
        x.dtype(),
        DType::F32 | DType::Flex32 | DType::F16 | DType::BF16
    );
    stored && matches!(x.device().inner().as_dispatch(), DispatchDevice::Flex(_))
}
