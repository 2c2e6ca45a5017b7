use burn::tensor::Tensor;

use super::MaxLogitOptions;
use super::inputs::Inputs;
use crate::precision::working_dtype;

/// What no logit of a head exceeds: `scale max_i |q_i| max_j |k_j|`, `[H]`, by the inequality of Cauchy and Schwarz, rounded upwards.
///
/// Every pair counts, hidden ones too. Where it is not above the threshold there is nothing to clip, and [`max_logit`](super::max_logit) need not be asked.
/// NaN anywhere makes it `+inf` for the heads concerned, and empty tensors `-inf`.
///
/// # Panics
/// As [`max_logit`](super::max_logit).
pub fn max_logit_bound(q: Tensor<4>, k: Tensor<4>, options: &MaxLogitOptions) -> Tensor<1> {
    let inputs = Inputs::new(q, k, options);
    if inputs.is_empty() {
        return inputs.nothing_visible();
    }
    let sizes = inputs.sizes;
    let group = sizes.heads / sizes.key_heads;
    let keys = longest(inputs.k, sizes.key_heads)
        .reshape([sizes.key_heads, 1])
        .repeat_dim(1, group)
        .reshape([sizes.heads]);
    let queries = longest(inputs.q, sizes.heads);
    // A product and the lengths are sums of `D` terms, each rounded.
    let rounding = 1.0 + 4.0 * (sizes.dim as f64 + 4.0) * f64::from(f32::EPSILON);
    let bound = (queries * keys).mul_scalar(sizes.scale * rounding);
    let nan = bound.clone().is_nan();
    bound.mask_fill(nan, f64::INFINITY)
}

/// The length of the longest vector of every head.
fn longest(x: Tensor<4>, heads: usize) -> Tensor<1> {
    let wide = working_dtype(x.dtype());
    let squares = x.cast(wide).square().sum_dim(3);
    let nan = squares.clone().is_nan();
    squares
        .mask_fill(nan, f64::INFINITY)
        .max_dim(2)
        .max_dim(0)
        .reshape([heads])
        .sqrt()
}
