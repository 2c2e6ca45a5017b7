//! Launches every kernel of delta attention for each width and dtype: forward, backward, decode and snapshots, in every form of the
//! inputs, for few states and for many. Prints the time of each.
//!
//! ```sh
//! cargo run --release -p burn-kimi-linear --features cuda --example kda_kernels -- cuda
//! ```
//!
//! With a tool that compiles kernels for a GPU that is not there, it shows that all of them compile and what registers they take
//! (`tests/cuda-check.sh`). The times include the compilation, and are no benchmark.

use std::process::ExitCode;
use std::time::Instant;

use burn::tensor::{DType, Device, Distribution, FloatDType, Tensor};
use burn_kimi_linear::kda::{KdaGate, KdaPath, KdaProjections, kda_projected, kda_verify};
use burn_kimi_linear::{ForgetGate, KdaOptions, KdaState, kda};

#[derive(Clone, Copy, Debug)]
struct Sizes {
    batch: usize,
    tokens: usize,
    heads: usize,
    value_heads: usize,
    /// `K` and `V`.
    width: usize,
}

/// So few states that a kernel takes one column a unit, and so few chunks that one round is enough.
const FEW: Sizes = Sizes {
    batch: 2,
    tokens: 40,
    heads: 2,
    value_heads: 4,
    width: 0,
};

/// So many states that a kernel takes two columns a unit, and so many chunks that several rounds are needed.
const MANY: Sizes = Sizes {
    batch: 2,
    tokens: 300,
    heads: 80,
    value_heads: 160,
    width: 0,
};

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
            for sizes in [FEW, MANY] {
                launch_all(&device, dtype, Sizes { width, ..sizes });
            }
        }
    }
    ExitCode::SUCCESS
}

const GATES: [ForgetGate; 2] = [ForgetGate::Softplus, ForgetGate::LowerBound(-5.0)];

fn launch_all(device: &Device, dtype: DType, sizes: Sizes) {
    for tokens in [sizes.tokens, 1] {
        let sizes = Sizes { tokens, ..sizes };
        let inputs = Inputs::new(device, dtype, sizes);
        let what = format!("{dtype:?}, {sizes:?}");
        timed(&format!("{what}, prepared"), || {
            inputs.prepared();
        });
        for gate in GATES {
            timed(&format!("{what}, {gate:?}"), || {
                inputs.projected(gate);
            });
        }
        timed(&format!("{what}, with gradients"), || {
            let inputs = Inputs::new(&device.clone().autodiff(), dtype, sizes);
            inputs.gradients(inputs.prepared());
            for gate in GATES {
                inputs.gradients(inputs.projected(gate));
            }
        });
    }
    let sizes = Sizes { tokens: 3, ..sizes };
    let inputs = Inputs::new(device, dtype, sizes);
    timed(&format!("{dtype:?}, {sizes:?}, snapshots"), || {
        inputs.snapshots();
    });
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
    fn new(device: &Device, dtype: DType, sizes: Sizes) -> Self {
        let Sizes {
            batch,
            tokens,
            heads,
            value_heads,
            width,
        } = sizes;
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
        let wide = [batch, tokens, heads, width];
        let values = [batch, tokens, value_heads, width];
        let (low, full) = ((device, dtype), (device, DType::F32));
        Self {
            q: random(wide, (-0.1, 0.1), low, tracked),
            k: random(wide, (-0.1, 0.1), low, tracked),
            v: random(values, (-1.0, 1.0), low, tracked),
            g: random(values, (-1.0, 0.0), low, tracked),
            beta: random([batch, tokens, value_heads], (0.0, 1.0), low, tracked),
            a_log: random([value_heads], (0.0, 1.0), full, tracked),
            dt_bias: random([value_heads, width], (-1.0, 1.0), full, tracked),
            state: random(
                [batch, value_heads, width, width],
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

    fn snapshots(&self) {
        let (o, _) = kda_verify(
            self.q.clone(),
            self.k.clone(),
            self.v.clone(),
            self.g.clone(),
            self.beta.clone(),
            Some(KdaState::from_key_value(self.state.clone())),
            &Self::options(),
        );
        assert_eq!(o.into_data().shape(), &self.v.shape());
    }

    fn gradients(&self, o: Tensor<4>) {
        let gradients = o.cast(DType::F32).sum().backward();
        let q = self.q.grad(&gradients).expect("q takes part");
        assert_eq!(q.into_data().shape(), &self.q.shape());
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
