//! What the kernels promise beyond the right numbers, and that they compute the right gradients.

use burn::tensor::{DType, Device, Tensor, TensorData};
use burn_kimi_linear::kda::{KdaPath, NoKdaKernel};
use burn_kimi_linear::{ForgetGate, KdaOptions};

use crate::closeness::{assert_close, values};
use crate::engines::{Engine, kernels};
use crate::kda_cases::{Gates, Keys, Numbers, Tensors, inputs, results, with_other_tokens};
use crate::kda_oracle::{Dims, Inputs};
use crate::kda_projected::{projected, projections};

const PARTS: [&str; 8] = ["o", "state", "dq", "dk", "dv", "dg", "dbeta", "dstate"];

/// Output, state and all gradients of a loss that weighs both by fixed random numbers.
fn everything(
    inputs: &Inputs,
    device: &Device,
    dtype: DType,
    options: &KdaOptions,
    weighed_tokens: usize,
) -> Vec<Vec<f64>> {
    let device = device.clone().autodiff();
    let x = Tensors::new(inputs, &device, dtype);
    let x = Tensors {
        q: x.q.require_grad(),
        k: x.k.require_grad(),
        v: x.v.require_grad(),
        g: x.g.require_grad(),
        beta: x.beta.require_grad(),
        state: x.state.require_grad(),
    };
    let (o, state) = x.run(&options.clone().with_scale(inputs.scale));
    let mut numbers = Numbers(5);
    let mut weights = |dims: [usize; 4], dtype| {
        let weights = numbers.symmetric(dims.iter().product());
        Tensor::<4>::from_data(TensorData::new(weights, dims), (&device, dtype))
    };
    let o_weights = weights(o.dims(), o.dtype()).narrow(1, 0, weighed_tokens);
    let state_weights = weights(state.dims(), state.dtype());
    let mut loss = (o.clone().narrow(1, 0, weighed_tokens) * o_weights).sum();
    if weighed_tokens == inputs.dims.tokens {
        loss = loss + (state.clone() * state_weights).sum().cast(dtype);
    }
    let grads = loss.backward();
    vec![
        values(o),
        values(state),
        values(x.q.grad(&grads).unwrap()),
        values(x.k.grad(&grads).unwrap()),
        values(x.v.grad(&grads).unwrap()),
        values(x.g.grad(&grads).unwrap()),
        values(x.beta.grad(&grads).unwrap()),
        values(x.state.grad(&grads).unwrap()),
    ]
}

/// The same from primitive operations in `f64`, whose gradients are checked against finite differences elsewhere.
fn exact(inputs: &Inputs, weighed_tokens: usize) -> Vec<Vec<f64>> {
    let options = KdaOptions::new().with_path(KdaPath::Primitive);
    everything(
        inputs,
        &Device::flex(),
        DType::F64,
        &options,
        weighed_tokens,
    )
}

fn compare(what: &str, inputs: &Inputs, chunk_sizes: &[usize], tolerance: f64) {
    let want = exact(inputs, inputs.dims.tokens);
    for engine in kernels() {
        for &chunk_size in engine.chunk_sizes(chunk_sizes) {
            let options = engine.options().with_chunk_size(chunk_size);
            let got = everything(
                inputs,
                &engine.device,
                DType::F32,
                &options,
                inputs.dims.tokens,
            );
            for ((name, got), want) in PARTS.iter().zip(&got).zip(&want) {
                let what = format!("{} on {}, chunk {chunk_size}: {name}", what, engine.name);
                assert_close(&what, got, want, tolerance);
            }
        }
    }
}

pub(crate) fn dims(tokens: usize) -> Dims {
    Dims {
        batch: 2,
        tokens,
        heads: 1,
        group: 2,
        key: 20,
        value: 36,
    }
}

#[test]
fn values_and_gradients_match_at_every_remainder_of_the_chunk() {
    for tokens in [1, 2, 3, 15, 16, 17, 31, 33, 64, 65] {
        let gates = Gates::Random { strength: 1.0 };
        let inputs = inputs(dims(tokens), gates, Keys::Random, 1.0, 3);
        compare(&format!("T = {tokens}"), &inputs, &[16, 64], 2e-5);
    }
}

