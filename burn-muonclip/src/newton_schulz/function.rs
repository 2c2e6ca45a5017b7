use burn::config::Config;
use burn::tensor::Tensor;

use super::coefficients::{
    POLAR_EXPRESS_COEFFICIENTS, STANDARD_COEFFICIENTS, TWO_STAGE_COEFFICIENTS,
};
use super::primitive;
use crate::precision::working_dtype;

/// How [`newton_schulz`] iterates.
#[derive(Config, Debug, PartialEq)]
pub struct NewtonSchulzConfig {
    /// Number of iterations.
    #[config(default = 5)]
    pub steps: usize,
    /// Coefficients `[a, b, c]` of each step. Steps beyond the end of the list repeat its last entry, so
    /// one entry means the same polynomial at every step.
    #[config(default = "vec![STANDARD_COEFFICIENTS]")]
    pub coefficients: Vec<[f64; 3]>,
}

impl NewtonSchulzConfig {
    /// Five steps of Polar Express ([`POLAR_EXPRESS_COEFFICIENTS`]): closer to orthogonal than the standard ones.
    pub fn polar_express() -> Self {
        Self::of_steps(POLAR_EXPRESS_COEFFICIENTS.to_vec())
    }

    /// Ten steps in two stages ([`TWO_STAGE_COEFFICIENTS`]): singular values end at one, for twice the time.
    pub fn two_stage() -> Self {
        Self::of_steps(TWO_STAGE_COEFFICIENTS.to_vec())
    }

    fn of_steps(coefficients: Vec<[f64; 3]>) -> Self {
        Self {
            steps: coefficients.len(),
            coefficients,
        }
    }

    /// The coefficients of every step.
    ///
    /// # Panics
    /// Panics if the list of coefficients is empty.
    fn all_steps(&self) -> Vec<[f64; 3]> {
        let last = self
            .coefficients
            .last()
            .expect("NewtonSchulzConfig: `coefficients` needs at least one [a, b, c]");
        let at = |step| *self.coefficients.get(step).unwrap_or(last);
        (0..self.steps).map(at).collect()
    }
}

/// Replaces every matrix of the batch `x: [batch, n, m]` by an approximation of the nearest
/// semi-orthogonal matrix: `U V^T`, where `U S V^T` is its singular value decomposition.
///
/// With `X` the matrix divided by its Frobenius norm, each step computes
/// `X <- (a I + b A + c A^2) X` where `A = X X^T`
/// (Jordan et al., [Muon](https://kellerjordan.github.io/posts/muon/); Liu et al.,
/// [arXiv:2502.16982](https://arxiv.org/abs/2502.16982), section 2.1). The smaller Gram matrix is used
/// whichever side of the matrix is longer, so neither orientation is preferred. Long matrices take their steps on the Gram
/// matrix, and on the CPU half of every symmetric product is computed; both change the result by rounding only.
///
/// * Every matrix is normalised by its own norm. The result does not depend on the scale of the input:
///   the norm is taken after dividing by the largest element, so nothing overflows or underflows.
/// * A zero matrix gives exactly zero.
/// * 16-bit input is computed in f32 and rounded once at the end; f64 stays f64.
///
/// A matrix with NaN or infinite elements gives a result without meaning for itself and leaves the
/// other matrices of the batch as they are.
///
/// # Panics
/// Panics if `config.coefficients` is empty.
///
/// # Example
/// ```
/// use burn::tensor::{Device, Distribution, Tensor};
/// use burn_muonclip::{NewtonSchulzConfig, newton_schulz};
///
/// let device = Device::default();
/// let x = Tensor::<3>::random([2, 16, 64], Distribution::Default, &device);
/// let o = newton_schulz(x, &NewtonSchulzConfig::new());
/// assert_eq!(o.dims(), [2, 16, 64]);
/// ```
pub fn newton_schulz(x: Tensor<3>, config: &NewtonSchulzConfig) -> Tensor<3> {
    let [batch, n, m] = x.dims();
    if batch == 0 || n == 0 || m == 0 {
        return x;
    }
    let steps = config.all_steps();
    let dtype = x.dtype();
    let x = x.cast(working_dtype(dtype));
    #[cfg(feature = "flex")]
    if burn_kimi_kernels::cpu::serves(&x) && !x.device().is_autodiff() {
        use super::definition::NewtonSchulzOps;
        let o = burn::backend::Dispatch::newton_schulz(x.into_dispatch(), steps);
        return Tensor::<3>::from_dispatch(o).cast(dtype);
    }
    let o = if n > m {
        let x = primitive::normalize(x.swap_dims(1, 2));
        primitive::iterate(x, &steps).swap_dims(1, 2)
    } else {
        primitive::iterate(primitive::normalize(x), &steps)
    };
    o.cast(dtype)
}
