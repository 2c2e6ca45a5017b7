//! Everything that computes the operator: what a guarantee is tested on.

use burn::tensor::{DType, Device};
use burn_kimi_linear::KdaOptions;
use burn_kimi_linear::kda::KdaPath;

/// A device and a way to compute on it.
#[derive(Clone, Debug)]
pub(crate) struct Engine {
    pub name: &'static str,
    pub device: Device,
    path: KdaPath,
}

impl Engine {
    pub(crate) fn options(&self) -> KdaOptions {
        KdaOptions::new().with_path(self.path)
    }

    pub(crate) fn is_kernel(&self) -> bool {
        self.path == KdaPath::Kernel
    }

    /// Every key width and chunk is a kernel to compile there, and on software Vulkan all of it is slow: tests take fewer cases.
    pub(crate) fn is_gpu(&self) -> bool {
        self.name == "wgpu"
    }

    /// The chunk sizes that make a difference: GPU kernels work in 16 tokens at most, so behind the first there is nothing new.
    pub(crate) fn chunk_sizes<'a>(&self, all: &'a [usize]) -> &'a [usize] {
        if self.is_gpu() { &all[..1] } else { all }
    }

    pub(crate) fn supports(&self, dtype: DType) -> bool {
        self.device.supports_dtype(dtype)
    }
}

/// The kernels of this build's devices.
pub(crate) fn kernels() -> Vec<Engine> {
    let kernel = |name, device| Engine {
        name,
        device,
        path: KdaPath::Kernel,
    };
    vec![
        kernel("flex", Device::flex()),
        #[cfg(feature = "wgpu")]
        kernel(
            "wgpu",
            Device::wgpu(burn::tensor::DeviceKind::DefaultDevice),
        ),
    ]
}

/// The kernels, and the primitive operations they replace.
pub(crate) fn engines() -> Vec<Engine> {
    let mut engines = kernels();
    engines.push(Engine {
        name: "primitive",
        device: Device::flex(),
        path: KdaPath::Primitive,
    });
    engines
}
