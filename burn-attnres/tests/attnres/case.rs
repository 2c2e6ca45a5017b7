//! One read with its inputs, run through the operator.

use burn::tensor::{DType, Device, Tensor};
use burn_attnres::depth_attention_with_weights;

use crate::formula::{Gradients, Read};
use crate::numbers::{numbers, tensor, to_f64};

/// The shape of a read.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Shape {
    pub(crate) n: usize,
    pub(crate) batch: usize,
    pub(crate) tokens: usize,
    pub(crate) d: usize,
}

/// What the operator returned, and the gradients of `sum(h * g) + sum(p * a)`.
pub(crate) struct Outcome {
    pub(crate) output: Vec<f64>,
    pub(crate) weights: Vec<f64>,
    pub(crate) gradients: Gradients,
}

/// Inputs of order 1; queries large enough to make the weights differ clearly.
pub(crate) fn inputs(shape: Shape, seed: u64, eps: f64) -> Read {
    let Shape {
        n,
        batch,
        tokens,
        d,
    } = shape;
    let spread = 3.0 / (d as f64).sqrt();
    Read {
        sources: (0..n as u64)
            .map(|i| numbers(seed + 10 + i, batch * tokens * d))
            .collect(),
        query: scaled(spread, numbers(seed + 1, d)),
        gamma: numbers(seed + 2, d).iter().map(|x| 1.0 + x / 2.0).collect(),
        eps,
    }
}

/// Cotangents of `h` and of the weights.
pub(crate) fn cotangents(shape: Shape, seed: u64) -> (Vec<f64>, Vec<f64>) {
    let tokens = shape.batch * shape.tokens;
    (
        numbers(seed + 3, tokens * shape.d),
        numbers(seed + 4, tokens * shape.n),
    )
}

/// The same numbers after rounding to `dtype`: what the operator is really given.
pub(crate) fn rounded(read: &Read, dtype: DType) -> Read {
    let device = Device::flex();
    let round = |x: &Vec<f64>| to_f64(tensor(x, [x.len()], dtype, &device));
    Read {
        sources: read.sources.iter().map(round).collect(),
        query: round(&read.query),
        gamma: round(&read.gamma),
        eps: read.eps,
    }
}

/// Runs the operator on `device`, which must be an autodiff device, in `dtype`.
pub(crate) fn run(
    read: &Read,
    shape: Shape,
    dtype: DType,
    cotangents: &(Vec<f64>, Vec<f64>),
    device: &Device,
) -> Outcome {
    let Shape {
        n,
        batch,
        tokens,
        d,
    } = shape;
    let sources: Vec<Tensor<3>> = read
        .sources
        .iter()
        .map(|v| tensor(v, [batch, tokens, d], dtype, device).require_grad())
        .collect();
    let query = tensor(&read.query, [d], dtype, device).require_grad();
    let gamma = tensor(&read.gamma, [d], dtype, device).require_grad();

    let (h, p) = depth_attention_with_weights(&sources, query.clone(), gamma.clone(), read.eps);
    let g = tensor(&cotangents.0, [batch, tokens, d], h.dtype(), device);
    let a = tensor(&cotangents.1, [n, batch, tokens], p.dtype(), device);
    let (output, weights) = (to_f64(h.clone()), to_f64(p.clone()));
    let loss = (h * g).sum().cast(DType::F64) + (p * a).sum().cast(DType::F64);
    let gradients = loss.backward();
    Outcome {
        output,
        weights,
        gradients: Gradients {
            sources: sources
                .iter()
                .map(|v| to_f64(v.grad(&gradients).expect("gradient of a source")))
                .collect(),
            query: to_f64(query.grad(&gradients).expect("gradient of the query")),
            gamma: to_f64(gamma.grad(&gradients).expect("gradient of gamma")),
        },
    }
}

fn scaled(factor: f64, values: Vec<f64>) -> Vec<f64> {
    values.into_iter().map(|x| factor * x).collect()
}
