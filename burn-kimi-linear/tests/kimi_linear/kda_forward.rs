use burn::tensor::{DType, Device, Tensor};
use burn_kimi_linear::{KdaOptions, KdaState, kda, kda::kda_reference};
use proptest::prelude::*;
use proptest::test_runner::TestRunner;

use crate::closeness::{assert_close, relative_rms, values};
use crate::engines::kernels;
use crate::kda_cases::{Gates, Keys, Tensors, inputs, options, run, with_other_tokens};
use crate::kda_oracle::{Dims, recurrence};

const TOLERANCE: f64 = 2e-5;

fn dims() -> impl Strategy<Value = Dims> {
    (
        1..3usize,
        0..70usize,
        1..3usize,
        1..3usize,
        1..20usize,
        1..20usize,
    )
        .prop_map(|(batch, tokens, heads, group, key, value)| Dims {
            batch,
            tokens,
            heads,
            group,
            key,
            value,
        })
}

fn gates() -> impl Strategy<Value = Gates> {
    prop_oneof![
        Just(Gates::Open),
        prop_oneof![Just(0.1), Just(1.0), Just(20.0)]
            .prop_map(|strength| Gates::Random { strength }),
        prop_oneof![Just(-5.0), Just(-30.0), Just(-1000.0)].prop_map(Gates::Constant),
        prop_oneof![Just(0.1), Just(0.5), Just(0.9)]
            .prop_map(|probability| Gates::Resets { probability }),
    ]
}

#[test]
fn any_shape_and_gate_matches_the_recurrence() {
    let chunk_sizes = prop_oneof![Just(2usize), Just(4), Just(16), Just(32), Just(64)];
    let cases = (dims(), gates(), chunk_sizes, any::<u64>());
    for engine in kernels() {
        let count = if engine.is_gpu() { 6 } else { 64 };
        let mut runner = TestRunner::new(ProptestConfig {
            failure_persistence: None,
            ..ProptestConfig::with_cases(count)
        });
        let outcome = runner.run(&cases, |(dims, gates, chunk_size, seed)| {
            let inputs = inputs(dims, gates, Keys::Random, 1.0, seed);
            let want = recurrence(&inputs);
            let got = run(&engine, &inputs, chunk_size);
            prop_assert!(relative_rms(&got.o, &want.o) <= TOLERANCE, "o");
            prop_assert!(relative_rms(&got.state, &want.state) <= TOLERANCE, "state");
            Ok(())
        });
        if let Err(failure) = outcome {
            panic!("{}: {failure}", engine.name);
        }
    }
}

fn medium(tokens: usize) -> Dims {
    Dims {
        batch: 2,
        tokens,
        heads: 2,
        group: 1,
        key: 12,
        value: 20,
    }
}

#[test]
fn every_remainder_of_the_chunk_matches() {
    for tokens in [1, 2, 15, 16, 17, 31, 32, 33, 63, 64, 65, 100] {
        let inputs = inputs(
            medium(tokens),
            Gates::Random { strength: 1.0 },
            Keys::Random,
            1.0,
            7,
        );
        let want = recurrence(&inputs);
        for engine in kernels() {
            let got = run(&engine, &inputs, 16);
            let what = format!("T = {tokens} on {}", engine.name);
            assert_close(&format!("o, {what}"), &got.o, &want.o, TOLERANCE);
            assert_close(
                &format!("state, {what}"),
                &got.state,
                &want.state,
                TOLERANCE,
            );
        }
    }
}

#[test]
fn reference_matches_the_recurrence() {
    let inputs = inputs(
        medium(9),
        Gates::Random { strength: 1.0 },
        Keys::Random,
        1.0,
        3,
    );
    let x = Tensors::new(&inputs, &Device::flex(), DType::F32);
    let state = KdaState::from_key_value(x.state);
    let (o, state) = kda_reference(
        x.q,
        x.k,
        x.v,
        x.g,
        x.beta,
        Some(state),
        &options(&inputs, 16),
    );
    let want = recurrence(&inputs);
    assert_close("o", &values(o), &want.o, TOLERANCE);
    assert_close(
        "state",
        &values(state.into_key_value()),
        &want.state,
        TOLERANCE,
    );
}

#[test]
fn no_tokens_give_no_output_and_keep_the_state() {
    let inputs = inputs(medium(0), Gates::Open, Keys::Random, 1.0, 1);
    for engine in kernels() {
        let x = Tensors::new(&inputs, &engine.device, DType::F32);
        let (o, state) = x.run(&engine.options());
        assert_eq!(o.dims(), [2, 0, 2, 20]);
        assert_eq!(state.into_data(), x.state.into_data(), "{}", engine.name);
    }
}

