//! Batches of sequences of different lengths, and pools of states.

use std::ops::Range;

use burn::tensor::{DType, Tensor};
use burn_kimi_linear::{KdaOptions, KdaState, kda};

use crate::closeness::{assert_close, values};
use crate::engines::{Engine, engines};
use crate::kda_cases::{Gates, Keys, Results, Tensors, inputs, results};
use crate::kda_oracle::Dims;

const TOKENS: usize = 90;

fn dims(batch: usize, tokens: usize) -> Dims {
    Dims {
        batch,
        tokens,
        heads: 1,
        group: 2,
        key: 12,
        value: 20,
    }
}

fn tensors(engine: &Engine, batch: usize, tokens: usize, seed: u64) -> Tensors {
    let gates = Gates::Random { strength: 1.0 };
    let inputs = inputs(dims(batch, tokens), gates, Keys::Random, 1.0, seed);
    Tensors::new(&inputs, &engine.device, DType::F32)
}

fn pool(engine: &Engine, slots: usize) -> Tensor<4> {
    tensors(engine, slots, 0, 77).state
}

/// Compares a sequence among others with the same alone: bit for bit, but for primitive operations.
fn assert_same(engine: &Engine, what: &str, got: &[f64], want: &[f64]) {
    if engine.is_kernel() {
        assert!(got == want, "{}: {what}", engine.name);
    } else {
        assert_close(&format!("{}: {what}", engine.name), got, want, 1e-5);
    }
}

/// Where a sequence is among others.
struct Place {
    /// Its state, of how many.
    slot: usize,
    slots: usize,
    /// Its tokens, of how many in the whole batch.
    tokens: Range<usize>,
    all_tokens: usize,
}

impl Place {
    /// Compares the sequence's part of all results with those of the sequence alone.
    fn assert_equals_alone(&self, engine: &Engine, together: &Results, alone: &Results) {
        for ((name, together), (_, alone)) in together.iter().zip(alone) {
            let part = if name.contains("state") {
                let width = together.len() / self.slots;
                self.slot * width..(self.slot + 1) * width
            } else {
                let width = together.len() / self.all_tokens;
                self.tokens.start * width..self.tokens.end * width
            };
            let what = format!("{name} of sequence {}", self.slot);
            assert_same(engine, &what, &together[part], alone);
        }
    }
}

#[test]
fn packed_sequences_equal_each_alone() {
    let lengths: [&[usize]; 4] = [
        &[0, 0, 15, 15, 33, 90, 90],
        &[0, 90],
        &[0, 31, 32, 64, 80],
        &[0, 1, 2, 4, 90],
    ];
    for engine in engines() {
        for offsets in lengths {
            let count = offsets.len() - 1;
            let all = tensors(&engine, 1, TOKENS, 5).with_state(pool(&engine, count));
            let options = engine.options().with_cumulative_lengths(offsets);
            let (o, states) = all.run(&options);
            for n in 0..count {
                let (start, len) = (offsets[n], offsets[n + 1] - offsets[n]);
                let what = format!("sequence {n} of {offsets:?}");
                let state = all.state.clone().narrow(0, n, 1);
                let got_state = values(states.clone().narrow(0, n, 1));
                if len == 0 {
                    let kept = got_state == values(state);
                    assert!(kept, "{}: {what}, an empty one", engine.name);
                    continue;
                }
                let alone = all.cut(0, start, len).with_state(state);
                let (want_o, want_state) = alone.run(&engine.options());
                let got_o = values(o.clone().narrow(1, start, len));
                assert_same(&engine, &what, &got_o, &values(want_o));
                assert_same(&engine, &what, &got_state, &values(want_state));
            }
        }
    }
}

/// Whatever stands behind a sequence, it is not read: not into outputs, nor states, nor gradients. And the sequence is the one it is alone.
#[test]
fn padding_may_be_nan_and_changes_nothing() {
    for engine in engines() {
        assert_padding_is_not_read(&engine, 70, [37, 0, 64]);
    }
}

/// As in serving: a decode step where a sequence has none.
#[test]
fn padding_of_a_step_may_be_nan_and_changes_nothing() {
    for engine in engines() {
        assert_padding_is_not_read(&engine, 1, [1, 0, 1]);
    }
}