#[test]
fn values_and_gradients_match_at_every_width() {
    for (key, value) in [(1, 1), (3, 64), (64, 3), (60, 100), (128, 128), (256, 17)] {
        let dims = Dims {
            batch: 1,
            key,
            value,
            ..dims(37)
        };
        let inputs = inputs(dims, Gates::Random { strength: 1.0 }, Keys::Random, 1.0, 4);
        compare(&format!("K = {key}, V = {value}"), &inputs, &[16], 2e-5);
    }
}

#[test]
fn values_and_gradients_match_with_any_gate() {
    for gates in [
        Gates::Open,
        Gates::Constant(-0.01),
        Gates::Constant(-5.0),
        Gates::Constant(-49.0),
        Gates::Random { strength: 20.0 },
        Gates::Resets { probability: 0.1 },
        Gates::Resets { probability: 0.9 },
    ] {
        let inputs = inputs(dims(70), gates, Keys::Random, 1.0, 6);
        compare(&format!("{gates:?}"), &inputs, &[16, 32, 64], 5e-5);
    }
}

#[test]
fn values_and_gradients_match_with_hard_keys() {
    for keys in [Keys::Equal, Keys::Positive] {
        let inputs = inputs(dims(64), Gates::Random { strength: 0.01 }, keys, 1.0, 7);
        compare(&format!("{keys:?}"), &inputs, &[16, 64], 1e-4);
    }
}

#[test]
fn values_and_gradients_match_with_hard_keys_and_full_writes() {
    for keys in [Keys::Equal, Keys::Positive] {
        for (beta, tolerance) in [(1.0, 1e-4), (1.9, 5e-4), (2.0, 5e-4)] {
            let gates = Gates::Random { strength: 0.01 };
            let mut inputs = inputs(dims(48), gates, keys, 1.0, 7);
            inputs.parts[4].fill(beta);
            let what = format!("{keys:?} keys, beta = {beta}");
            compare(&what, &inputs, &[16, 64], tolerance);
        }
    }
}

/// With equal keys and writes of 2 the memory grows with every token, and so does what rounding leaves.
#[test]
fn values_and_gradients_match_with_writes_of_two() {
    let mut inputs = inputs(dims(48), Gates::Open, Keys::Equal, 1.0, 8);
    inputs.parts[4].fill(2.0);
    compare("beta = 2", &inputs, &[16, 32], 5e-4);
}

#[test]
fn nothing_before_a_change_moves_by_a_bit() {
    for engine in kernels() {
        for &chunk_size in engine.chunk_sizes(&[16, 64]) {
            let options = engine.options().with_chunk_size(chunk_size);
            assert_causal(&engine, 80, &options, &[1, 15, 16, 17, 40, 64, 79]);
        }
    }
}

/// Outputs before each of the tokens `changes` have the same bits with all other tokens from there on.
fn assert_causal(engine: &Engine, tokens: usize, options: &KdaOptions, changes: &[usize]) {
    let gates = Gates::Random { strength: 1.0 };
    let before = inputs(dims(tokens), gates, Keys::Random, 1.0, 11);
    let gates = Gates::Random { strength: 9.0 };
    let other = inputs(dims(tokens), gates, Keys::Random, 2.0, 12);
    let run = |inputs: &Inputs| {
        let (o, _) = Tensors::new(inputs, &engine.device, DType::F32).run(options);
        o
    };
    let a = run(&before);
    for &changed in changes {
        let b = run(&with_other_tokens(&before, &other, changed));
        let head = |o: &Tensor<4>| values(o.clone().narrow(1, 0, changed));
        let what = format!("{}: a change at token {changed}", engine.name);
        assert_eq!(head(&a), head(&b), "{what}");
        assert_ne!(values(a.clone()), values(b), "{what} must show");
    }
}

