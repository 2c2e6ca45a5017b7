//! The operator with everything that prepares its inputs inside: values, and gradients down to the gate's parameters.

use burn::tensor::{DType, Device, Tensor, TensorData};
use burn_kimi_linear::kda::{
    KdaGate, KdaPath, KdaProjections, kda_projected, kda_verify_projected,
};
use burn_kimi_linear::{ForgetGate, KdaOptions, KdaState};

use crate::closeness::{assert_close, values};
use crate::engines::{engines, kernels};
use crate::kda_cases::{Numbers, Results};
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

/// Output, state, and the gradients of everything that `kda_projected` takes, of half the sum of squares.
pub(crate) fn projected(
    inputs: (KdaProjections, KdaGate, Tensor<4>),
    options: &KdaOptions,
) -> Results {
    let half_square = |x: Tensor<4>| x.square().sum() * 0.5;
    projected_with(inputs, options, half_square)
}

/// The same of another loss, which is added up over output and state.
fn projected_with(
    (x, gate, state): (KdaProjections, KdaGate, Tensor<4>),
    options: &KdaOptions,
    loss: impl Fn(Tensor<4>) -> Tensor<1>,
) -> Results {
    let start = Some(KdaState::from_key_value(state.clone()));
    let (o, end) = kda_projected(x.clone(), gate.clone(), start, options);
    let end = end.into_key_value();
    let grads = (loss(o.clone()) + loss(end.clone())).backward();
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

/// `x` with every projection changed.
fn map(x: KdaProjections, change: impl Fn(Tensor<4>) -> Tensor<4>) -> KdaProjections {
    let change = |x: Tensor<4>| change(x).detach();
    let write = change(x.write.unsqueeze_dim(3));
    KdaProjections {
        q: change(x.q).require_grad(),
        k: change(x.k).require_grad(),
        v: change(x.v).require_grad(),
        decay: change(x.decay).require_grad(),
        write: write.squeeze_dim::<3>(3).detach().require_grad(),
    }
}

/// Rows of 0, rows so short that the epsilon of the unit length is most of it, and rows so long that it is nothing.
#[test]
fn queries_and_keys_of_any_length_match() {
    const TOKENS: usize = 20;
    let every_third_is_zero = |t: usize| if t.is_multiple_of(3) { 0.0 } else { 1.0 };
    let factors: [(&str, Vec<f64>); 3] = [
        ("zero rows", (0..TOKENS).map(every_third_is_zero).collect()),
        ("rows of 1e-4", vec![1e-4; TOKENS]),
        ("rows of 1e4", vec![1e4; TOKENS]),
    ];
    for (rows, factors) in factors {
        let run = |device: &Device, dtype: DType, options: &KdaOptions| {
            let device = device.clone().autodiff();
            let (mut x, gate, state) = projections(dims(TOKENS), 1.0, &device, dtype);
            let factors = TensorData::new(factors.clone(), [1, TOKENS, 1, 1]);
            let factors = Tensor::<4>::from_data(factors, (&device, dtype));
            let scaled = |x: Tensor<4>| (x * factors.clone()).detach().require_grad();
            (x.q, x.k) = (scaled(x.q), scaled(x.k));
            // With squares the output of a query of 0 would have no gradient.
            projected_with((x, gate, state), options, |x| x.sum())
        };
        let primitive = KdaOptions::new().with_path(KdaPath::Primitive);
        let want = run(&Device::flex(), DType::F64, &primitive);
        for engine in kernels() {
            let got = run(&engine.device, DType::F32, &engine.options());
            for ((name, got), (_, want)) in got.iter().zip(&want) {
                let what = format!("{rows} on {}: {name}", engine.name);
                assert_close(&what, got, want, 5e-5);
            }
        }
    }
}

#[test]
fn padding_may_be_nan_and_does_not_reach_the_gate() {
    for engine in engines() {
        for (tokens, lengths) in [(20usize, [9usize, 0, 20]), (1, [1, 0, 1])] {
            let device = engine.device.clone().autodiff();
            let dims = Dims {
                batch: 3,
                ..dims(tokens)
            };
            let given = || projections(dims, 1.0, &device, DType::F32);
            let options = engine.options().with_lengths(lengths);
            let clean = projected(given(), &options);

            let (x, gate, state) = given();
            let poison = |x: Tensor<4>| {
                let [_, _, heads, width] = x.dims();
                let padded = lengths.iter().enumerate().filter(|(_, len)| **len < tokens);
                padded.fold(x, |x, (row, &len)| {
                    let nan = Tensor::full([1, tokens - len, heads, width], f32::NAN, &device);
                    x.slice_assign([row..row + 1, len..tokens, 0..heads, 0..width], nan)
                })
            };
            let poisoned = projected((map(x, poison), gate, state), &options);
            for ((name, clean), (_, poisoned)) in clean.iter().zip(&poisoned) {
                assert!(clean == poisoned, "{name} on {}", engine.name);
            }

            let (x, gate, state) = given();
            let pack = |x: Tensor<4>| {
                let first = x.clone().narrow(0, 0, 1).narrow(1, 0, lengths[0]);
                Tensor::cat(vec![first, x.narrow(0, 2, 1)], 1)
            };
            let ends = [0, lengths[0], lengths[0], lengths[0] + tokens];
            let options = engine.options().with_cumulative_lengths(ends);
            let packed = projected((map(x, pack), gate, state), &options);
            for ((name, clean), (_, packed)) in clean.iter().zip(&packed) {
                if ["ddt_bias", "da_log", "dstate", "state"].contains(name) {
                    let what = format!("{name} without padding, on {}", engine.name);
                    assert_close(&what, packed, clean, 1e-5);
                }
            }
        }
    }
}

/// The gates that the next two tests go through, by whether writes reach 2.
const GATES: [(ForgetGate, bool); 2] = [
    (ForgetGate::Softplus, false),
    (ForgetGate::LowerBound(-5.0), true),
];

/// One row of projections, from which tokens can be cut.
fn one_row(
    (kind, negative): (ForgetGate, bool),
    value: usize,
    tokens: usize,
    device: &Device,
) -> (KdaProjections, KdaGate, Tensor<4>) {
    let dims = Dims {
        batch: 1,
        value,
        ..dims(tokens)
    };
    let (x, mut gate, state) = projections(dims, 1.0, device, DType::F32);
    gate.gate = kind;
    gate.allow_negative_eigenvalues = negative;
    (x, gate, state)
}

/// A step has a kernel of its own. Beside a longer sequence the same token is a chunk.
#[test]
fn a_step_has_the_bits_of_a_chunk_of_one_token() {
    for engine in kernels() {
        let device = engine.device.clone().autodiff();
        for kind in GATES {
            for value in [32, 36] {
                let (x, gate, state) = one_row(kind, value, 18, &device);
                let step = map(x.clone(), |x| x.narrow(1, 0, 1));
                let start = Some(KdaState::from_key_value(state.clone()));
                let (o, end) = kda_projected(step, gate.clone(), start, &engine.options());

                let both = Tensor::cat(vec![state.clone(), state], 0);
                let both = Some(KdaState::from_key_value(both));
                let options = engine.options().with_cumulative_lengths([0, 1, 18]);
                let (chunks, ends) = kda_projected(x, gate, both, &options);
                let what = format!("{kind:?}, V = {value} on {}", engine.name);
                assert!(values(o) == values(chunks.narrow(1, 0, 1)), "o, {what}");
                let chunk_end = ends.into_key_value().narrow(0, 0, 1);
                let end = end.into_key_value();
                assert!(values(end) == values(chunk_end), "state, {what}");
            }
        }
    }
}

#[test]
fn verifying_projections_equals_decoding_them_bit_for_bit() {
    for engine in kernels() {
        let device = engine.device.clone().autodiff();
        for kind in GATES {
            for value in [32, 36] {
                let (x, gate, start) = one_row(kind, value, 5, &device);
                let mut state = KdaState::from_key_value(start);
                let options = engine.options();
                let begin = Some(state.clone());
                let (o, snapshots) = kda_verify_projected(x.clone(), gate.clone(), begin, &options);
                let what = format!("{kind:?}, V = {value} on {}", engine.name);
                for t in 0..5 {
                    let token = map(x.clone(), |x| x.narrow(1, t, 1));
                    let (one, next) = kda_projected(token, gate.clone(), Some(state), &options);
                    let verified = values(o.clone().narrow(1, t, 1));
                    assert!(verified == values(one), "output {t}, {what}");
                    let accepted = values(snapshots.accept(&[t + 1]).into_key_value());
                    let decoded = values(next.clone().into_key_value());
                    assert!(accepted == decoded, "state {t}, {what}");
                    state = next;
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
