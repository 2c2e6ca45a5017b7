//! From the rows of the inputs to what the recurrence takes, and the chain rule back.
//!
//! Exponentials and their like, dozens of operations a number, on rows that were just copied into the workspace: `3 K` numbers a token and head, read once.

use macerator::Simd;

use crate::kda::ForgetGate;
use crate::kda::plan::{Preparation, UNIT_LENGTH_EPSILON};
use burn_kimi_kernels::cpu::lanes::{dot, exp, load, registers, sigmoid, softplus, splat, store};

/// Brings a padded row to unit length and returns the factor that did it.
#[inline(always)]
pub(super) fn unit_length<S: Simd>(row: &mut [f32]) -> f32 {
    let factor = (dot::<S>(row, row) + UNIT_LENGTH_EPSILON as f32)
        .sqrt()
        .recip();
    scale::<S>(row, factor);
    factor
}

/// The gradient of [`unit_length`] in place of the result's: `factor (d - y <y, d>)`, with `y` the unit row.
#[inline(always)]
pub(super) fn unit_length_backward<S: Simd>(gradient: &mut [f32], unit: &[f32], factor: f32) {
    let along = splat::<S>(-dot::<S>(unit, gradient));
    for at in registers::<S>(gradient.len()) {
        let across = load::<S>(unit, at).mul_add(along, load(gradient, at));
        store(gradient, at, across * splat(factor));
    }
}

#[inline(always)]
pub(super) fn scale<S: Simd>(row: &mut [f32], factor: f32) {
    for at in registers::<S>(row.len()) {
        store(row, at, load::<S>(row, at) * splat(factor));
    }
}

/// The forget gate of one head: what turns a row of inputs into a row of decays.
pub(super) struct Gate<'a> {
    preparation: Preparation,
    /// `exp(A_log)`.
    rate: f32,
    /// By channel, padded.
    bias: &'a [f32],
}

impl<'a> Gate<'a> {
    pub(super) fn new(preparation: Preparation, a_log: f32, bias: &'a [f32]) -> Self {
        Self {
            preparation,
            rate: a_log.exp(),
            bias,
        }
    }

    /// The decay of each channel, `exp(g)`, in place of the inputs.
    #[inline(always)]
    pub(super) fn decay<S: Simd>(&self, row: &mut [f32]) {
        for at in registers::<S>(row.len()) {
            let x = load::<S>(row, at);
            let g = match self.preparation {
                Preparation::None => x,
                Preparation::Projections { gate, .. } => {
                    let x = x + load(self.bias, at);
                    match gate {
                        ForgetGate::Softplus => softplus(x) * splat(-self.rate),
                        ForgetGate::LowerBound(bound) => {
                            sigmoid(x * splat(self.rate)) * splat(bound as f32)
                        }
                    }
                }
            };
            store(row, at, exp(g));
        }
    }

    /// From the inputs of a row and the gradient of its log decays: the gradient of the inputs in place of the latter, and
    /// the sum of what belongs to `A_log`.
    #[inline(always)]
    pub(super) fn backward<S: Simd>(&self, inputs: &[f32], gradient: &mut [f32]) -> f32 {
        let Preparation::Projections { gate, .. } = self.preparation else {
            return 0.0;
        };
        let rate = splat::<S>(self.rate);
        let mut rate_gradient = splat::<S>(0.0);
        for at in registers::<S>(gradient.len()) {
            let x = load::<S>(inputs, at) + load(self.bias, at);
            let d = load::<S>(gradient, at);
            let (dx, da) = match gate {
                ForgetGate::Softplus => {
                    let d = d * (splat(0.0) - rate);
                    (d * sigmoid(x), d * softplus(x))
                }
                ForgetGate::LowerBound(bound) => {
                    let opening = sigmoid(x * rate);
                    let closing = sigmoid(splat(0.0) - x * rate);
                    let dx = d * splat(bound as f32) * opening * closing * rate;
                    (dx, dx * x)
                }
            };
            store(gradient, at, dx);
            rate_gradient += da;
        }
        rate_gradient.reduce_add()
    }
}

/// The write strength from the input.
#[inline(always)]
pub(super) fn write_strength(preparation: Preparation, x: f32) -> f32 {
    match preparation {
        Preparation::None => x,
        Preparation::Projections { write_scale, .. } => write_scale as f32 * logistic(x),
    }
}

/// The gradient of the input of [`write_strength`].
#[inline(always)]
pub(super) fn write_strength_backward(preparation: Preparation, x: f32, gradient: f32) -> f32 {
    match preparation {
        Preparation::None => gradient,
        Preparation::Projections { write_scale, .. } => {
            gradient * write_scale as f32 * logistic(x) * logistic(-x)
        }
    }
}

fn logistic(x: f32) -> f32 {
    let small = (-x.abs()).exp();
    if x < 0.0 {
        small / (1.0 + small)
    } else {
        1.0 / (1.0 + small)
    }
}

/// Copies `from` to the start of a padded row, and 0 behind it: a NaN that came through here must not stay for the next sequence.
#[inline(always)]
pub(super) fn fill(row: &mut [f32], from: &[f32]) {
    let (start, padding) = row.split_at_mut(from.len());
    start.copy_from_slice(from);
    padding.fill(0.0);
}
