//! From checked tensors to the backend's kernels, and back.

use std::sync::Arc;

use burn::backend::Dispatch;
use burn::tensor::{DType, Tensor};

use super::definition::{KdaOps, KdaTensors};
use super::inputs::KdaInputs;
use super::plan::{KdaPlan, Preparation};

/// The output and the states.
pub(super) fn forward(inputs: KdaInputs) -> (Tensor<4>, Tensor<4>) {
    let (tensors, plan) = lower(inputs);
    let (o, state) = Dispatch::kda_forward(tensors, plan);
    (Tensor::from_dispatch(o), Tensor::from_dispatch(state))
}

/// The output, and the state after every token, `[B, T, HV, K, V]`.
pub(super) fn snapshots(inputs: KdaInputs) -> (Tensor<4>, Tensor<5>) {
    let (tensors, plan) = lower(inputs);
    let (o, states) = Dispatch::kda_snapshots(tensors, plan);
    (Tensor::from_dispatch(o), Tensor::from_dispatch(states))
}

fn lower(inputs: KdaInputs) -> (KdaTensors<Dispatch>, Arc<KdaPlan>) {
    let [_, _, value_heads, key_dim] = inputs.g.dims();
    let device = inputs.v.device();
    // Where nothing is prepared nothing reads these, so nothing is written to them either: on a GPU that would be two launches more.
    let unread = inputs.plan.preparation == Preparation::None;
    let a_log = match inputs.a_log {
        Some(a_log) => a_log.cast(DType::F32),
        None if unread => Tensor::empty([value_heads], (&device, DType::F32)),
        // The rate is its exponential.
        None => Tensor::zeros([value_heads], (&device, DType::F32)),
    };
    let dt_bias = match inputs.dt_bias {
        Some(dt_bias) => dt_bias.cast(DType::F32),
        None if unread => Tensor::empty([value_heads, key_dim], (&device, DType::F32)),
        None => Tensor::zeros([value_heads, key_dim], (&device, DType::F32)),
    };
    let tensors = KdaTensors {
        q: inputs.q.into_dispatch(),
        k: inputs.k.into_dispatch(),
        v: inputs.v.into_dispatch(),
        g: inputs.g.into_dispatch(),
        beta: inputs.beta.into_dispatch(),
        a_log: a_log.into_dispatch(),
        dt_bias: dt_bias.into_dispatch(),
        state: inputs.state.into_dispatch(),
    };
    (tensors, Arc::new(inputs.plan))
}
