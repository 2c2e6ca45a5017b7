//! A test: the state is updated where it lies if nobody else holds it.

use std::sync::Arc;

use burn::backend::Flex;
use burn::tensor::{DType, Shape, TensorData};
use burn_flex::FlexTensor;

use crate::kda::definition::{KdaOps, KdaTensors};
use crate::kda::plan::{KdaPlan, Preparation, Sequence};

const SHAPE: [usize; 4] = [2, 1, 4, 8];

fn tensor(shape: &[usize], value: f32) -> FlexTensor {
    let numbers = vec![value; shape.iter().product()];
    FlexTensor::from_data(TensorData::new(numbers, Shape::from(shape.to_vec())))
}

/// A decode step of the sequence in slot 1 of two.
fn step(state: FlexTensor) -> FlexTensor {
    let tensors = KdaTensors::<Flex> {
        q: tensor(&[1, 1, 1, 4], 0.5),
        k: tensor(&[1, 1, 1, 4], 0.5),
        v: tensor(&[1, 1, 1, 8], 1.0),
        g: tensor(&[1, 1, 1, 4], -0.1),
        beta: tensor(&[1, 1, 1], 1.0),
        a_log: tensor(&[1], 0.0),
        dt_bias: tensor(&[1, 4], 0.0),
        state,
    };
    let plan = KdaPlan {
        scale: 1.0,
        chunk_size: 16,
        preparation: Preparation::None,
        sequences: vec![Sequence {
            row: 0,
            start: 0,
            len: 1,
            slot: 1,
        }],
    };
    Flex::kda_forward(tensors, Arc::new(plan)).1
}

fn numbers(state: &FlexTensor) -> &[f32] {
    assert_eq!(state.dtype(), DType::F32);
    state.as_slice().expect("contiguous")
}

#[test]
fn a_state_that_nobody_else_holds_is_updated_where_it_lies() {
    let state = tensor(&SHAPE, 2.0);
    let place = numbers(&state).as_ptr();
    let after = step(state);
    assert_eq!(numbers(&after).as_ptr(), place);
    assert!(numbers(&after)[..32].iter().all(|&x| x == 2.0));
    assert!(numbers(&after)[32..].iter().all(|&x| x != 2.0));
}

#[test]
fn a_state_that_somebody_else_holds_is_copied_first() {
    let state = tensor(&SHAPE, 2.0);
    let after = step(state.clone());
    assert_ne!(numbers(&after).as_ptr(), numbers(&state).as_ptr());
    assert!(numbers(&state).iter().all(|&x| x == 2.0));
}
