//! Gradients against finite differences of the recurrence, over every element of every input: of primitive operations in `f64`, and of every
//! kernel.

use burn::tensor::{DType, Device, Tensor, TensorData};
use burn_kimi_linear::KdaOptions;

use crate::closeness::{assert_close, values};
use crate::engines::kernels;
use crate::kda_cases::{Gates, Keys, Numbers, Tensors, inputs, options};
use crate::kda_oracle::{Dims, Inputs, PART_NAMES, recurrence};

/// Which of the two results the loss looks at.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Loss {
    Output,
    State,
    Both,
}

struct Cotangents {
    o: Vec<f64>,
    state: Vec<f64>,
}

impl Cotangents {
    fn new(dims: Dims, loss: Loss) -> Self {
        let mut numbers = Numbers(99);
        let mut part = |shape: [usize; 4], used: bool| {
            let x = numbers.symmetric(shape.iter().product());
            if used { x } else { vec![0.0; x.len()] }
        };
        Self {
            o: part(dims.values(), loss != Loss::State),
            state: part(dims.state(), loss != Loss::Output),
        }
    }

    fn loss_of_recurrence(&self, inputs: &Inputs) -> f64 {
        let dot = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f64>();
        let out = recurrence(inputs);
        dot(&out.o, &self.o) + dot(&out.state, &self.state)
    }
}

fn gradients(
    inputs: &Inputs,
    cotangents: &Cotangents,
    loss: Loss,
    (device, dtype): (&Device, DType),
    options: &KdaOptions,
) -> [Vec<f64>; 6] {
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
    let (o, state) = x.run(options);
    let weigh = |y: Tensor<4>, weights: &[f64]| {
        let weights = TensorData::new(weights.to_vec(), y.dims());
        (y * Tensor::from_data(weights, (&device, dtype))).sum()
    };
    let total = match loss {
        Loss::Output => weigh(o, &cotangents.o),
        Loss::State => weigh(state, &cotangents.state),
        Loss::Both => weigh(o, &cotangents.o) + weigh(state, &cotangents.state),
    };
    let grads = total.backward();
    fn of<const D: usize>(x: &Tensor<D>, grads: &burn::tensor::Gradients) -> Vec<f64> {
        match x.grad(grads) {
            Some(grad) => values(grad),
            None => vec![0.0; x.shape().num_elements()],
        }
    }
    [
        of(&x.q, &grads),
        of(&x.k, &grads),
        of(&x.v, &grads),
        of(&x.g, &grads),
        of(&x.beta, &grads),
        of(&x.state, &grads),
    ]
}

fn finite_differences(inputs: &Inputs, cotangents: &Cotangents, part: usize) -> Vec<f64> {
    const STEP: f64 = 1e-6;
    let mut moved = inputs.clone();
    (0..inputs.parts[part].len())
        .map(|at| {
            let start = inputs.parts[part][at];
            moved.parts[part][at] = start + STEP;
            let above = cotangents.loss_of_recurrence(&moved);
            moved.parts[part][at] = start - STEP;
            let below = cotangents.loss_of_recurrence(&moved);
            moved.parts[part][at] = start;
            (above - below) / (2.0 * STEP)
        })
        .collect()
}

fn check(inputs: &Inputs, loss: Loss, chunk_size: usize) {
    let cotangents = Cotangents::new(inputs.dims, loss);
    let wanted: Vec<_> = (0..PART_NAMES.len())
        .map(|part| finite_differences(inputs, &cotangents, part))
        .collect();
    let compare = |on: &str, got: [Vec<f64>; 6], tolerance: f64| {
        for ((name, got), want) in PART_NAMES.iter().zip(&got).zip(&wanted) {
            let dims = inputs.dims;
            let what = format!("d{name} of {loss:?}, {dims:?}, chunk {chunk_size} on {on}");
            assert_close(&what, got, want, tolerance);
        }
    };
    let options = options(inputs, chunk_size);
    let exact = (&Device::flex(), DType::F64);
    let exact = gradients(inputs, &cotangents, loss, exact, &options);
    compare("primitive operations", exact, 2e-7);
    for engine in kernels() {
        let options = engine.options().with_chunk_size(chunk_size);
        let options = options.with_scale(inputs.scale);
        let single = (&engine.device, DType::F32);
        let single = gradients(inputs, &cotangents, loss, single, &options);
        compare(engine.name, single, 1e-4);
    }
}

fn small(tokens: usize) -> Dims {
    Dims {
        batch: 2,
        tokens,
        heads: 1,
        group: 2,
        key: 3,
        value: 4,
    }
}

#[test]
fn every_input_matches_finite_differences() {
    for (tokens, chunk_size) in [(1, 16), (5, 2), (9, 4), (21, 8), (21, 16)] {
        let inputs = inputs(
            small(tokens),
            Gates::Random { strength: 1.0 },
            Keys::Random,
            1.0,
            31,
        );
        check(&inputs, Loss::Both, chunk_size);
    }
}

#[test]
fn each_result_alone_is_differentiable() {
    let inputs = inputs(
        small(11),
        Gates::Random { strength: 0.5 },
        Keys::Random,
        1.0,
        37,
    );
    check(&inputs, Loss::Output, 4);
    check(&inputs, Loss::State, 4);
}

#[test]
fn strong_decay_and_open_gates_match_finite_differences() {
    for gates in [
        Gates::Open,
        Gates::Constant(-5.0),
        Gates::Random { strength: 20.0 },
    ] {
        let inputs = inputs(small(18), gates, Keys::Random, 1.0, 41);
        check(&inputs, Loss::Both, 8);
    }
}

#[test]
fn equal_keys_and_full_writes_match_finite_differences() {
    let inputs = inputs(
        small(18),
        Gates::Random { strength: 0.1 },
        Keys::Equal,
        1.9,
        43,
    );
    check(&inputs, Loss::Both, 16);
}

#[test]
fn no_tokens_pass_the_gradient_to_the_state() {
    let inputs = inputs(small(0), Gates::Open, Keys::Random, 1.0, 47);
    let cotangents = Cotangents::new(inputs.dims, Loss::State);
    let rounded: Vec<_> = cotangents.state.iter().map(|x| *x as f32 as f64).collect();
    for engine in kernels() {
        let single = (&engine.device, DType::F32);
        let got = gradients(&inputs, &cotangents, Loss::State, single, &engine.options());
        assert_eq!(got[5], rounded, "{}", engine.name);
    }
    let exact = (&Device::flex(), DType::F64);
    let got = gradients(
        &inputs,
        &cotangents,
        Loss::State,
        exact,
        &options(&inputs, 16),
    );
    assert_eq!(got[5], cotangents.state);
}
