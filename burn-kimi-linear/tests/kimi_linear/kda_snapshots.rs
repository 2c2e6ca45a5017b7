//! Speculative decoding, states as values and as bytes.

use burn::tensor::{DType, Device, Tensor};
use burn_kimi_linear::kda::kda_verify;
use burn_kimi_linear::{
    KdaOptions, KdaState, KimiDeltaAttentionConfig, KimiDeltaAttentionState, StateBytesError, kda,
};

use crate::closeness::{assert_close, values};
use crate::engines::{Engine, engines};
use crate::kda_cases::{Gates, Keys, Tensors, inputs};
use crate::kda_oracle::Dims;

fn tensors(engine: &Engine, tokens: usize, value: usize) -> Tensors {
    let dims = Dims {
        batch: 2,
        tokens,
        heads: 1,
        group: 2,
        key: 12,
        value,
    };
    let gates = Gates::Random { strength: 1.0 };
    Tensors::new(
        &inputs(dims, gates, Keys::Random, 1.0, 3),
        &engine.device,
        DType::F32,
    )
}

fn step(engine: &Engine, x: &Tensors, t: usize, state: KdaState) -> (Tensor<4>, KdaState) {
    kda(
        x.q.clone().narrow(1, t, 1),
        x.k.clone().narrow(1, t, 1),
        x.v.clone().narrow(1, t, 1),
        x.g.clone().narrow(1, t, 1),
        x.beta.clone().narrow(1, t, 1),
        Some(state),
        &engine.options(),
    )
}

#[test]
fn verifying_tokens_equals_decoding_them_bit_for_bit() {
    for engine in engines() {
        for value in [16, 20] {
            let x = tensors(&engine, 5, value);
            let start = || KdaState::from_key_value(x.state.clone());
            let (o, snapshots) = kda_verify(
                x.q.clone(),
                x.k.clone(),
                x.v.clone(),
                x.g.clone(),
                x.beta.clone(),
                Some(start()),
                &engine.options(),
            );
            let kept = snapshots.accept(&[0, 0]).into_key_value();
            assert_eq!(
                values(kept),
                values(x.state.clone()),
                "nothing was accepted"
            );
            let mut state = start();
            for t in 0..5 {
                let (one, next) = step(&engine, &x, t, state);
                let got = values(o.clone().narrow(1, t, 1));
                assert_eq!(got, values(one), "{}: output {t}", engine.name);
                let accepted = snapshots.accept(&[t + 1, t + 1]).into_key_value();
                let next_values = values(next.clone().into_key_value());
                assert_eq!(values(accepted), next_values, "{}: state {t}", engine.name);
                state = next;
            }
            let mixed = snapshots.accept(&[2, 5]).into_key_value();
            let [two, five] = [2, 5].map(|n| snapshots.accept(&[n, n]).into_key_value());
            assert_eq!(
                values(mixed.clone().narrow(0, 0, 1)),
                values(two.narrow(0, 0, 1))
            );
            assert_eq!(values(mixed.narrow(0, 1, 1)), values(five.narrow(0, 1, 1)));
        }
    }
}

/// The sequences' states are in a pool: its other slots do not take part.
#[test]
fn verifying_from_slots_of_a_pool_equals_verifying_their_states() {
    for engine in engines() {
        let x = tensors(&engine, 5, 20);
        let pool = Tensor::cat(vec![x.state.clone(), x.state.clone() * 2.0], 0);
        let verify = |state: Tensor<4>, options: &KdaOptions| {
            let (o, snapshots) = kda_verify(
                x.q.clone(),
                x.k.clone(),
                x.v.clone(),
                x.g.clone(),
                x.beta.clone(),
                Some(KdaState::from_key_value(state)),
                options,
            );
            let accepted = [[0, 0], [2, 5], [5, 1]].map(|accepted| {
                let state = snapshots.accept(&accepted);
                values(state.into_key_value())
            });
            (values(o), accepted)
        };
        let slots = [3, 0].map(|slot| pool.clone().narrow(0, slot, 1));
        let picked = Tensor::cat(slots.to_vec(), 0);
        let want = verify(picked, &engine.options());
        let got = verify(pool.clone(), &engine.options().with_slots([3, 0]));
        assert!(got == want, "{}", engine.name);
    }
}

#[test]
fn steps_after_a_prefill_equal_one_pass() {
    for engine in engines() {
        for prefill in [1, 16, 30] {
            let x = tensors(&engine, 33, 20);
            let (want, want_state) = x.run(&engine.options());
            let part = |x: &Tensor<4>| x.clone().narrow(1, 0, prefill);
            let (first, mut state) = kda(
                part(&x.q),
                part(&x.k),
                part(&x.v),
                part(&x.g),
                x.beta.clone().narrow(1, 0, prefill),
                Some(KdaState::from_key_value(x.state.clone())),
                &engine.options(),
            );
            let mut outputs = vec![first];
            for t in prefill..33 {
                let (o, next) = step(&engine, &x, t, state);
                outputs.push(o);
                state = next;
            }
            let what = format!("{}, {prefill} tokens first", engine.name);
            assert_close(&what, &values(Tensor::cat(outputs, 1)), &values(want), 1e-5);
            assert_close(
                &what,
                &values(state.into_key_value()),
                &values(want_state),
                1e-5,
            );
        }
    }
}