fn assert_padding_is_not_read(engine: &Engine, tokens: usize, lengths: [usize; 3]) {
    let clean = tensors(engine, 3, tokens, 9);
    let poison = |x: &Tensor<4>| {
        let [_, _, heads, width] = x.dims();
        let padded = lengths.iter().enumerate().filter(|(_, len)| **len < tokens);
        padded.fold(x.clone(), |x, (row, &len)| {
            let padding = [1, tokens - len, heads, width];
            let nan = Tensor::full(padding, f32::NAN, &engine.device);
            x.slice_assign([row..row + 1, len..tokens, 0..heads, 0..width], nan)
        })
    };
    let poisoned = Tensors {
        q: poison(&clean.q),
        k: poison(&clean.k),
        v: poison(&clean.v),
        g: poison(&clean.g),
        beta: poison(&clean.beta.clone().unsqueeze_dim(3)).squeeze_dim(3),
        state: clean.state.clone(),
    };
    let options = engine.options().with_lengths(lengths);
    let together = results(engine, &clean, |x| x.run(&options));
    let poisoned = results(engine, &poisoned, |x| x.run(&options));
    for ((name, clean), (_, poisoned)) in together.iter().zip(&poisoned) {
        assert!(clean == poisoned, "{}: {name}", engine.name);
    }
    for (row, &len) in lengths.iter().enumerate() {
        for (name, values) in together.iter().filter(|(name, _)| !name.contains("state")) {
            let width = values.len() / (3 * tokens);
            let padding = (row * tokens + len) * width..(row + 1) * tokens * width;
            let silent = values[padding].iter().all(|x| *x == 0.0);
            assert!(silent, "{}: {name} behind row {row}", engine.name);
        }
        if len > 0 {
            let alone = clean.row(row).tokens(0, len);
            let alone = results(engine, &alone, |x| x.run(&engine.options()));
            let place = Place {
                slot: row,
                slots: 3,
                tokens: row * tokens..row * tokens + len,
                all_tokens: 3 * tokens,
            };
            place.assert_equals_alone(engine, &together, &alone);
        }
    }
}

#[test]
fn gradients_of_packed_sequences_equal_each_alone() {
    for engine in engines() {
        for offsets in [[0usize, 17, 17, 50], [0, 1, 6, 50]] {
            let all = tensors(&engine, 1, 50, 21).with_state(pool(&engine, 3));
            let options = engine.options().with_cumulative_lengths(offsets);
            let packed = results(&engine, &all, |x| x.run(&options));
            for n in 0..3 {
                let tokens = offsets[n]..offsets[n + 1];
                if tokens.is_empty() {
                    continue;
                }
                let state = all.state.clone().narrow(0, n, 1);
                let alone = all.cut(0, tokens.start, tokens.len()).with_state(state);
                let alone = results(&engine, &alone, |x| x.run(&engine.options()));
                let place = Place {
                    slot: n,
                    slots: 3,
                    tokens,
                    all_tokens: 50,
                };
                place.assert_equals_alone(&engine, &packed, &alone);
            }
        }
    }
}

#[test]
fn slots_of_a_pool_are_picked_and_the_others_stay() {
    for engine in engines() {
        for tokens in [1, 20] {
            let x = tensors(&engine, 2, tokens, 31).with_state(pool(&engine, 5));
            let options = engine.options().with_slots([3, 1]);
            let (o, after) = x.run(&options);
            let picked = Tensor::cat(
                vec![
                    x.state.clone().narrow(0, 3, 1),
                    x.state.clone().narrow(0, 1, 1),
                ],
                0,
            );
            let (want_o, want) = x.clone().with_state(picked).run(&engine.options());
            assert_same(&engine, "o", &values(o), &values(want_o));
            for (slot, row) in [(3, 0), (1, 1)] {
                let got = values(after.clone().narrow(0, slot, 1));
                let want = values(want.clone().narrow(0, row, 1));
                assert_same(&engine, "state", &got, &want);
            }
            for slot in [0, 2, 4] {
                let (before, after) = (x.state.clone(), after.clone());
                assert_eq!(
                    values(after.narrow(0, slot, 1)),
                    values(before.narrow(0, slot, 1)),
                    "{}: slot {slot}",
                    engine.name
                );
            }
        }
    }
}

