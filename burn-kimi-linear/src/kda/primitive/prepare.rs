use burn::tensor::{DType, Tensor, activation::sigmoid};

use super::Prepared;
use crate::kda::inputs::KdaInputs;
use crate::kda::kda_gate;
use crate::kda::plan::{Preparation, UNIT_LENGTH_EPSILON};

/// From what the caller gave to what the recurrence takes.
pub(super) fn prepare(inputs: KdaInputs) -> Prepared {
    let dtype = inputs.state.dtype();
    let [_, _, heads, _] = inputs.q.dims();
    let [_, _, value_heads, _] = inputs.v.dims();
    let group = value_heads / heads;
    let (q, k) = (inputs.q.cast(dtype), inputs.k.cast(dtype));
    let (q, k, g, beta) = match inputs.plan.preparation {
        Preparation::None => (q, k, inputs.g.cast(dtype), inputs.beta.cast(dtype)),
        Preparation::Projections { gate, write_scale } => {
            let dt_bias = inputs.dt_bias.expect("projections come with dt_bias");
            (
                unit_length(q),
                unit_length(k),
                kda_gate(inputs.g.cast(dtype), inputs.a_log, dt_bias, gate).cast(dtype),
                sigmoid(inputs.beta.cast(dtype)) * write_scale,
            )
        }
    };
    Prepared {
        q: repeat_heads(q * inputs.plan.scale, group),
        k: repeat_heads(k, group),
        v: inputs.v.cast(dtype),
        g,
        beta,
        state: inputs.state,
    }
}

/// `x / sqrt(sum(x^2) + 1e-6)` over the last axis: the epsilon is added to the sum, not to the norm.
fn unit_length(x: Tensor<4>) -> Tensor<4> {
    debug_assert!(matches!(x.dtype(), DType::F32 | DType::F64));
    let length = (x.clone().square().sum_dim(3) + UNIT_LENGTH_EPSILON).sqrt();
    x / length
}

/// Each head `group` times in a row: `[B, T, H, K]` to `[B, T, H * group, K]`.
fn repeat_heads(x: Tensor<4>, group: usize) -> Tensor<4> {
    let [batch, tokens, heads, dim] = x.dims();
    if group == 1 {
        return x;
    }
    x.reshape([batch, tokens, heads, 1, dim])
        .expand([batch, tokens, heads, group, dim])
        .reshape([batch, tokens, heads * group, dim])
}
