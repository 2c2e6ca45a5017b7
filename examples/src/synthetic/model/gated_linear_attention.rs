use burn::tensor::{Bool, Tensor};

/// The work inside a chunk grows with its length, the number of steps between chunks falls with it.
const CHUNK: usize = 8;

/// Linear attention with a decay for every key channel, and without the delta rule. For each token and head:
///
/// ```text
/// S_t = Diag(exp(g_t)) S_{t-1} + beta_t k_t v_t^T        decay, then add
/// o_t = S_t^T (K^-1/2 q_t)                               read after the update
/// ```
///
/// Shapes and arguments are those of [`kda`](fn@burn_kimi_linear::kda) with as many value as key heads: `q`, `k` and `g` are
/// `[B, T, H, K]`, `v` is `[B, T, H, V]`, `beta` is `[B, T, H]`, and so the two differ in the update alone. The memory starts empty.
///
/// Source: Gated Linear Attention, arXiv 2312.06635, with the write strength of the delta rule.
///
/// # Panics
/// If there is no token, or shapes disagree.
pub fn gated_linear_attention(
    q: Tensor<4>,
    k: Tensor<4>,
    v: Tensor<4>,
    g: Tensor<4>,
    beta: Tensor<3>,
) -> Tensor<4> {
    let [batch, tokens, heads, key_dim] = k.dims();
    let [_, _, _, value_dim] = v.dims();
    let heads_first = |x: Tensor<4>| x.swap_dims(1, 2);
    let q = heads_first(q * (key_dim as f64).powf(-0.5));
    let written = heads_first(v * beta.unsqueeze_dim(3));
    let (k, g) = (heads_first(k), heads_first(g));

    let empty = [batch, heads, key_dim, value_dim];
    let mut memory = Tensor::zeros(empty, (&written.device(), written.dtype()));
    let mut outputs = Vec::new();
    for start in (0..tokens).step_by(CHUNK) {
        let end = tokens.min(start + CHUNK);
        let part = |x: &Tensor<4>| x.clone().slice_dim(2, start..end);
        let chunk = Chunk {
            q: part(&q),
            k: part(&k),
            written: part(&written),
            g: part(&g),
        };
        let (o, next) = chunk.run(memory);
        outputs.push(o);
        memory = next;
    }
    Tensor::cat(outputs, 2).swap_dims(1, 2)
}

/// Some tokens in a row, `[B, H, C, ..]`.
struct Chunk {
    q: Tensor<4>,
    k: Tensor<4>,
    /// `beta v`.
    written: Tensor<4>,
    g: Tensor<4>,
}

impl Chunk {
    /// The outputs, `[B, H, C, V]`, and the memory, `[B, H, K, V]`, after the chunk that `memory` enters.
    fn run(self, memory: Tensor<4>) -> (Tensor<4>, Tensor<4>) {
        let size = self.g.dims()[2];
        let since = decay_since(&self.g);
        let scores = self.scores(since.clone());
        let from_start = self.g.cumsum(2).exp();
        let whole = from_start.clone().narrow(2, size - 1, 1).swap_dims(2, 3);
        let to_end = since.narrow(2, size - 1, 1).squeeze_dim(2);

        let o = (self.q * from_start).matmul(memory.clone()) + scores.matmul(self.written.clone());
        let added = (self.k * to_end).swap_dims(2, 3).matmul(self.written);
        (o, memory * whole + added)
    }

    /// What each token, `t`, reads of each one up to it, `s`: `sum_d q_td k_sd exp(g_{s+1,d} + ... + g_td)`, `[B, H, t, s]`.
    fn scores(&self, since: Tensor<5>) -> Tensor<4> {
        let products = self.q.clone().unsqueeze_dim::<5>(3) * self.k.clone().unsqueeze_dim(2);
        let scores: Tensor<4> = (products * since).sum_dim(4).squeeze_dim(4);
        let size = scores.dims()[2];
        let future = Tensor::<2, Bool>::tril_mask([size, size], 0, &scores.device());
        scores.mask_fill(future.unsqueeze(), 0.0)
    }
}

/// By how much each channel decays behind token `s` up to token `t`, `[B, H, t, s, K]`, and 1 for `t <= s`.
///
/// The exponents are sums of gates over exactly their own tokens: masked before they are added, so that none is positive,
/// nothing overflows, and a strong decay costs the others no digits.
fn decay_since(g: &Tensor<4>) -> Tensor<5> {
    let [batch, heads, size, key_dim] = g.dims();
    let not_behind = Tensor::<2, Bool>::tril_mask([size, size], -1, &g.device());
    g.clone()
        .unsqueeze_dim::<5>(3)
        .expand([batch, heads, size, size, key_dim])
        .mask_fill(not_behind.reshape([1, 1, size, size, 1]), 0.0)
        .cumsum(2)
        .exp()
}
