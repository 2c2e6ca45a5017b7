//! The operator with everything that prepares its inputs inside: values, and gradients down to the gate's parameters.

use burn::tensor::{DType, Device, Tensor, TensorData};
use burn_kimi_linear::kda::{KdaGate, KdaPath, KdaProjections, kda_projected};
use burn_kimi_linear::{ForgetGate, KdaOptions, KdaState};

use crate::closeness::{assert_close, values};
use crate::engines::kernels;
use crate::kda_cases::Numbers;
use crate::kda_kernels::dims;
use crate::kda_oracle::Dims;

pub(crate) fn projections(
    dims: Dims,
    amplitude: f64,
    device: &Device,
    dtype: DType,
) -> (KdaProjections, KdaGate, Tensor<4>) {
    let mut numbers = Numbers(23);
    let mut tensor = |shape: Vec<usize>, amplitude: f64| {
        let x: Vec<f64> = numbers.symmetric(shape.iter().product());
        TensorData::new(x.iter().map(|x| amplitude * x).collect::<Vec<_>>(), shape)
    };
    let to = (device, dtype);
    let projections = KdaProjections {
        q: Tensor::from_data(tensor(dims.keys().to_vec(), 1.0), to).require_grad(),
        k: Tensor::from_data(tensor(dims.keys().to_vec(), 1.0), to).require_grad(),
        v: Tensor::from_data(tensor(dims.values().to_vec(), 1.0), to).require_grad(),
        decay: Tensor::from_data(tensor(dims.gates().to_vec(), amplitude), to).require_grad(),
        write: Tensor::from_data(tensor(dims.betas().to_vec(), 2.0 * amplitude), to).require_grad(),
    };
    let gate = KdaGate {
        gate: ForgetGate::Softplus,
        a_log: Some(Tensor::from_data(tensor(vec![dims.value_heads()], 1.0), to).require_grad()),
        dt_bias: Tensor::from_data(tensor(vec![dims.value_heads(), dims.key], 1.0), to)
            .require_grad(),
        allow_negative_eigenvalues: false,
    };
    let state = Tensor::from_data(tensor(dims.state().to_vec(), 1.0), to).require_grad();
    (projections, gate, state)
}

/// Output, state, and the gradients of everything that `kda_projected` takes.
pub(crate) fn projected(
    (x, gate, state): (KdaProjections, KdaGate, Tensor<4>),
    options: &KdaOptions,
) -> Vec<(&'static str, Vec<f64>)> {
    let start = Some(KdaState::from_key_value(state.clone()));
    let (o, end) = kda_projected(x.clone(), gate.clone(), start, options);
    let end = end.into_key_value();
    let loss = (o.clone().square().sum() + end.clone().square().sum()) * 0.5;
    let grads = loss.backward();
    let a_log = gate.a_log.map(|a_log| values(a_log.grad(&grads).unwrap()));
    let mut results = vec![
        ("o", values(o)),
        ("state", values(end)),
        ("dq", values(x.q.grad(&grads).unwrap())),
        ("dk", values(x.k.grad(&grads).unwrap())),
        ("dv", values(x.v.grad(&grads).unwrap())),
        ("ddecay", values(x.decay.grad(&grads).unwrap())),
        ("dwrite", values(x.write.grad(&grads).unwrap())),
        ("ddt_bias", values(gate.dt_bias.grad(&grads).unwrap())),
        ("dstate", values(state.grad(&grads).unwrap())),
    ];
    results.extend(a_log.map(|a_log| ("da_log", a_log)));
    results
}

#[test]
fn projections_match_their_formulas_and_gradients() {
    let gates = [
        (ForgetGate::Softplus, false, true, 1.0),
        (ForgetGate::Softplus, true, false, 30.0),
        (ForgetGate::LowerBound(-5.0), false, true, 1.0),
        (ForgetGate::LowerBound(-5.0), true, false, 1.0),
    ];
    for (kind, negative, with_rate, amplitude) in gates {
        for tokens in [1, 33] {
            let change = |mut gate: KdaGate| {
                gate.gate = kind;
                gate.allow_negative_eigenvalues = negative;
                gate.a_log = gate.a_log.filter(|_| with_rate);
                gate
            };
            let exact_device = Device::flex().autodiff();
            let (x, gate, state) = projections(dims(tokens), amplitude, &exact_device, DType::F64);
            let primitive = KdaOptions::new().with_path(KdaPath::Primitive);
            let want = projected((x, change(gate), state), &primitive);
            for engine in kernels() {
                let device = engine.device.clone().autodiff();
                let (x, gate, state) = projections(dims(tokens), amplitude, &device, DType::F32);
                let got = projected((x, change(gate), state), &engine.options());
                for ((name, got), (_, want)) in got.iter().zip(&want) {
                    let what = format!("{kind:?}, T = {tokens} on {}: {name}", engine.name);
                    assert_close(&what, got, want, 5e-5);
                }
            }
        }
    }
}

/// With fewer heads than threads the backward pass is shared out by columns and by chunks: no bit may show it, not even in the gradients of the
/// gate's parameters, which are sums over all of them.
#[test]
fn results_do_not_depend_on_the_number_of_threads() {
    for (heads, group, value) in [(1, 1, 128), (1, 2, 40), (2, 3, 7), (3, 1, 16)] {
        let dims = Dims {
            batch: 1,
            tokens: 70,
            heads,
            group,
            key: 24,
            value,
        };
        let run = |threads: usize| {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build();
            pool.expect("threads").install(|| {
                let device = Device::flex().autodiff();
                let options = KdaOptions::new().with_path(KdaPath::Kernel);
                projected(projections(dims, 1.0, &device, DType::F32), &options)
            })
        };
        let one = run(1);
        for threads in [2, 3, 8] {
            for ((name, got), (_, want)) in run(threads).iter().zip(&one) {
                assert!(got == want, "{name} of {dims:?} with {threads} threads");
            }
        }
    }
}

/// Values that are 0 add nothing to a sum, but they make the states so large that the GPU kernels work through the chunks in several
/// rounds. The gradients of the gate's parameters are sums over all chunks.
#[test]
fn gradients_do_not_depend_on_how_chunks_are_batched() {
    let dims = Dims {
        batch: 2,
        tokens: 160,
        heads: 1,
        group: 4,
        key: 256,
        value: 4,
    };
    for engine in kernels() {
        let device = engine.device.clone().autodiff();
        let run = |zeros: usize| {
            let (mut x, gate, state) = projections(dims, 1.0, &device, DType::F32);
            x.v = with_zeros(x.v, zeros);
            let options = engine.options().with_chunk_size(2);
            projected((x, gate, with_zeros(state, zeros)), &options)
        };
        let of_all_values = ["dq", "dk", "ddecay", "dwrite", "ddt_bias", "da_log"];
        for ((name, narrow), (_, wide)) in run(4).into_iter().zip(run(252)) {
            if of_all_values.contains(&name) {
                assert!(narrow == wide, "{name} on {}", engine.name);
            }
        }
    }
}

/// `x` with so many zeros behind every row.
fn with_zeros(x: Tensor<4>, zeros: usize) -> Tensor<4> {
    let [a, b, c, _] = x.dims();
    let zeros = Tensor::zeros([a, b, c, zeros], &x.device());
    Tensor::cat(vec![x, zeros], 3).detach().require_grad()
}
