//! The kernels for Burn's CPU backend.
//!
//! A task is one head of one sequence, and goes through its chunks one after the other with everything it needs in a workspace of some
//! hundred kilobytes. Vectors are as wide as the machine's, found out when the program runs. Results do not depend on the number of
//! threads, nor on what else is in the batch.

mod backward;
mod chunk;
mod forward;
mod lanes;
mod pairs;
mod prepare;
mod problem;
mod product;
mod rows;
mod solve;
mod states;
mod step;
mod threads;
mod tile;

use std::sync::Arc;

use burn::backend::ops::FloatTensorOps;
use burn::backend::tensor::FloatTensor;
use burn::backend::{Flex, TensorMetadata};
use burn::tensor::{DType, FloatDType, Shape};
use burn_flex::FlexTensor;

use super::definition::{KdaOps, KdaTensors};
use super::plan::KdaPlan;
use backward::{Given, Gradients};
use problem::{Inputs, Problem, values};
use rows::{Rows, SharedRows};
use states::SharedStates;
use step::Keep;

impl KdaOps for Flex {
    fn kda_forward(
        tensors: KdaTensors<Self>,
        plan: Arc<KdaPlan>,
    ) -> (FloatTensor<Self>, FloatTensor<Self>) {
        let storage = tensors.v.dtype();
        let (inputs, mut state) = lower(tensors);
        let problem = Problem::new(&inputs, &plan);
        let mut o = zeros(inputs.v.shape());
        let (rows, states) = (SharedRows::of(&mut o), SharedStates::of(&mut state));
        if plan.is_step() {
            step::steps(&problem, rows, states, Keep::Last);
        } else {
            forward::forward(&problem, rows, states);
        }
        (cast(o, storage), state)
    }

    fn kda_backward(
        tensors: KdaTensors<Self>,
        o_grad: FloatTensor<Self>,
        state_grad: FloatTensor<Self>,
        plan: Arc<KdaPlan>,
    ) -> KdaTensors<Self> {
        let storage = [
            &tensors.q,
            &tensors.k,
            &tensors.v,
            &tensors.g,
            &tensors.beta,
        ]
        .map(FlexTensor::dtype);
        let (inputs, state) = lower(tensors);
        let o_grad = contiguous(o_grad);
        let mut state_grad = contiguous(state_grad);
        let problem = Problem::new(&inputs, &plan);
        let [mut q, mut k, mut v, mut g, mut beta] =
            [&inputs.q, &inputs.k, &inputs.v, &inputs.g, &inputs.beta].map(|x| zeros(x.shape()));
        let by_sequence = |like: &FlexTensor| {
            let mut axes = vec![plan.sequences.len()];
            axes.extend(like.shape().iter());
            zeros(Shape::from(axes))
        };
        let (mut a_log, mut dt_bias) = (by_sequence(&inputs.a_log), by_sequence(&inputs.dt_bias));
        let given = Given {
            states: values(&state),
            o: Rows::of(&o_grad),
        };
        let gradients = Gradients {
            q: SharedRows::of(&mut q),
            k: SharedRows::of(&mut k),
            v: SharedRows::of(&mut v),
            g: SharedRows::of(&mut g),
            beta: SharedRows::of(&mut beta),
            states: SharedStates::of(&mut state_grad),
            a_log: SharedStates::of(&mut a_log),
            dt_bias: SharedStates::of(&mut dt_bias),
        };
        backward::backward(&problem, given, gradients);
        let [q_type, k_type, v_type, g_type, beta_type] = storage;
        KdaTensors {
            q: cast(q, q_type),
            k: cast(k, k_type),
            v: cast(v, v_type),
            g: cast(g, g_type),
            beta: cast(beta, beta_type),
            a_log: sum_of_sequences(&a_log, &inputs.a_log),
            dt_bias: sum_of_sequences(&dt_bias, &inputs.dt_bias),
            state: state_grad,
        }
    }

    fn kda_snapshots(
        tensors: KdaTensors<Self>,
        plan: Arc<KdaPlan>,
    ) -> (FloatTensor<Self>, FloatTensor<Self>) {
        let storage = tensors.v.dtype();
        let (inputs, mut state) = lower(tensors);
        let problem = Problem::new(&inputs, &plan);
        let (v, s) = (inputs.v.shape(), state.shape());
        let mut o = zeros(v.clone());
        let mut snapshots = zeros(Shape::from(vec![v[0], v[1], s[1], s[2], s[3]]));
        let keep = Keep::Every(SharedStates::of(&mut snapshots), v[1]);
        step::steps(
            &problem,
            SharedRows::of(&mut o),
            SharedStates::of(&mut state),
            keep,
        );
        (cast(o, storage), snapshots)
    }
}

/// The inputs as contiguous `f32`, and the states, not copied if nobody else holds them.
fn lower(tensors: KdaTensors<Flex>) -> (Inputs, FlexTensor) {
    let KdaTensors {
        q,
        k,
        v,
        g,
        beta,
        a_log,
        dt_bias,
        state,
    } = tensors;
    let inputs = Inputs {
        q: contiguous(q),
        k: contiguous(k),
        v: contiguous(v),
        g: contiguous(g),
        beta: contiguous(beta),
        a_log: contiguous(a_log),
        dt_bias: contiguous(dt_bias),
    };
    (inputs, contiguous(state))
}

/// As contiguous `f32` that fills its storage.
fn contiguous(x: FlexTensor) -> FlexTensor {
    let x = match x.dtype() {
        DType::F32 => x,
        _ => Flex::float_cast(x, FloatDType::F32),
    };
    let whole = x.layout().start_offset() == 0
        && x.is_contiguous()
        && x.bytes().len() == x.layout().num_elements() * size_of::<f32>();
    match whole {
        true => x,
        false => x.to_contiguous(),
    }
}

fn cast(x: FlexTensor, dtype: DType) -> FlexTensor {
    match dtype {
        DType::F32 => x,
        _ => Flex::float_cast(x, dtype.into()),
    }
}

fn zeros(shape: Shape) -> FlexTensor {
    FlexTensor::zeros(shape, DType::F32)
}

/// The sum over the first axis, in order.
fn sum_of_sequences(by_sequence: &FlexTensor, like: &FlexTensor) -> FlexTensor {
    let mut sum = zeros(like.shape());
    let total = sum.storage_mut::<f32>();
    for part in values(by_sequence).chunks_exact(total.len()) {
        total
            .iter_mut()
            .zip(part)
            .for_each(|(total, part)| *total += part);
    }
    sum
}
