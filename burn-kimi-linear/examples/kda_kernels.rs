//! Launches every kernel of delta attention once for each width and dtype, forward, backward and decode, and prints the time of each.
//!
//! ```sh
//! cargo run --release -p burn-kimi-linear --features cuda --example kda_kernels -- cuda
//! ```
//!
//! With a tool that compiles kernels for a GPU that is not there, it shows that all of them compile and what registers they take. The
//! times include the compilation, and are no benchmark.

use std::process::ExitCode;
use std::time::Instant;

use burn::tensor::{DType, Device, Distribution, FloatDType, Tensor};
use burn_kimi_linear::kda::{KdaGate, KdaPath, KdaProjections, kda_projected};
use burn_kimi_linear::{ForgetGate, KdaOptions, KdaState, kda};

const BATCH: usize = 2;
const TOKENS: usize = 40;
const HEADS: usize = 2;
const VALUE_HEADS: usize = 4;

fn main() -> ExitCode {
    let name = std::env::args().nth(1).unwrap_or_default();
    let Some(device) = device(&name) else {
        eprintln!(
            "the device {name:?} is not one of those that this build has; give one as the argument, as in `kda_kernels cuda`"
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
        for width in [64, 128] {
            launch_all(&device, dtype, width);
        }
    }
    ExitCode::SUCCESS
}

fn launch_all(device: &Device, dtype: DType, width: usize) {
    for tokens in [TOKENS, 1] {
        timed(
            &format!("{dtype:?}, K = V = {width}, {tokens} tokens, prepared"),
            || {
                let inputs = Inputs::new(device, dtype, width, tokens);
                inputs.prepared();
            },
        );
        for gate in [ForgetGate::Softplus, ForgetGate::LowerBound(-5.0)] {
            timed(
                &format!("{dtype:?}, K = V = {width}, {tokens} tokens, {gate:?}"),
                || {
                    let inputs = Inputs::new(device, dtype, width, tokens);
                    inputs.projected(gate);
                },
            );
        }
        timed(
            &format!("{dtype:?}, K = V = {width}, {tokens} tokens, with gradients"),
            || {
                let inputs = Inputs::new(&device.clone().autodiff(), dtype, width, tokens);
                let outputs = [
                    inputs.prepared(),
                    inputs.projected(ForgetGate::Softplus),
                    inputs.projected(ForgetGate::LowerBound(-5.0)),
                ];
                for o in outputs {
                    let gradients = o.cast(DType::F32).sum().backward();
                    let q = inputs.q.grad(&gradients).expect("q takes part");
                    assert_eq!(q.into_data().shape(), &inputs.q.shape());
                }
            },
        );
    }
}

fn timed(what: &str, work: impl FnOnce()) {
    let start = Instant::now();
    work();
    println!("{what}: {:.1} ms", start.elapsed().as_secs_f64() * 1e3);
}

struct Inputs {
    q: Tensor<4>,
    k: Tensor<4>,
    v: Tensor<4>,
    g: Tensor<4>,
    beta: Tensor<3>,
    a_log: Tensor<1>,
    dt_bias: Tensor<2>,
    state: Tensor<4>,
}

impl Inputs {
    fn new(device: &Device, dtype: DType, width: usize, tokens: usize) -> Self {
        let tracked = device.is_autodiff();
        fn random<const D: usize>(
            shape: [usize; D],
            (low, high): (f64, f64),
            to: (&Device, DType),
            tracked: bool,
        ) -> Tensor<D> {
            let x =
                Tensor::<D>::random(shape, Distribution::Uniform(low, high), (to.0, DType::F32))
                    .cast(to.1);
            if tracked { x.require_grad() } else { x }
        }
        let wide = [BATCH, tokens, HEADS, width];
        let values = [BATCH, tokens, VALUE_HEADS, width];
        let (low, full) = ((device, dtype), (device, DType::F32));
        Self {
            q: random(wide, (-0.1, 0.1), low, tracked),
            k: random(wide, (-0.1, 0.1), low, tracked),
            v: random(values, (-1.0, 1.0), low, tracked),
            g: random(values, (-1.0, 0.0), low, tracked),
            beta: random([BATCH, tokens, VALUE_HEADS], (0.0, 1.0), low, tracked),
            a_log: random([VALUE_HEADS], (0.0, 1.0), full, tracked),
            dt_bias: random([VALUE_HEADS, width], (-1.0, 1.0), full, tracked),
            state: random(
                [BATCH, VALUE_HEADS, width, width],
                (-1.0, 1.0),
                full,
                tracked,
            ),
        }
    }

    fn options() -> KdaOptions {
        KdaOptions::new().with_path(KdaPath::Kernel)
    }

    fn prepared(&self) -> Tensor<4> {
        let (o, state) = kda(
            self.q.clone(),
            self.k.clone(),
            self.v.clone(),
            self.g.clone(),
            self.beta.clone(),
            Some(KdaState::from_key_value(self.state.clone())),
            &Self::options(),
        );
        assert_eq!(
            state.into_key_value().into_data().shape(),
            &self.state.shape()
        );
        o
    }

    fn projected(&self, gate: ForgetGate) -> Tensor<4> {
        let projections = KdaProjections {
            q: self.q.clone(),
            k: self.k.clone(),
            v: self.v.clone(),
            decay: self.g.clone(),
            write: self.beta.clone(),
        };
        let gate = KdaGate {
            gate,
            a_log: Some(self.a_log.clone()),
            dt_bias: self.dt_bias.clone(),
            allow_negative_eigenvalues: false,
        };
        let state = Some(KdaState::from_key_value(self.state.clone()));
        let (o, state) = kda_projected(projections, gate, state, &Self::options());
        assert_eq!(
            state.into_key_value().into_data().shape(),
            &self.state.shape()
        );
        o
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
        #[cfg(feature = "vulkan")]
        "vulkan" => Some(Device::vulkan(burn::tensor::DeviceKind::DefaultDevice)),
        #[cfg(feature = "metal")]
        "metal" => Some(Device::metal(burn::tensor::DeviceKind::DefaultDevice)),
        #[cfg(feature = "webgpu")]
        "webgpu" => Some(Device::webgpu(burn::tensor::DeviceKind::DefaultDevice)),
        _ => None,
    }
}
