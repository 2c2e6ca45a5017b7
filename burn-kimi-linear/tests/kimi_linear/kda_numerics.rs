//! Inputs that break implementations of this operator, most of them from reports about others.

use burn::tensor::DType;

use crate::closeness::assert_close;
use crate::engines::kernels;
use crate::kda_cases::{Gates, Keys, Tensors, inputs, results, run};
use crate::kda_oracle::{Dims, Inputs, recurrence};

fn dims(tokens: usize) -> Dims {
    Dims {
        batch: 1,
        tokens,
        heads: 1,
        group: 2,
        key: 16,
        value: 24,
    }
}

/// Forward against `f64`, and finite gradients.
fn check(inputs: &Inputs, tolerance: f64) {
    let want = recurrence(inputs);
    for engine in kernels() {
        for &chunk_size in engine.chunk_sizes(&[16, 64]) {
            let what = format!("on {}, chunk {chunk_size}", engine.name);
            let options = engine.options().with_chunk_size(chunk_size);
            let options = options.with_scale(inputs.scale);
            let x = Tensors::new(inputs, &engine.device, DType::F32);
            let got = results(&engine, &x, |x| x.run(&options));
            assert_close(&format!("o {what}"), &got[0].1, &want.o, tolerance);
            assert_close(&format!("state {what}"), &got[1].1, &want.state, tolerance);
            for (name, gradient) in &got[2..] {
                assert!(
                    gradient.iter().all(|x| x.is_finite()),
                    "{name} {what} is not finite"
                );
            }
        }
    }
}

#[test]
fn strong_decay_has_finite_gradients() {
    for g in [-2.0, -5.0, -49.0, -1000.0] {
        check(
            &inputs(dims(64), Gates::Constant(g), Keys::Random, 1.0, 1),
            2e-5,
        );
    }
}

#[test]
fn channels_of_no_and_of_strong_decay_mix() {
    let mut inputs = inputs(dims(70), Gates::Open, Keys::Random, 1.0, 2);
    for (at, g) in inputs.parts[3].iter_mut().enumerate() {
        *g = if at % 2 == 0 { 0.0 } else { -30.0 };
    }
    check(&inputs, 2e-5);
}

/// Differences of one running sum over the chunk would have lost every digit of the small decays after a reset.
#[test]
fn resets_cost_no_digits() {
    for probability in [0.1, 0.5, 0.9] {
        check(
            &inputs(
                dims(130),
                Gates::Resets { probability },
                Keys::Random,
                1.0,
                3,
            ),
            2e-5,
        );
    }
}

#[test]
fn a_reset_of_every_channel_forgets_exactly() {
    let mut with_state = inputs(
        dims(40),
        Gates::Random { strength: 1.0 },
        Keys::Random,
        1.0,
        4,
    );
    let row = with_state.parts[3].len() / 40;
    with_state.parts[3][20 * row..21 * row].fill(-1000.0);
    let mut without = with_state.clone();
    without.parts[5].fill(0.0);
    let width = with_state.parts[2].len() / 40;
    for engine in kernels() {
        let (a, b) = (run(&engine, &with_state, 16), run(&engine, &without, 16));
        assert_ne!(a.o[..20 * width], b.o[..20 * width], "{}", engine.name);
        assert_eq!(a.o[20 * width..], b.o[20 * width..], "{}", engine.name);
        assert_eq!(a.state, b.state, "{}", engine.name);
    }
}

#[test]
fn equal_and_positive_keys_with_full_writes() {
    for keys in [Keys::Equal, Keys::Positive] {
        let mut inputs = inputs(dims(64), Gates::Random { strength: 0.01 }, keys, 1.0, 5);
        check(&inputs, 2e-5);
        for (beta, tolerance) in [(1.0, 2e-5), (1.9, 2e-4), (2.0, 2e-4)] {
            inputs.parts[4].fill(beta);
            check(&inputs, tolerance);
        }
    }
}

/// With writes up to 2 the transition has the eigenvalue -1 and the system inside a chunk is badly conditioned.
#[test]
fn equal_keys_with_writes_of_two_stay_accurate() {
    let mut inputs = inputs(dims(64), Gates::Open, Keys::Equal, 1.0, 6);
    inputs.parts[4].fill(2.0);
    check(&inputs, 2e-4);
}

#[test]
fn no_write_is_pure_decay() {
    let mut inputs = inputs(
        dims(33),
        Gates::Random { strength: 0.2 },
        Keys::Random,
        1.0,
        7,
    );
    inputs.parts[4].fill(0.0);
    let Dims {
        tokens, key, value, ..
    } = inputs.dims;
    let heads = inputs.dims.value_heads();
    let mut want = inputs.parts[5].clone();
    for head in 0..heads {
        for d in 0..key {
            let total: f64 = (0..tokens)
                .map(|t| inputs.parts[3][(t * heads + head) * key + d])
                .sum();
            let at = (head * key + d) * value;
            want[at..at + value]
                .iter_mut()
                .for_each(|x| *x *= total.exp());
        }
    }
    for engine in kernels() {
        // Every token adds the error of one exponential, which on software Vulkan is a polynomial.
        let tolerance = if engine.is_gpu() { 1e-5 } else { 1e-6 };
        let got = run(&engine, &inputs, 16).state;
        assert_close(engine.name, &got, &want, tolerance);
    }
}

