//! The functions that prepare one number: forget gate and write strength, and their derivatives.
//!
//! They are computed where their input is loaded and have no memory of their own: an exponential for the sigmoid and the gate with a bound, an
//! exponential and a logarithm for softplus. [`join`] alone is a kernel: `HV (1 + K)` numbers read and written once a call.

use burn_cubecl::tensor::CubeTensor;
use cubecl::prelude::*;

use super::inputs::Inputs;
use crate::kda::ForgetGate;
use crate::kda::plan::Preparation;

/// What is done to the inputs, as far as it decides which code a kernel has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Form {
    /// Nothing.
    Prepared,
    /// Unit length, sigmoid, and the gate without a bound.
    Softplus,
    /// Unit length, sigmoid, and the gate with one.
    LowerBound,
}

/// The form, and the numbers that belong to it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Preparing {
    pub(super) form: Form,
    /// Of the gate, 0 where it has none.
    pub(super) bound: f32,
    /// Multiplies the sigmoid of the write strength.
    pub(super) write_scale: f32,
}

impl From<Preparation> for Preparing {
    fn from(preparation: Preparation) -> Self {
        match preparation {
            Preparation::None => Self {
                form: Form::Prepared,
                bound: 0.0,
                write_scale: 1.0,
            },
            Preparation::Projections { gate, write_scale } => {
                let (form, bound) = match gate {
                    ForgetGate::Softplus => (Form::Softplus, 0.0),
                    ForgetGate::LowerBound(bound) => (Form::LowerBound, bound as f32),
                };
                Self {
                    form,
                    bound,
                    write_scale: write_scale as f32,
                }
            }
        }
    }
}

/// Below this `log(1 + e)` loses digits of `e`, and four terms of its series do not.
const SERIES_BELOW: f32 = 0.01;
const THIRD: f32 = 1.0 / 3.0;

/// `log(1 + exp(x))`, as `max(x, 0) + log(1 + exp(-|x|))`.
#[cube]
fn softplus(x: f32) -> f32 {
    let e = (-x.abs()).exp();
    let series = e * (1.0 - e * (0.5 - e * (THIRD - e * 0.25)));
    let curved = select(e < SERIES_BELOW, series, (1.0 + e).ln());
    select(x > 0.0, x, 0.0) + curved
}

/// Without the exponential of a positive number.
#[cube]
pub(super) fn sigmoid(x: f32) -> f32 {
    let e = (-x.abs()).exp();
    let whole = 1.0 / (1.0 + e);
    select(x < 0.0, e * whole, whole)
}

/// The logarithm of the decay; `rate` is `exp(A_log)`.
#[cube]
pub(super) fn log_decay(x: f32, rate: f32, bias: f32, bound: f32, #[comptime] form: Form) -> f32 {
    if comptime!(form == Form::Softplus) {
        -rate * softplus(x + bias)
    } else if comptime!(form == Form::LowerBound) {
        bound * sigmoid(rate * (x + bias))
    } else {
        x
    }
}

/// The gradient of the projection, from that of the logarithm of the decay.
#[cube]
pub(super) fn log_decay_gradient(
    x: f32,
    rate: f32,
    bias: f32,
    bound: f32,
    gradient: f32,
    #[comptime] form: Form,
) -> f32 {
    if comptime!(form == Form::Softplus) {
        -rate * sigmoid(x + bias) * gradient
    } else if comptime!(form == Form::LowerBound) {
        let share = sigmoid(rate * (x + bias));
        // The other share, `1 - share`, without its cancellation.
        let rest = sigmoid(-rate * (x + bias));
        bound * share * rest * rate * gradient
    } else {
        gradient
    }
}

/// What the token adds to the gradient of `A_log`, from the gradients of the logarithm of the decay and of the projection.
#[cube]
pub(super) fn a_log_gradient(
    x: f32,
    rate: f32,
    bias: f32,
    gradient: f32,
    projection_gradient: f32,
    #[comptime] form: Form,
) -> f32 {
    if comptime!(form == Form::Softplus) {
        -rate * softplus(x + bias) * gradient
    } else {
        projection_gradient * (x + bias)
    }
}

/// Units that pack the rows of the gate's parameters.
const UNITS: usize = 64;

/// One cube a value head.
#[cube(launch_unchecked)]
fn join(a_log: &[f32], dt_bias: &[f32], gates: &mut [f32], key_dim: usize) {
    let head = CUBE_POS_X as usize;
    if UNIT_POS_X == 0 {
        gates[head * (key_dim + 1)] = a_log[head];
    }
    for column in range_stepped(UNIT_POS_X as usize, key_dim, UNITS) {
        gates[head * (key_dim + 1) + 1 + column] = dt_bias[head * key_dim + column];
    }
}

/// `a_log` and `dt_bias` in one tensor, `[HV, 1 + K]`: WebGPU promises room for so few tensors that [`super::prepare`] has none for both.
pub(super) fn pack(inputs: &Inputs) -> CubeTensor {
    if inputs.preparing.form == Form::Prepared {
        return inputs.a_log.clone();
    }
    let sizes = inputs.sizes;
    let gates = inputs.scratch(sizes.value_heads * (1 + sizes.key_dim));
    unsafe {
        join::launch_unchecked(
            inputs.client(),
            CubeCount::Static(sizes.value_heads as u32, 1, 1),
            CubeDim::new_1d(UNITS as u32),
            inputs.a_log.clone().into_buffer_arg(),
            inputs.dt_bias.clone().into_buffer_arg(),
            gates.clone().into_buffer_arg(),
            sizes.key_dim,
        )
    };
    gates
}
