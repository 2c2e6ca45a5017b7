//! Tests of what the device that runs them would not ask for: fewer tensors a kernel, and memory for fewer chunks. Neither changes a bit of
//! a result. And that a state is updated where it lies.

use std::sync::Arc;

use burn::backend::ops::FloatTensorOps;
use burn::backend::tensor::FloatTensor;
use burn::tensor::{DType, Shape, TensorData, read_sync};
use burn_cubecl::tensor::CubeTensor;
use burn_cubecl::{CubeBackend, CubeDevice};

use super::inputs::Inputs;
use super::plan::Limits;
use super::{backward, forward};
use crate::kda::ForgetGate;
use crate::kda::definition::KdaTensors;
use crate::kda::plan::{KdaPlan, Preparation, Sequence};

const TOKENS: usize = 90;
const HEADS: usize = 1;
const VALUE_HEADS: usize = 2;
const KEY_DIM: usize = 6;
const VALUE_DIM: usize = 5;

/// Numbers between `low` and `high`, other ones for each seed.
fn numbers(shape: &[usize], seed: usize, low: f32, high: f32) -> CubeTensor {
    let numbers = (0..shape.iter().product()).map(|index: usize| {
        let mixed = (index * 7919 + seed * 104_729) % 1009;
        low + (high - low) * mixed as f32 / 1008.0
    });
    let data = TensorData::new(numbers.collect::<Vec<f32>>(), Shape::from(shape.to_vec()));
    CubeBackend::float_from_data(data, &CubeDevice::default())
}

fn bits(tensor: CubeTensor) -> Vec<u32> {
    assert_eq!(tensor.dtype, DType::F32);
    let data = read_sync(CubeBackend::float_into_data(tensor)).expect("the device answers");
    let numbers: Vec<f32> = data.try_to_vec().expect("f32");
    assert!(numbers.iter().all(|x| x.is_finite()));
    numbers.into_iter().map(f32::to_bits).collect()
}

/// A slot for each sequence, and one more.
fn state(sequences: usize) -> CubeTensor {
    let shape = [sequences + 1, VALUE_HEADS, KEY_DIM, VALUE_DIM];
    numbers(&shape, 8, -1.0, 1.0)
}

/// Raw projections of one row of `tokens`, whose sequences have these lengths.
fn inputs(lengths: &[usize], limits: impl Fn(Limits) -> Limits) -> Inputs {
    let tokens = lengths.iter().sum();
    let keys = [1, tokens, HEADS, KEY_DIM];
    let tensors = KdaTensors::<CubeBackend> {
        q: numbers(&keys, 1, -1.0, 1.0),
        k: numbers(&keys, 2, -1.0, 1.0),
        v: numbers(&[1, tokens, VALUE_HEADS, VALUE_DIM], 3, -1.0, 1.0),
        g: numbers(&[1, tokens, VALUE_HEADS, KEY_DIM], 4, -3.0, 1.0),
        beta: numbers(&[1, tokens, VALUE_HEADS], 5, -2.0, 2.0),
        a_log: numbers(&[VALUE_HEADS], 6, -1.0, 1.0),
        dt_bias: numbers(&[VALUE_HEADS, KEY_DIM], 7, -1.0, 1.0),
        state: state(lengths.len()),
    };
    let mut start = 0;
    let sequences = lengths.iter().enumerate().map(|(index, &len)| {
        let sequence = Sequence {
            row: 0,
            start,
            len,
            // From the last slot to the second.
            slot: lengths.len() - index,
        };
        start += len;
        sequence
    });
    let plan = KdaPlan {
        scale: 0.5,
        chunk_size: 16,
        preparation: Preparation::Projections {
            gate: ForgetGate::Softplus,
            write_scale: 1.0,
        },
        sequences: sequences.collect(),
    };
    let (mut inputs, _) = Inputs::new(tensors, Arc::new(plan));
    inputs.limits = limits(inputs.limits);
    inputs
}

/// Outputs, states and all gradients.
fn results(lengths: &[usize], limits: impl Fn(Limits) -> Limits) -> Vec<Vec<u32>> {
    let inputs = inputs(lengths, limits);
    let (o, after) = forward::forward(&inputs, state(lengths.len()));
    let o_gradient: FloatTensor<CubeBackend> = numbers(
        &[1, lengths.iter().sum(), VALUE_HEADS, VALUE_DIM],
        9,
        -1.0,
        1.0,
    );
    let state_gradient = numbers(
        &[lengths.len() + 1, VALUE_HEADS, KEY_DIM, VALUE_DIM],
        10,
        -1.0,
        1.0,
    );
    let gradients = backward::backward(&inputs, state(lengths.len()), o_gradient, state_gradient);
    let KdaTensors {
        q,
        k,
        v,
        g,
        beta,
        a_log,
        dt_bias,
        state,
    } = gradients;
    [o, after, q, k, v, g, beta, a_log, dt_bias, state]
        .map(bits)
        .to_vec()
}

#[test]
fn memory_for_few_chunks_gives_the_same_bits_in_many_windows() {
    // The long one among short ones has windows of its own.
    for lengths in [&[TOKENS][..], &[3, 0, TOKENS - 20, 16, 1]] {
        let expected = results(lengths, |limits| limits);
        // So little that a window has one chunk, and then a few.
        for scratch_bytes in [4, 20_000] {
            // So many sequences at once that one batch has all, and so few that several have.
            for multiprocessors in [32, 1] {
                let found = results(lengths, |limits| Limits {
                    scratch_bytes,
                    multiprocessors,
                    ..limits
                });
                assert!(found == expected, "{lengths:?}, {scratch_bytes} bytes");
            }
        }
    }
}

#[test]
fn a_step_has_the_same_bits_where_a_kernel_may_take_few_tensors() {
    let lengths = [1; 5];
    let expected = results(&lengths, |limits| limits);
    let found = results(&lengths, |limits| Limits {
        bindings: 8,
        ..limits
    });
    assert!(found == expected);
}

#[test]
fn a_state_that_nobody_else_holds_is_updated_where_it_lies() {
    for lengths in [&[1, 1][..], &[20, 3]] {
        let inputs = inputs(lengths, |limits| limits);
        let before = state(2);
        let place = before.handle.memory.descriptor().id;
        let (_, after) = forward::forward(&inputs, before);
        assert_eq!(after.handle.memory.descriptor().id, place);
        let expected = bits(after);

        let before = state(2);
        let held = before.clone();
        let (_, after) = forward::forward(&inputs, before);
        assert_ne!(
            after.handle.memory.descriptor().id,
            held.handle.memory.descriptor().id
        );
        assert_eq!(bits(held), bits(state(2)));
        assert_eq!(bits(after), expected);
    }
}
