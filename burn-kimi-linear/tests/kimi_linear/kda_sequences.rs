//! Batches of sequences of different lengths, and pools of states.

use burn::tensor::{DType, Tensor};
use burn_kimi_linear::{KdaOptions, KdaState, kda};

use crate::closeness::{assert_close, values};
use crate::engines::{Engine, engines};
use crate::kda_cases::{Gates, Keys, Tensors, inputs};
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

impl Tensors {
    fn cut(&self, row: usize, start: usize, len: usize) -> Self {
        let cut = |x: &Tensor<4>| x.clone().narrow(0, row, 1).narrow(1, start, len);
        Self {
            q: cut(&self.q),
            k: cut(&self.k),
            v: cut(&self.v),
            g: cut(&self.g),
            beta: self.beta.clone().narrow(0, row, 1).narrow(1, start, len),
            state: self.state.clone(),
        }
    }

    fn with_state(self, state: Tensor<4>) -> Self {
        Self { state, ..self }
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
                let what = format!("{}: sequence {n} of {offsets:?}", engine.name);
                let state = all.state.clone().narrow(0, n, 1);
                let got_state = values(states.clone().narrow(0, n, 1));
                if len == 0 {
                    assert_eq!(
                        got_state,
                        values(state),
                        "{what}: an empty one keeps its state"
                    );
                    continue;
                }
                let alone = all.cut(0, start, len).with_state(state);
                let (want_o, want_state) = alone.run(&engine.options());
                let got_o = values(o.clone().narrow(1, start, len));
                if engine.is_kernel() {
                    assert_eq!(got_o, values(want_o), "{what}: output");
                    assert_eq!(got_state, values(want_state), "{what}: state");
                } else {
                    assert_close(&what, &got_o, &values(want_o), 1e-5);
                    assert_close(&what, &got_state, &values(want_state), 1e-5);
                }
            }
        }
    }
}

/// Whatever stands behind a sequence, it is not read: not into outputs, nor states, nor gradients.
#[test]
fn padding_may_be_nan_and_changes_nothing() {
    let lengths = [37, 0, 64];
    for engine in engines() {
        let clean = tensors(&engine, 3, 70, 9);
        let poison = |x: &Tensor<4>| {
            let [_, _, heads, width] = x.dims();
            lengths
                .iter()
                .enumerate()
                .fold(x.clone(), |x, (row, &len)| {
                    let nan = Tensor::full([1, 70 - len, heads, width], f32::NAN, &engine.device);
                    x.slice_assign([row..row + 1, len..70, 0..heads, 0..width], nan)
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
        let results = [clean, poisoned].map(|x| gradients_of(&engine, x, &options));
        for (name, clean, poisoned) in pairs(&results) {
            assert_eq!(clean, poisoned, "{}: {name}", engine.name);
        }
        let [_, q_gradient, ..] = &results[0];
        let behind = q_gradient.1[37 * 12..70 * 12].iter();
        assert!(behind.clone().all(|x| *x == 0.0), "{}", engine.name);
    }
}

type Named = (&'static str, Vec<f64>);

fn pairs(results: &[[Named; 8]; 2]) -> impl Iterator<Item = (&'static str, &[f64], &[f64])> {
    let [a, b] = results;
    a.iter().zip(b).map(|(a, b)| (a.0, &a.1[..], &b.1[..]))
}

/// Output, gradients of all inputs, and the state.
fn gradients_of(engine: &Engine, x: Tensors, options: &KdaOptions) -> [Named; 8] {
    let device = engine.device.clone().autodiff();
    let tracked = |x: Tensor<4>| Tensor::from_data(x.into_data(), &device).require_grad();
    let x = Tensors {
        q: tracked(x.q),
        k: tracked(x.k),
        v: tracked(x.v),
        g: tracked(x.g),
        beta: Tensor::from_data(x.beta.into_data(), &device).require_grad(),
        state: tracked(x.state),
    };
    let (o, state) = x.run(options);
    let grads = (o.clone().square().sum() + state.clone().square().sum()).backward();
    [
        ("o", values(o)),
        ("dq", values(x.q.grad(&grads).unwrap())),
        ("dk", values(x.k.grad(&grads).unwrap())),
        ("dv", values(x.v.grad(&grads).unwrap())),
        ("dg", values(x.g.grad(&grads).unwrap())),
        ("dbeta", values(x.beta.grad(&grads).unwrap())),
        ("dstate", values(x.state.grad(&grads).unwrap())),
        ("state", values(state)),
    ]
}

#[test]
fn gradients_of_packed_sequences_equal_each_alone() {
    let offsets = [0, 17, 17, 50];
    for engine in engines() {
        let all = tensors(&engine, 1, 50, 21).with_state(pool(&engine, 3));
        let options = engine.options().with_cumulative_lengths(offsets);
        let packed = gradients_of(&engine, all.cut(0, 0, 50), &options);
        for n in [0, 2] {
            let (start, len) = (offsets[n], offsets[n + 1] - offsets[n]);
            let state = all.state.clone().narrow(0, n, 1);
            let alone = all.cut(0, start, len).with_state(state);
            let alone = gradients_of(&engine, alone, &engine.options());
            for ((name, packed), (_, alone)) in packed.iter().zip(&alone) {
                let per_sequence = name.contains("state");
                let row = if per_sequence {
                    packed.len() / 3
                } else {
                    packed.len() / 50
                };
                let at = if per_sequence {
                    n * row..(n + 1) * row
                } else {
                    start * row..(start + len) * row
                };
                let what = format!("{}: {name} of sequence {n}", engine.name);
                assert_close(&what, &packed[at], alone, 1e-5);
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
            let (want_o, want) = x.cut_rows().with_state(picked).run(&engine.options());
            assert_close("o", &values(o), &values(want_o), 1e-5);
            for (slot, row) in [(3, 0), (1, 1)] {
                let got = values(after.clone().narrow(0, slot, 1));
                assert_close("state", &got, &values(want.clone().narrow(0, row, 1)), 1e-5);
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

impl Tensors {
    fn cut_rows(&self) -> Self {
        Self {
            q: self.q.clone(),
            k: self.k.clone(),
            v: self.v.clone(),
            g: self.g.clone(),
            beta: self.beta.clone(),
            state: self.state.clone(),
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
