//! Launches every GPU kernel of the largest logits, with and without a mask and causality, for the dtypes that the device stores.
//!
//! ```sh
//! cargo run --release -p burn-muonclip --features cuda --example max_logit_kernels -- cuda
//! ```
//!
//! With a tool that compiles kernels for a GPU that is not there, it shows that all of them compile and what registers they take
//! (`tests/cuda-check.sh`).

use std::process::ExitCode;

use burn::tensor::{Bool, DType, Device, Distribution, FloatDType, Tensor};
use burn_muonclip::{MaxLogitOptions, max_logit};

const BATCH: usize = 2;
const HEADS: usize = 4;
const KEY_HEADS: usize = 2;
const TOKENS: usize = 200;

fn main() -> ExitCode {
    let name = std::env::args().nth(1).unwrap_or_default();
    let Some(device) = device(&name) else {
        eprintln!(
            "the device {name:?} is not one of those that this build has; give one as the argument, as in `max_logit_kernels cuda`"
        );
        return ExitCode::from(2);
    };
    for (dtype, float) in [
        (DType::F32, FloatDType::F32),
        (DType::BF16, FloatDType::BF16),
    ] {
        if !device.supports_dtype(float) {
            println!("{dtype:?}: not supported by {device:?}");
            continue;
        }
        for width in [64, 192] {
            launch_all(&device, dtype, width);
        }
    }
    ExitCode::SUCCESS
}

fn launch_all(device: &Device, dtype: DType, width: usize) {
    let random = |heads| {
        let shape = [BATCH, heads, TOKENS, width];
        Tensor::<4>::random(shape, Distribution::Default, (device, DType::F32)).cast(dtype)
    };
    let (q, k) = (random(HEADS), random(KEY_HEADS));
    let padding = Tensor::<4, Bool>::zeros([BATCH, 1, 1, TOKENS], device);
    for causal in [false, true] {
        let options = MaxLogitOptions::new().with_causal(causal);
        for options in [options.clone(), options.with_mask(padding.clone())] {
            let largest = max_logit(q.clone(), k.clone(), &options).into_data();
            println!("{dtype:?}, width {width}, causal {causal}: {largest}");
        }
    }
}

/// The device of a name, if this build has it.
fn device(name: &str) -> Option<Device> {
    match name {
        #[cfg(feature = "cuda")]
        "cuda" => Some(Device::cuda(0)),
        #[cfg(feature = "rocm")]
        "rocm" => Some(Device::rocm(0)),
        #[cfg(feature = "wgpu")]
        "wgpu" => Some(Device::wgpu(burn::tensor::DeviceKind::DefaultDevice)),
        #[cfg(feature = "flex")]
        "flex" => Some(Device::flex()),
        _ => None,
    }
}