/// A fork shares memory until one side moves on; the other must not notice.
#[test]
fn a_fork_and_a_snapshot_do_not_move_with_the_original() {
    for engine in engines() {
        let x = tensors(&engine, 4, 16);
        let start = KdaState::from_key_value(x.state.clone() * 1.0);
        let snapshot = start.clone();
        let before = values(snapshot.clone().into_key_value());
        let (_, first) = step(&engine, &x, 0, start);
        assert_eq!(
            values(snapshot.clone().into_key_value()),
            before,
            "{}",
            engine.name
        );
        let fork = first.clone();
        let (_, left) = step(&engine, &x, 1, first);
        let (_, right) = step(&engine, &x, 2, fork.clone());
        let (_, again) = step(&engine, &x, 1, fork);
        let [left, right, again] = [left, right, again].map(|s| values(s.into_key_value()));
        assert_eq!(left, again, "{}", engine.name);
        assert_ne!(left, right, "{}", engine.name);
    }
}

#[test]
fn an_accepted_number_beyond_the_tokens_is_refused() {
    let engine = &engines()[0];
    let x = tensors(engine, 3, 16);
    let state = Some(KdaState::from_key_value(x.state));
    let (_, snapshots) = kda_verify(x.q, x.k, x.v, x.g, x.beta, state, &engine.options());
    for (accepted, message) in [
        (
            vec![1, 4],
            "4 tokens of sequence 1 were accepted, but it has 3",
        ),
        (
            vec![1],
            "1 numbers of accepted tokens were given for 2 sequences",
        ),
    ] {
        let call = std::panic::AssertUnwindSafe(|| snapshots.accept(&accepted));
        let error = std::panic::catch_unwind(call).unwrap_err();
        assert!(error.downcast_ref::<String>().unwrap().contains(message));
    }
}

fn layer_state() -> (KimiDeltaAttentionState, Vec<u8>) {
    let device = Device::flex();
    let layer = KimiDeltaAttentionConfig::new(12, 2, 4)
        .with_value_head_dim(Some(6))
        .init(&device);
    let x = Tensor::random([2, 7, 12], burn::tensor::Distribution::Default, &device);
    let (_, state) = layer.forward_with_state(x, None);
    let bytes = state.to_bytes();
    (state, bytes)
}

#[test]
fn a_state_comes_back_from_its_bytes() {
    let (state, bytes) = layer_state();
    let back = KimiDeltaAttentionState::from_bytes(&bytes, &Device::flex()).unwrap();
    let memory = |s: &KimiDeltaAttentionState| s.memory.clone().into_key_value().into_data();
    assert_eq!(memory(&back), memory(&state));
    for (back, window) in back.windows.iter().zip(&state.windows) {
        assert_eq!(back.to_data(), window.to_data());
    }
    let alone = KdaState::from_bytes(&state.memory.to_bytes(), &Device::flex()).unwrap();
    assert_eq!(alone.into_key_value().into_data(), memory(&state));
}

#[test]
fn foreign_and_broken_bytes_are_refused() {
    let device = Device::flex();
    let (state, bytes) = layer_state();
    for length in [0, 7, 8, 100, bytes.len() - 1] {
        let error = KimiDeltaAttentionState::from_bytes(&bytes[..length], &device).unwrap_err();
        assert!(matches!(error, StateBytesError::Unreadable(_)), "{error}");
    }
    let edited = |from: &str, to: &str| {
        assert_eq!(from.len(), to.len());
        let at = bytes.windows(from.len()).position(|x| x == from.as_bytes());
        let at = at.expect("the header has it");
        let mut edited = bytes.clone();
        edited[at..at + to.len()].copy_from_slice(to.as_bytes());
        KimiDeltaAttentionState::from_bytes(&edited, &device).unwrap_err()
    };
    let error = edited(r#""version":"1""#, r#""version":"2""#);
    assert!(error.to_string().contains("`version`"), "{error}");
    let error = edited("key, value", "value, key");
    assert!(error.to_string().contains("`layout`"), "{error}");
    let error = edited("\"k_window\"", "\"x_window\"");
    assert!(
        error.to_string().contains("`k_window` is missing"),
        "{error}"
    );
    let other = safetensors::serialize(Vec::<(&str, safetensors::tensor::TensorView)>::new(), None);
    let error = KdaState::from_bytes(&other.unwrap(), &device).unwrap_err();
    assert!(error.to_string().contains("`format`"), "{error}");
    let memory_only = state.memory.to_bytes();
    let error = KimiDeltaAttentionState::from_bytes(&memory_only, &device).unwrap_err();
    assert!(matches!(error, StateBytesError::Missing { .. }), "{error}");
}