#[test]
fn an_empty_batch_gives_an_empty_batch() {
    let empty = Dims {
        batch: 0,
        group: 2,
        ..medium(20)
    };
    let inputs = inputs(empty, Gates::Open, Keys::Random, 1.0, 1);
    for engine in kernels() {
        let x = Tensors::new(&inputs, &engine.device, DType::F32);
        let (o, state) = x.run(&engine.options());
        assert_eq!(o.dims(), [0, 20, 4, 20]);
        assert_eq!(state.dims(), [0, 4, 12, 20]);
    }
}

#[test]
#[should_panic(expected = "heads must have a width, got K = 0 and V = 20")]
fn heads_without_width_are_refused() {
    let flat = Dims {
        key: 0,
        ..medium(20)
    };
    let mut inputs = inputs(Dims { key: 1, ..flat }, Gates::Open, Keys::Random, 1.0, 1);
    inputs.dims = flat;
    for part in [0, 1, 3, 5] {
        inputs.parts[part].clear();
    }
    Tensors::new(&inputs, &Device::flex(), DType::F32).run(&KdaOptions::new());
}

#[test]
fn missing_state_is_an_empty_memory() {
    let mut inputs = inputs(
        medium(20),
        Gates::Random { strength: 1.0 },
        Keys::Random,
        1.0,
        5,
    );
    inputs.parts[5].fill(0.0);
    for engine in kernels() {
        let x = Tensors::new(&inputs, &engine.device, DType::F32);
        let (want, _) = x.run(&engine.options());
        let (got, _) = kda(x.q, x.k, x.v, x.g, x.beta, None, &engine.options());
        assert_eq!(got.into_data(), want.into_data(), "{}", engine.name);
    }
}

#[test]
fn a_later_token_changes_no_earlier_output() {
    let before = inputs(
        medium(70),
        Gates::Random { strength: 1.0 },
        Keys::Random,
        1.0,
        11,
    );
    let other = inputs(
        medium(70),
        Gates::Random { strength: 3.0 },
        Keys::Random,
        1.0,
        12,
    );
    for engine in kernels() {
        let o_before = run(&engine, &before, 16).o;
        for changed in [1, 15, 16, 17, 40, 69] {
            let after = with_other_tokens(&before, &other, changed);
            let o_after = run(&engine, &after, 16).o;
            let what = format!("{}: a change at token {changed}", engine.name);
            let width = o_before.len() / (2 * 70);
            for batch in 0..2 {
                let head = batch * 70 * width..(batch * 70 + changed) * width;
                assert_eq!(o_before[head.clone()], o_after[head], "{what}");
            }
            assert_ne!(o_before, o_after, "{what} must show somewhere");
        }
    }
}

#[test]
fn a_sequence_cut_anywhere_gives_the_same() {
    let all = inputs(
        medium(80),
        Gates::Random { strength: 1.0 },
        Keys::Random,
        1.0,
        13,
    );
    for engine in kernels() {
        let x = Tensors::new(&all, &engine.device, DType::F32);
        let (o, state) = x.run(&engine.options());
        let (want_o, want_state) = (values(o), values(state));
        for cut in [1, 15, 16, 17, 63, 64, 65, 79] {
            let (o, state) = x.run_in_two(&engine.options(), cut);
            let what = format!("cut at {cut} on {}", engine.name);
            assert_close(&format!("o {what}"), &values(o), &want_o, 1e-5);
            assert_close(&format!("state {what}"), &values(state), &want_state, 1e-5);
        }
    }
}

#[test]
fn chunk_sizes_agree() {
    let inputs = inputs(
        medium(100),
        Gates::Random { strength: 2.0 },
        Keys::Random,
        1.0,
        17,
    );
    for engine in kernels() {
        let want = run(&engine, &inputs, 64);
        for chunk_size in [2, 4, 8, 16, 32, 128] {
            let got = run(&engine, &inputs, chunk_size);
            let what = format!("chunk {chunk_size} on {}", engine.name);
            assert_close(&format!("o, {what}"), &got.o, &want.o, 1e-5);
            assert_close(&format!("state, {what}"), &got.state, &want.state, 1e-5);
        }
    }
}

#[test]
fn a_sequence_does_not_see_its_neighbours() {
    let both = inputs(
        medium(50),
        Gates::Random { strength: 1.0 },
        Keys::Random,
        1.0,
        19,
    );
    for engine in kernels() {
        let x = Tensors::new(&both, &engine.device, DType::F32);
        let (want, _) = x.run(&engine.options());
        let (alone, _) = x.row(1).run(&engine.options());
        assert_eq!(
            values(alone),
            values(want.narrow(0, 1, 1)),
            "{}",
            engine.name
        );
    }
}

