use burn::tensor::{DType, Tensor, activation::sigmoid, assert_shape};
use serde::{Deserialize, Serialize};

use burn_kimi_kernels::precision::compute_dtype;

/// How a projection becomes the logarithm of the decay. The two are different functions, not one and its clamp:
/// which one a checkpoint was trained with is part of the checkpoint.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub enum ForgetGate {
    /// `g = -exp(A_log) softplus(x + dt_bias)`, unbounded below (Kimi Linear).
    Softplus,
    /// `g = lower_bound sigmoid(exp(A_log) (x + dt_bias))`, within `[lower_bound, 0)` (Kimi K3, with -5).
    LowerBound(f64),
}

impl ForgetGate {
    /// # Panics
    ///
    /// If a lower bound, which the message calls `name`, is not negative and finite in `f32`, which kernels compute in.
    pub(crate) fn check_bound(self, name: &str) {
        if let Self::LowerBound(bound) = self {
            let held = bound as f32;
            assert!(
                held < 0.0 && held.is_finite(),
                "{name} must be a negative number, got {bound:?}, which is {held:?} in f32"
            );
        }
    }
}

/// The forget gate: from the projection `x` to the natural logarithm of the decay.
///
/// # Shapes
///
/// - `x`: `[B, T, HV, K]`
/// - `a_log`: `[HV]`; `None` stands for `exp(A_log) = 1`
/// - `dt_bias`: `[HV, K]`
/// - result: `[B, T, HV, K]`, in `f32` (`f64` if `x` is)
///
/// # Panics
///
/// If the shapes disagree, or a lower bound is not a negative number.
pub fn kda_gate(
    x: Tensor<4>,
    a_log: Option<Tensor<1>>,
    dt_bias: Tensor<2>,
    gate: ForgetGate,
) -> Tensor<4> {
    gate.check_bound("kda_gate: the lower bound");
    let [_, _, heads, key_dim] = x.dims();
    assert_shape!(dt_bias, [heads, key_dim]);
    let dtype = compute_dtype(x.dtype());
    let x = x.cast(dtype) + dt_bias.cast(dtype).unsqueeze();
    let rate = a_log.map(|a_log| {
        assert_shape!(a_log, [heads]);
        a_log.cast(dtype).exp().reshape([1, 1, heads, 1])
    });

    match gate {
        ForgetGate::Softplus => {
            let step = -softplus(x);
            match rate {
                Some(rate) => step * rate,
                None => step,
            }
        }
        ForgetGate::LowerBound(bound) => {
            let x = match rate {
                Some(rate) => x * rate,
                None => x,
            };
            sigmoid(x) * bound
        }
    }
}

/// `log(1 + exp(x))` in the form that neither overflows for large `x` nor rounds to zero for very negative ones.
/// Burn's own softplus takes `exp(x)` of any `x`.
fn softplus(x: Tensor<4>) -> Tensor<4> {
    const LINEAR_ABOVE: f64 = 20.0;
    let linear = x.clone().greater_elem(LINEAR_ABOVE);
    let e = x.clone().clamp_max(LINEAR_ABOVE).exp();
    log1p(e).mask_where(linear, x)
}

/// `log(1 + e)` of positive numbers. On WebGPU `log1p` is the logarithm of a rounded sum, which loses the digits of a small `e`; four terms of its series do not.
fn log1p(e: Tensor<4>) -> Tensor<4> {
    const SERIES_BELOW: f64 = 0.01;
    let whole = e.clone().log1p();
    if e.dtype() == DType::F64 {
        return whole;
    }
    let small = e.clone().lower_elem(SERIES_BELOW);
    let series = (e.clone() * -0.25 + 1.0 / 3.0) * e.clone();
    let series = ((series * -1.0 + 0.5) * e.clone() * -1.0 + 1.0) * e;
    whole.mask_where(small, series)
}
