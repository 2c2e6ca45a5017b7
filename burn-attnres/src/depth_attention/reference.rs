//! The definition, from Burn's primitive operations: differentiable, and runs on every backend.
//!
//! The sources are walked one by one. Stacking them would copy all of them at every read, and automatic
//! differentiation would keep each copy: memory would grow with the square of the depth. Here a read keeps
//! references to its sources and a few numbers per token and source.

use burn::tensor::{Tensor, activation::softmax};

/// `h` as `[batch, tokens, d]` and the weights as `[n, batch, tokens]`, with `u` the product of query and gamma; all tensors in one dtype.
pub(super) fn forward(sources: Vec<Tensor<3>>, u: Tensor<1>, eps: f64) -> (Tensor<3>, Tensor<3>) {
    let u = u.unsqueeze();

    let logits = sources.iter().map(|v| logit(v.clone(), u.clone(), eps));
    let weights = softmax(Tensor::cat(logits.collect(), 2), 2);

    let h = sources
        .into_iter()
        .enumerate()
        .map(|(i, v)| v * weights.clone().narrow(2, i, 1))
        .reduce(|sum, term| sum + term)
        .expect("at least one source");
    (h, weights.permute([2, 0, 1]))
}

/// `<u, v> / sqrt(mean(v^2) + eps)` as `[batch, tokens, 1]`.
fn logit(v: Tensor<3>, u: Tensor<3>, eps: f64) -> Tensor<3> {
    let d = v.dims()[2] as f64;
    // As `mean_dim`, whose gradient makes one more pass over the source; the gradient of a division by a number
    // would round that number to f32.
    let mean_square = v.clone().square().sum_dim(2) * (1.0 / d);
    (v * u).sum_dim(2) / (mean_square + eps).sqrt()
}