#[test]
fn a_loss_on_early_tokens_has_no_gradient_at_later_ones() {
    let tokens = 50;
    let gates = Gates::Random { strength: 1.0 };
    let inputs = inputs(dims(tokens), gates, Keys::Random, 1.0, 13);
    for engine in kernels() {
        for weighed in [1, 16, 17, 40] {
            let got = everything(
                &inputs,
                &engine.device,
                DType::F32,
                &engine.options(),
                weighed,
            );
            let want = exact(&inputs, weighed);
            for part in 2..7 {
                let name = PARTS[part];
                assert_close(
                    &format!("{name} on {}", engine.name),
                    &got[part],
                    &want[part],
                    2e-5,
                );
                let width = got[part].len() / (2 * tokens);
                for batch in 0..2 {
                    let later = (batch * tokens + weighed) * width..(batch + 1) * tokens * width;
                    let later = &got[part][later];
                    assert!(later.iter().all(|x| *x == 0.0), "{name} on {}", engine.name);
                }
            }
        }
    }
}

#[test]
fn cuts_between_chunks_keep_every_bit_and_others_the_value() {
    for engine in kernels() {
        for &chunk_size in engine.chunk_sizes(&[16, 64]) {
            let options = engine.options().with_chunk_size(chunk_size);
            let cuts = [1, 15, 16, 17, 63, 64, 65, 127, 128];
            assert_cuts(&engine, 129, &options, chunk_size, &cuts);
        }
    }
}

/// Results and gradients of a sequence in two calls are those of one: between chunks in their bits, elsewhere to rounding.
fn assert_cuts(
    engine: &Engine,
    tokens: usize,
    options: &KdaOptions,
    chunk_size: usize,
    cuts: &[usize],
) {
    let gates = Gates::Random { strength: 1.0 };
    let all = inputs(dims(tokens), gates, Keys::Random, 1.0, 14);
    let x = Tensors::new(&all, &engine.device, DType::F32);
    let whole = results(engine, &x, |x| x.run(options));
    for &at in cuts {
        let in_two = results(engine, &x, |x| x.run_in_two(options, at));
        for ((name, got), (_, want)) in in_two.iter().zip(&whole) {
            let what = format!("{name} on {}, cut at {at}, {chunk_size}", engine.name);
            if at.is_multiple_of(chunk_size) {
                assert!(got == want, "{what}");
            } else {
                let is_gradient = name.starts_with('d');
                let tolerance = if is_gradient { 5e-5 } else { 1e-5 };
                assert_close(&what, got, want, tolerance);
            }
        }
    }
}

/// What software Vulkan has time for, and long enough that states pass through many chunks.
#[test]
fn every_promise_holds_over_hundreds_of_tokens() {
    let tokens = 512;
    let gates = Gates::Random { strength: 0.1 };
    let inputs = inputs(dims(tokens), gates, Keys::Random, 1.0, 31);
    compare("T = 512", &inputs, &[16, 64], 5e-5);
    for engine in kernels() {
        assert_causal(&engine, tokens, &engine.options(), &[16, 300, 511]);
        assert_cuts(&engine, tokens, &engine.options(), 16, &[256, 496, 300]);
    }
}

#[test]
fn a_sequence_has_the_same_bits_in_any_batch() {
    for engine in kernels() {
        assert_rows_alone(
            &engine,
            Dims {
                batch: 3,
                ..dims(50)
            },
            &[0, 1, 2],
        );
    }
}

/// With many states a unit of the GPU kernels works on two columns of them instead of one (`src/kda/cube/plan.rs`): there from 64 matrices on,
/// so not with one row, and the decode step likewise.
#[test]
fn a_sequence_has_the_same_bits_among_many() {
    for engine in kernels() {
        for tokens in [1, 40] {
            let many = Dims {
                batch: 40,
                key: 8,
                ..dims(tokens)
            };
            assert_rows_alone(&engine, many, &[0, 17, 39]);
        }
    }
}