#[test]
fn strided_and_expanded_inputs_are_read_right() {
    let inputs = inputs(
        medium(40),
        Gates::Random { strength: 1.0 },
        Keys::Random,
        1.0,
        23,
    );
    let strided = |x: &Tensor<4>| {
        let copied = x.clone().permute([3, 1, 2, 0]) * 1.0;
        copied.permute([3, 1, 2, 0])
    };
    for engine in kernels() {
        let x = Tensors::new(&inputs, &engine.device, DType::F32);
        let (want_o, want_state) = x.run(&engine.options());
        let permuted = Tensors {
            q: strided(&x.q),
            k: strided(&x.k),
            v: strided(&x.v),
            g: strided(&x.g),
            beta: (x.beta.clone().swap_dims(0, 2) * 1.0).swap_dims(0, 2),
            state: (x.state.clone().swap_dims(2, 3) * 1.0).swap_dims(2, 3),
        };
        let (o, state) = permuted.run(&engine.options());
        assert_eq!(o.into_data(), want_o.into_data(), "{}", engine.name);
        assert_eq!(state.into_data(), want_state.into_data(), "{}", engine.name);

        let constant = x.g.clone().narrow(3, 0, 1);
        let by_expand = Tensors {
            g: constant.clone().expand([2, 40, 2, 12]),
            ..x
        };
        let (a, _) = by_expand.run(&engine.options());
        let by_repeat = Tensors {
            g: constant.repeat_dim(3, 12),
            ..by_expand
        };
        let (b, _) = by_repeat.run(&engine.options());
        assert_eq!(a.into_data(), b.into_data(), "{}", engine.name);
    }
}

/// Against the recurrence over the rounded inputs nothing is left but the rounding of the output: decay, products and state
/// in half precision would be off by many times that after sixty tokens.
#[test]
fn half_precision_storage_computes_in_f32() {
    for engine in kernels() {
        for (dtype, rounding) in [(DType::BF16, 2f64.powi(-8)), (DType::F16, 2f64.powi(-11))] {
            if !engine.supports(dtype) {
                assert!(engine.is_gpu(), "the CPU stores {dtype:?}");
                continue;
            }
            let mut inputs = inputs(
                medium(60),
                Gates::Random { strength: 1.0 },
                Keys::Random,
                1.0,
                29,
            );
            let x = Tensors::new(&inputs, &engine.device, dtype);
            inputs.parts = [
                values(x.q.clone()),
                values(x.k.clone()),
                values(x.v.clone()),
                values(x.g.clone()),
                values(x.beta.clone()),
                values(x.state.clone()),
            ];
            let want = recurrence(&inputs);
            let (o, state) = x.run(&engine.options().with_scale(inputs.scale));
            assert_eq!(o.dtype(), dtype);
            assert_eq!(state.dtype(), DType::F32);
            let what = format!("from {dtype:?} on {}", engine.name);
            assert_close(
                &format!("state {what}"),
                &values(state),
                &want.state,
                TOLERANCE,
            );
            assert_close(&format!("o {what}"), &values(o), &want.o, rounding);
        }
    }
}

#[test]
#[should_panic(expected = "v has 3 heads, which is not a multiple of the 2 heads of q and k")]
fn value_heads_must_be_a_multiple() {
    let x = Tensors::new(
        &inputs(medium(4), Gates::Open, Keys::Random, 1.0, 1),
        &Device::flex(),
        DType::F32,
    );
    let v = Tensor::zeros([2, 4, 3, 20], &Device::flex());
    kda(x.q, x.k, v, x.g, x.beta, None, &KdaOptions::new());
}

#[test]
#[should_panic(expected = "g has the shape [2, 4, 2, 1], which should be [2, 4, 2, 12]")]
fn a_gate_per_head_is_refused() {
    let x = Tensors::new(
        &inputs(medium(4), Gates::Open, Keys::Random, 1.0, 1),
        &Device::flex(),
        DType::F32,
    );
    let per_head = x.g.narrow(3, 0, 1);
    kda(x.q, x.k, x.v, per_head, x.beta, None, &KdaOptions::new());
}

#[test]
#[should_panic(
    expected = "initial_state has the shape [2, 2, 20, 12], which should be [2, 2, 12, 20]"
)]
fn a_value_first_state_is_refused_when_shapes_tell() {
    let x = Tensors::new(
        &inputs(medium(4), Gates::Open, Keys::Random, 1.0, 1),
        &Device::flex(),
        DType::F32,
    );
    let wrong = KdaState::from_key_value(x.state.swap_dims(2, 3));
    kda(x.q, x.k, x.v, x.g, x.beta, Some(wrong), &KdaOptions::new());
}

#[test]
#[should_panic(expected = "chunk_size must be a power of two and at least 2, got 48")]
fn odd_chunk_sizes_are_refused() {
    let _ = KdaOptions::new().with_chunk_size(48);
}
