//! The kernels for Burn's CPU backend.
//!
//! A task is one head of one sequence, and goes through its chunks one after the other with everything it needs in a workspace of some
//! hundred kilobytes. Vectors are as wide as the machine's, found out when the program runs. Results do not depend on the number of
//! threads, nor on what else is in the batch.

mod backward;
mod chunk;
mod forward;
#[cfg(test)]
mod in_place;
mod pairs;
mod prepare;
mod problem;
mod rows;
mod solve;
mod states;
mod step;

use std::sync::Arc;

use burn::backend::tensor::FloatTensor;
use burn::backend::{Flex, TensorMetadata};
use burn::tensor::Shape;
use burn_flex::FlexTensor;

use super::definition::{KdaOps, KdaTensors};
use super::plan::KdaPlan;
use backward::{Given, Gradients};
use burn_kimi_kernels::cpu::shared::SharedValues;
use burn_kimi_kernels::cpu::tensors::{cast, contiguous, sum_of_parts, values, zeros};
use problem::{Inputs, Problem};
use rows::{Rows, SharedRows};
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
        let (rows, states) = (SharedRows::of(&mut o), SharedValues::of(&mut state));
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
            states: SharedValues::of(&mut state_grad),
            a_log: SharedValues::of(&mut a_log),
            dt_bias: SharedValues::of(&mut dt_bias),
        };
        backward::backward(&problem, given, gradients);
        let [q_type, k_type, v_type, g_type, beta_type] = storage;
        KdaTensors {
            q: cast(q, q_type),
            k: cast(k, k_type),
            v: cast(v, v_type),
            g: cast(g, g_type),
            beta: cast(beta, beta_type),
            a_log: sum_of_parts(values(&a_log), inputs.a_log.shape()),
            dt_bias: sum_of_parts(values(&dt_bias), inputs.dt_bias.shape()),
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
        let keep = Keep::Every(SharedValues::of(&mut snapshots), v[1]);
        step::steps(
            &problem,
            SharedRows::of(&mut o),
            SharedValues::of(&mut state),
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
