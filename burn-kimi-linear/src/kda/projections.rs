use burn::tensor::Tensor;

use super::function::run;
use super::inputs::KdaInputs;
use super::plan::Preparation;
use super::{ForgetGate, KdaOptions, KdaState};

/// What a layer's projections give, before it becomes the inputs of the recurrence.
#[derive(Clone, Debug)]
pub struct KdaProjections {
    /// `[B, T, H, K]`; brought to unit length, `x / sqrt(sum(x^2) + 1e-6)`.
    pub q: Tensor<4>,
    /// `[B, T, H, K]`; brought to unit length.
    pub k: Tensor<4>,
    /// `[B, T, HV, V]`; taken as it is.
    pub v: Tensor<4>,
    /// `[B, T, HV, K]`; goes through the forget gate.
    pub decay: Tensor<4>,
    /// `[B, T, HV]`; goes through a sigmoid.
    pub write: Tensor<3>,
}

/// The forget gate of a layer and its parameters, and the range of the write strength.
///
/// Like the projections, parameters may be stored in half precision and are computed with in `f32`; in `f64` exactly where `v` is.
#[derive(Clone, Debug)]
pub struct KdaGate {
    /// Which function.
    pub gate: ForgetGate,
    /// `[HV]`; `None` stands for `exp(A_log) = 1`.
    pub a_log: Option<Tensor<1>>,
    /// `[HV, K]`.
    pub dt_bias: Tensor<2>,
    /// Lets the write strength reach 2 instead of 1.
    pub allow_negative_eigenvalues: bool,
}

/// Kimi Delta Attention from a layer's projections: unit length, forget gate, sigmoid and recurrence in one operator.
///
/// The same as [`kda`](super::kda) of the prepared inputs ([`kda_gate`](super::kda_gate) and so on) to rounding, without those ever
/// being stored. Differentiable with respect to the projections, the gate's parameters and the initial state.
///
/// # Panics
///
/// As [`kda`](super::kda), and if a lower bound is not a negative number that `f32` can hold.
pub fn kda_projected(
    projections: KdaProjections,
    gate: KdaGate,
    initial_state: Option<KdaState>,
    options: &KdaOptions,
) -> (Tensor<4>, KdaState) {
    run(
        prepare_inputs(projections, gate, initial_state, options),
        options,
    )
}

pub(super) fn prepare_inputs(
    projections: KdaProjections,
    gate: KdaGate,
    initial_state: Option<KdaState>,
    options: &KdaOptions,
) -> KdaInputs {
    gate.gate.check_bound("kda: the lower bound");
    let KdaProjections {
        q,
        k,
        v,
        decay,
        write,
    } = projections;
    let preparation = Preparation::Projections {
        gate: gate.gate,
        write_scale: if gate.allow_negative_eigenvalues {
            2.0
        } else {
            1.0
        },
    };
    KdaInputs::new([q, k, v, decay], write, initial_state, preparation, options)
        .with_gate(gate.a_log, gate.dt_bias)
}
