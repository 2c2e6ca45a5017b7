use burn::tensor::{DType, Device};

use super::KdaOptions;
use burn_kimi_kernels::precision::is_for_kernels;

/// How a call is computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KdaPath {
    /// A kernel written for the device, with its own backward pass.
    Kernel,
    /// Burn's primitive operations: on every device and for every dtype, slower.
    Primitive,
}

/// Why there is no kernel for a call, so that it goes through primitive operations.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoKdaKernel {
    /// The device's backend has none, or the crate was built without the feature that brings it.
    #[error(
        "there is no KDA kernel for {device} in this build; the features of burn-kimi-linear bring them"
    )]
    Device {
        /// The device.
        device: String,
    },
    /// Kernels store `f32`, `f16` and `bf16` and compute in `f32`.
    #[error("there is no KDA kernel for values of {dtype:?}")]
    Dtype {
        /// The dtype of the values.
        dtype: DType,
    },
    /// The heads are wider than the GPU kernels' tiles.
    #[error(
        "there is no KDA kernel on {device} for heads of width K = {key_dim}; 256 is the widest"
    )]
    KeyDim {
        /// The device.
        device: String,
        /// The width of the keys.
        key_dim: usize,
    },
}

impl KdaPath {
    /// Whether there is a kernel for values of `dtype` and keys of width `key_dim` on `device`, or why not.
    pub fn kernel_for(device: &Device, dtype: DType, key_dim: usize) -> Result<(), NoKdaKernel> {
        if !is_for_kernels(dtype) {
            return Err(NoKdaKernel::Dtype { dtype });
        }
        backend_has_kernel(&device.clone().inner(), key_dim)
    }

    /// # Panics
    ///
    /// If the options insist on a kernel where there is none.
    pub(super) fn choose(
        device: &Device,
        dtype: DType,
        key_dim: usize,
        options: &KdaOptions,
    ) -> Self {
        if options.path == Some(Self::Primitive) {
            return Self::Primitive;
        }
        match Self::kernel_for(device, dtype, key_dim) {
            Ok(()) => Self::Kernel,
            Err(reason) if options.path == Some(Self::Kernel) => panic!("kda: {reason}"),
            Err(_) => Self::Primitive,
        }
    }
}

#[cfg(feature = "kernels")]
#[cfg_attr(not(feature = "cube"), allow(unused_variables))] // Only the GPU kernels have a widest key.
fn backend_has_kernel(device: &Device, key_dim: usize) -> Result<(), NoKdaKernel> {
    use burn::backend::DispatchDevice;
    match device.as_dispatch() {
        #[cfg(feature = "flex")]
        DispatchDevice::Flex(_) => Ok(()),
        #[cfg(feature = "cube")]
        DispatchDevice::Cube(_) if key_dim <= 256 => Ok(()),
        #[cfg(feature = "cube")]
        DispatchDevice::Cube(_) => Err(NoKdaKernel::KeyDim {
            device: format!("{device:?}"),
            key_dim,
        }),
        #[allow(unreachable_patterns)] // Where this build has no other backend.
        _ => Err(no_kernel(device)),
    }
}

#[cfg(not(feature = "kernels"))]
fn backend_has_kernel(device: &Device, _key_dim: usize) -> Result<(), NoKdaKernel> {
    Err(no_kernel(device))
}

#[allow(dead_code)] // Where every backend of this build has a kernel.
fn no_kernel(device: &Device) -> NoKdaKernel {
    NoKdaKernel::Device {
        device: format!("{device:?}"),
    }
}