/// Output, state and gradients of rows of a batch have the bits that they have without the others.
fn assert_rows_alone(engine: &Engine, dims: Dims, rows: &[usize]) {
    let gates = Gates::Random { strength: 1.0 };
    let all = inputs(dims, gates, Keys::Random, 1.0, 15);
    let x = Tensors::new(&all, &engine.device, DType::F32);
    let options = engine.options();
    let together = results(engine, &x, |x| x.run(&options));
    for &row in rows {
        let alone = results(engine, &x.row(row), |x| x.run(&options));
        for ((name, together), (_, alone)) in together.iter().zip(&alone) {
            let of_row = &together[row * alone.len()..(row + 1) * alone.len()];
            assert!(of_row == alone, "{name} of row {row} on {}", engine.name);
        }
    }
}

/// Whatever lies in memory around a view is not touched: neither its values nor, with NaN there, the results.
#[test]
fn views_surrounded_by_nan_are_read_alone() {
    let gates = Gates::Random { strength: 1.0 };
    let inputs = inputs(dims(40), gates, Keys::Random, 1.0, 16);
    for engine in kernels() {
        let x = Tensors::new(&inputs, &engine.device, DType::F32);
        let surround = |x: &Tensor<4>| {
            let [a, b, c, d] = x.dims();
            let frame = Tensor::full([a + 2, b + 2, c + 2, d + 2], f32::NAN, &engine.device);
            let framed = frame.slice_assign([1..a + 1, 1..b + 1, 1..c + 1, 1..d + 1], x.clone());
            framed.slice([1..a + 1, 1..b + 1, 1..c + 1, 1..d + 1])
        };
        let views = Tensors {
            q: surround(&x.q),
            k: surround(&x.k),
            v: surround(&x.v),
            g: surround(&x.g),
            beta: surround(&x.beta.clone().unsqueeze_dim(3)).squeeze_dim(3),
            state: surround(&x.state),
        };
        let (want, got) = (x.run(&engine.options()), views.run(&engine.options()));
        assert_eq!(values(got.0), values(want.0), "{}", engine.name);
        assert_eq!(values(got.1), values(want.1), "{}", engine.name);
    }
}

#[test]
fn results_and_gradients_are_the_same_every_time() {
    let gates = Gates::Random { strength: 1.0 };
    let inputs = inputs(
        Dims {
            batch: 3,
            ..dims(70)
        },
        gates,
        Keys::Random,
        1.0,
        17,
    );
    for engine in kernels() {
        let run = || everything(&inputs, &engine.device, DType::F32, &engine.options(), 70);
        let first = run();
        for _ in 0..3 {
            assert!(run() == first, "{}", engine.name);
        }
    }
}

/// One thread and several: the tasks are dealt out differently, the bits stay.
#[test]
fn results_do_not_depend_on_the_number_of_threads() {
    let gates = Gates::Random { strength: 1.0 };
    // One head: with several threads the columns of its values are shared out.
    let inputs = inputs(
        Dims {
            batch: 1,
            group: 1,
            value: 128,
            ..dims(70)
        },
        gates,
        Keys::Random,
        1.0,
        18,
    );
    let run = |threads: usize| {
        let pool = rayon::ThreadPoolBuilder::new()
            .num_threads(threads)
            .build()
            .unwrap();
        pool.install(|| {
            let options = KdaOptions::new().with_path(KdaPath::Kernel);
            everything(&inputs, &Device::flex(), DType::F32, &options, 70)
        })
    };
    let one = run(1);
    for threads in [2, 3, 8] {
        assert!(run(threads) == one, "{threads} threads");
    }
}