#[test]
fn zero_queries_keys_and_values_stay_finite() {
    for part in 0..3 {
        let mut inputs = inputs(
            dims(20),
            Gates::Random { strength: 1.0 },
            Keys::Random,
            1.0,
            8,
        );
        inputs.parts[part].fill(0.0);
        check(&inputs, 2e-5);
    }
}

#[test]
fn values_of_any_amplitude() {
    for amplitude in [1e-4, 1e4] {
        let mut inputs = inputs(
            dims(40),
            Gates::Random { strength: 1.0 },
            Keys::Random,
            1.0,
            9,
        );
        for part in [2, 5] {
            inputs.parts[part].iter_mut().for_each(|x| *x *= amplitude);
        }
        check(&inputs, 2e-5);
    }
}

/// A key width that is no power of two, and one channel.
#[test]
fn odd_widths() {
    for (key, value) in [(1, 1), (60, 100), (3, 1)] {
        let dims = Dims {
            key,
            value,
            ..dims(37)
        };
        check(
            &inputs(dims, Gates::Random { strength: 1.0 }, Keys::Random, 1.0, 10),
            2e-5,
        );
    }
}

/// With open gates KDA is DeltaNet: `S_t = (I - beta_t k_t k_t^T) S_{t-1} + beta_t k_t v_t^T`, `o_t = S_t^T q_t`.
#[test]
fn open_gates_are_delta_net() {
    let inputs = inputs(dims(50), Gates::Open, Keys::Random, 1.0, 12);
    let Dims {
        tokens, key, value, ..
    } = inputs.dims;
    let heads = inputs.dims.value_heads();
    let [q, k, v, _, beta, state] = &inputs.parts;
    let mut o = vec![0.0; tokens * heads * value];
    let mut states = state.clone();
    for head in 0..heads {
        let s = &mut states[head * key * value..][..key * value];
        for t in 0..tokens {
            let (at, qk) = (t * heads + head, t * key);
            let before = s.to_vec();
            for d in 0..key {
                for e in 0..value {
                    let turned: f64 = (0..key)
                        .map(|c| {
                            let identity = if c == d { 1.0 } else { 0.0 };
                            let turn = identity - beta[at] * k[qk + d] * k[qk + c];
                            turn * before[c * value + e]
                        })
                        .sum();
                    s[d * value + e] = turned + beta[at] * k[qk + d] * v[at * value + e];
                }
            }
            for e in 0..value {
                let read: f64 = (0..key).map(|d| q[qk + d] * s[d * value + e]).sum();
                o[at * value + e] = inputs.scale * read;
            }
        }
    }
    for engine in kernels() {
        let got = run(&engine, &inputs, 16);
        assert_close(engine.name, &got.o, &o, 2e-5);
        assert_close(engine.name, &got.state, &states, 2e-5);
    }
}

/// All channels of a key are one head's gate: then KDA is the gated delta rule, whose decay commutes with everything.
#[test]
fn one_gate_for_all_channels_is_the_gated_delta_rule() {
    let mut inputs = inputs(
        dims(50),
        Gates::Random { strength: 1.0 },
        Keys::Random,
        1.0,
        11,
    );
    let Dims {
        tokens, key, value, ..
    } = inputs.dims;
    let heads = inputs.dims.value_heads();
    for row in inputs.parts[3].chunks_mut(key) {
        let gate = row[0];
        row.fill(gate);
    }
    let [q, k, v, g, beta, state] = &inputs.parts;
    let mut want = vec![0.0; tokens * heads * value];
    let mut state = state.clone();
    for head in 0..heads {
        let s = &mut state[head * key * value..][..key * value];
        for t in 0..tokens {
            let (at, qk) = (t * heads + head, t * key);
            let alpha = g[at * key].exp();
            for e in 0..value {
                let known: f64 = (0..key).map(|d| k[qk + d] * s[d * value + e]).sum();
                for d in 0..key {
                    let write = beta[at] * (v[at * value + e] - alpha * known) * k[qk + d];
                    s[d * value + e] = alpha * s[d * value + e] + write;
                }
                let read: f64 = (0..key).map(|d| q[qk + d] * s[d * value + e]).sum();
                want[at * value + e] = inputs.scale * read;
            }
        }
    }
    for engine in kernels() {
        let got = run(&engine, &inputs, 16);
        assert_close(engine.name, &got.o, &want, 2e-5);
        assert_close(engine.name, &got.state, &state, 2e-5);
    }
}
