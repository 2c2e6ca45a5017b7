//! Orthogonalisation of a batch of matrices by the quintic Newton-Schulz iteration.

use burn::config::Config;
use burn::tensor::Tensor;

use crate::precision::working_dtype;

/// The coefficients `(a, b, c)` of Keller Jordan's quintic, as Moonlight and Kimi K2 use them.
///
/// They maximise the slope at zero, so small singular values grow as fast as possible. The price is
/// that singular values end near one rather than at one: after five steps, between 0.68 and 1.21 for
/// every singular value that started above about 0.15 % of the Frobenius norm.
pub const STANDARD_COEFFICIENTS: [f64; 3] = [3.4445, -4.7750, 2.0315];

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
    /// The coefficients of step `step`, counted from zero.
    ///
    /// # Panics
    /// Panics if the list of coefficients is empty.
    fn at(&self, step: usize) -> [f64; 3] {
        let last = self
            .coefficients
            .last()
            .expect("NewtonSchulzConfig: `coefficients` needs at least one [a, b, c]");
        *self.coefficients.get(step).unwrap_or(last)
    }
}

/// Replaces every matrix of the batch `x: [batch, n, m]` by an approximation of the nearest
/// semi-orthogonal matrix: `U V^T`, where `U S V^T` is its singular value decomposition.
///
/// With `X` the matrix divided by its Frobenius norm, each step computes
/// `X <- (a I + b A + c A^2) X` where `A = X X^T`
/// (Jordan et al., [Muon](https://kellerjordan.github.io/posts/muon/); Liu et al.,
/// [arXiv:2502.16982](https://arxiv.org/abs/2502.16982), section 2.1). The smaller Gram matrix is used
/// whichever side of the matrix is longer, so neither orientation is preferred.
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
    let dtype = x.dtype();
    let x = x.cast(working_dtype(dtype));
    let o = if n > m {
        iterate(normalize(x.swap_dims(1, 2)), config).swap_dims(1, 2)
    } else {
        iterate(normalize(x), config)
    };
    o.cast(dtype)
}

/// Divides each matrix by its own Frobenius norm; zero matrices stay zero.
fn normalize(x: Tensor<3>) -> Tensor<3> {
    // Squares of elements below 1e-19 or above 1e19 leave the range of f32; ratios to the largest element do not.
    let largest = x.clone().abs().max_dim(2).max_dim(1);
    let x = x.div(one_where_zero(largest));
    let norm = x.clone().square().sum_dim(2).sum_dim(1).sqrt();
    x.div(one_where_zero(norm))
}

fn one_where_zero(x: Tensor<3>) -> Tensor<3> {
    let zero = x.clone().equal_scalar(0.0);
    x.mask_fill(zero, 1.0)
}

/// Runs the polynomial on normalised matrices `x: [batch, n, m]` with `n <= m`.
///
/// Written as `(A (c A + b I) + a I) X`: the scalars meet the `n x n` Gram matrix only, and the long side
/// is touched by two matrix products a step and nothing else.
fn iterate(x: Tensor<3>, config: &NewtonSchulzConfig) -> Tensor<3> {
    let [_, n, _] = x.dims();
    let identity = Tensor::<2>::eye(n, &x.device())
        .cast(x.dtype())
        .unsqueeze::<3>();
    (0..config.steps).fold(x, |x, step| {
        let [a, b, c] = config.at(step);
        let gram = x.clone().matmul(x.clone().swap_dims(1, 2));
        let inner = gram.clone().mul_scalar(c) + identity.clone().mul_scalar(b);
        let polynomial = gram.matmul(inner) + identity.clone().mul_scalar(a);
        polynomial.matmul(x)
    })
}