#[test]
fn half_precision_is_stored_and_computed_in_f32() {
    for engine in kernels() {
        for (dtype, rounding) in [(DType::BF16, 2f64.powi(-8)), (DType::F16, 2f64.powi(-11))] {
            let supported = engine.supports(dtype);
            let told = if supported { "runs" } else { "is not stored" };
            println!("{dtype:?} {told} on {}", engine.name);
            assert!(
                supported || engine.name != "flex",
                "the CPU stores {dtype:?}"
            );
            if !supported {
                continue;
            }
            let gates = Gates::Random { strength: 1.0 };
            let mut inputs = inputs(dims(60), gates, Keys::Random, 1.0, 29);
            let x = Tensors::new(&inputs, &Device::flex(), dtype);
            let rounded = [x.q, x.k, x.v, x.g].map(values);
            for (part, rounded) in inputs.parts.iter_mut().zip(rounded) {
                *part = rounded;
            }
            inputs.parts[4] = values(x.beta);
            inputs.parts[5] = values(x.state);
            let want = exact(&inputs, 60);
            let got = everything(&inputs, &engine.device, dtype, &engine.options(), 60);
            for ((name, got), want) in PARTS.iter().zip(&got).zip(&want) {
                let tolerance = if *name == "state" {
                    2e-5
                } else {
                    3.0 * rounding
                };
                assert_close(
                    &format!("{name} in {dtype:?} on {}", engine.name),
                    got,
                    want,
                    tolerance,
                );
            }
        }
    }
}

/// Every gate at its bound, where its slope is gone: forward and backward stay exact and finite.
#[test]
fn a_saturated_gate_is_exact_both_ways() {
    for engine in kernels() {
        for (device, dtype, options) in [
            (
                Device::flex(),
                DType::F64,
                KdaOptions::new().with_path(KdaPath::Primitive),
            ),
            (engine.device.clone(), DType::F32, engine.options()),
        ] {
            let device = device.autodiff();
            let (mut x, mut gate, state) = projections(dims(40), 1.0, &device, dtype);
            gate.gate = ForgetGate::LowerBound(-5.0);
            x.decay = Tensor::full(x.decay.dims(), 200.0, (&device, dtype)).require_grad();
            let results = projected((x, gate, state), &options);
            for (name, values) in &results {
                assert!(
                    values.iter().all(|x| x.is_finite()),
                    "{name} on {}",
                    engine.name
                );
            }
            let (_, slope) = results.iter().find(|(name, _)| *name == "ddecay").unwrap();
            assert!(slope.iter().all(|x| *x == 0.0), "{}", engine.name);
        }
        let saturated = inputs(dims(40), Gates::Constant(-5.0), Keys::Random, 1.0, 19);
        let want = exact(&saturated, 40);
        let got = everything(
            &saturated,
            &engine.device,
            DType::F32,
            &engine.options(),
            40,
        );
        assert_close("o", &got[0], &want[0], 2e-5);
        assert_close("dg", &got[5], &want[5], 5e-5);
    }
}

#[test]
fn amplitudes_from_tiny_to_huge() {
    for amplitude in [1e-4, 1e4] {
        let gates = Gates::Random { strength: 1.0 };
        let mut inputs = inputs(dims(40), gates, Keys::Random, 1.0, 20);
        for part in [2, 5] {
            inputs.parts[part].iter_mut().for_each(|x| *x *= amplitude);
        }
        compare(&format!("amplitude {amplitude}"), &inputs, &[16], 2e-5);
    }
}

#[test]
fn the_path_is_told_and_can_be_insisted_on() {
    let flex = Device::flex();
    assert_eq!(KdaPath::kernel_for(&flex, DType::F32, 128), Ok(()));
    assert_eq!(
        KdaPath::kernel_for(&flex.clone().autodiff(), DType::BF16, 128),
        Ok(())
    );
    let error = KdaPath::kernel_for(&flex, DType::F64, 128).unwrap_err();
    assert_eq!(error, NoKdaKernel::Dtype { dtype: DType::F64 });
}

#[test]
#[should_panic(expected = "there is no KDA kernel for values of F64")]
fn a_kernel_that_is_not_there_is_not_replaced_in_silence() {
    let inputs = inputs(dims(4), Gates::Open, Keys::Random, 1.0, 1);
    let x = Tensors::new(&inputs, &Device::flex(), DType::F64);
    x.run(&KdaOptions::new().with_path(KdaPath::Kernel));
}
