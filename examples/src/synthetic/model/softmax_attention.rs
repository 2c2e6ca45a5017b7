use burn::tensor::{Bool, Tensor, activation::softmax};

/// Softmax attention in which a token sees itself and those before it.
///
/// `q` and `k` are `[B, T, H, K]`, `v` and the result are `[B, T, H, V]`; scores are scaled by `K^-1/2`.
pub(super) fn softmax_attention(q: Tensor<4>, k: Tensor<4>, v: Tensor<4>) -> Tensor<4> {
    let [_, tokens, _, dim] = q.dims();
    let heads_first = |x: Tensor<4>| x.swap_dims(1, 2);
    let q = heads_first(q * (dim as f64).powf(-0.5));
    let scores = q.matmul(heads_first(k).swap_dims(2, 3));
    let future = Tensor::<2, Bool>::tril_mask([tokens, tokens], 0, &scores.device());
    let scores = scores.mask_fill(future.unsqueeze(), f32::NEG_INFINITY);
    heads_first(softmax(scores, 3).matmul(heads_first(v)))
}