/// And those of the others are what came for them: nothing was done to their states.
#[test]
fn gradients_of_slots_that_are_picked_equal_each_alone() {
    let (offsets, slots) = ([0usize, 17, 17, 50], [4, 0, 2]);
    for engine in engines() {
        let all = tensors(&engine, 1, 50, 21).with_state(pool(&engine, 6));
        let options = engine
            .options()
            .with_cumulative_lengths(offsets)
            .with_slots(slots);
        let packed = results(&engine, &all, |x| x.run(&options));
        for slot in 0..6 {
            let sequence = slots.iter().position(|&picked| picked == slot);
            let tokens = sequence.map_or(0..0, |n| offsets[n]..offsets[n + 1]);
            let state = all.state.clone().narrow(0, slot, 1);
            if tokens.is_empty() {
                // The loss is a sum of squares.
                let untouched = values(state);
                let doubled: Vec<f64> = untouched.iter().map(|x| 2.0 * x).collect();
                for (name, want) in [("state", untouched), ("dstate", doubled)] {
                    let of_pool = packed.iter().find(|(found, _)| *found == name).unwrap();
                    let width = of_pool.1.len() / 6;
                    let got = &of_pool.1[slot * width..(slot + 1) * width];
                    assert!(got == want, "{}: {name} of slot {slot}", engine.name);
                }
                continue;
            }
            let alone = all.cut(0, tokens.start, tokens.len()).with_state(state);
            let alone = results(&engine, &alone, |x| x.run(&engine.options()));
            let place = Place {
                slot,
                slots: 6,
                tokens,
                all_tokens: 50,
            };
            place.assert_equals_alone(&engine, &packed, &alone);
        }
    }
}

fn refused(options: KdaOptions, slots: usize) {
    let engine = &engines()[0];
    let x = tensors(engine, 2, 8, 1).with_state(pool(engine, slots));
    kda(
        x.q,
        x.k,
        x.v,
        x.g,
        x.beta,
        Some(KdaState::from_key_value(x.state)),
        &options,
    );
}

#[test]
#[should_panic(expected = "row 1 has 8 tokens, its length was given as 9")]
fn a_length_beyond_the_row_is_refused() {
    refused(KdaOptions::new().with_lengths([3, 9]), 2);
}

#[test]
#[should_panic(expected = "3 lengths were given for a batch of 2")]
fn a_length_for_every_row_is_wanted() {
    refused(KdaOptions::new().with_lengths([3, 8, 8]), 2);
}

#[test]
#[should_panic(expected = "cumulative lengths need a batch of one row, got 2")]
fn cumulative_lengths_of_several_rows_are_refused() {
    refused(KdaOptions::new().with_cumulative_lengths([0, 8]), 2);
}

#[test]
#[should_panic(expected = "slot 2 was chosen, but the state has 2 slots")]
fn a_slot_beyond_the_pool_is_refused() {
    refused(KdaOptions::new().with_slots([0, 2]), 2);
}

#[test]
#[should_panic(expected = "slot 1 was chosen for two sequences")]
fn a_slot_for_two_sequences_is_refused() {
    refused(KdaOptions::new().with_slots([1, 1]), 2);
}

#[test]
#[should_panic(expected = "2 sequences need a state with as many slots, got 3")]
fn a_pool_without_slots_is_refused() {
    refused(KdaOptions::new(), 3);
}

#[test]
fn bad_cumulative_lengths_are_refused() {
    let engine = &engines()[0];
    for (offsets, message) in [
        (vec![1, 8], "must start at 0"),
        (vec![0, 5, 3], "must start at 0 and not fall"),
        (vec![], "must start at 0"),
        (vec![0, 9], "go to 9, but there are 8 tokens"),
    ] {
        let x = tensors(engine, 1, 8, 1);
        let options = KdaOptions::new().with_cumulative_lengths(offsets.clone());
        let call = std::panic::AssertUnwindSafe(|| kda(x.q, x.k, x.v, x.g, x.beta, None, &options));
        let error = std::panic::catch_unwind(call).unwrap_err();
        let error = error.downcast_ref::<String>().unwrap();
        assert!(error.contains(message), "{offsets:?}: {error}");
    }
}
