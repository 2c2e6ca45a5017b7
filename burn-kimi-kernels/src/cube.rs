//! What CubeCL kernels ask of the tensors of Burn's GPU backends.

use burn::backend::DispatchDevice;
use burn::backend::cubecl::dtype_to_storage_type;
use burn::tensor::Tensor;
use burn_cubecl::tensor::CubeTensor;
use cubecl::ir::{AddressType, ElemType};

use crate::precision::is_for_kernels;

/// Whether CubeCL kernels can take `x`, and have something to do.
pub fn serves<const D: usize>(x: &Tensor<D>) -> bool {
    is_for_kernels(x.dtype())
        && x.shape().num_elements() > 0
        && matches!(x.device().inner().as_dispatch(), DispatchDevice::Cube(_))
}

/// The type that indexes all of these tensors.
pub fn address_type(tensors: &[&CubeTensor]) -> AddressType {
    let types = tensors.iter().map(|tensor| tensor.required_address_type());
    types.max().unwrap_or_default()
}

/// What a kernel stores the tensor's numbers as.
pub fn storage(tensor: &CubeTensor) -> ElemType {
    dtype_to_storage_type(tensor.dtype)
}
