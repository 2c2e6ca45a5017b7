use burn::config::Config;
use burn::module::Module;
use burn::nn::{Linear, RmsNorm, RmsNormConfig};
use burn::tensor::{Bool, Device, Tensor, activation::softmax, assert_shape};

use super::projection::projection;
use burn_kimi_kernels::precision::compute_dtype;

/// Settings of a [`MultiHeadLatentAttention`] layer.
#[derive(Config, Debug)]
pub struct MultiHeadLatentAttentionConfig {
    /// Width of the model.
    pub d_model: usize,
    /// Heads.
    pub num_heads: usize,
    /// Width of the latent vector that keys and values are made from.
    pub kv_lora_rank: usize,
    /// Width of a head's own queries and keys.
    pub qk_nope_head_dim: usize,
    /// Width of the queries and keys that all heads share. Without rotary embedding they are plain extra channels.
    pub qk_rope_head_dim: usize,
    /// Width of a head's values.
    pub v_head_dim: usize,
    /// Added to the mean square in the norm of the latent. The released code leaves it at 1e-6, whatever the model's own.
    #[config(default = 1e-6)]
    pub norm_epsilon: f64,
}

impl MultiHeadLatentAttentionConfig {
    /// Creates the layer; projections start as Burn's `Linear`.
    pub fn init(&self, device: &Device) -> MultiHeadLatentAttention {
        let heads = self.num_heads;
        let query_dim = self.qk_nope_head_dim + self.qk_rope_head_dim;
        let latent = self.kv_lora_rank;
        let norm = RmsNormConfig::new(latent).with_epsilon(self.norm_epsilon);
        MultiHeadLatentAttention {
            q_proj: projection(self.d_model, heads * query_dim, device),
            kv_a_proj_with_mqa: projection(self.d_model, latent + self.qk_rope_head_dim, device),
            kv_a_layernorm: norm.init(device),
            kv_b_proj: projection(
                latent,
                heads * (self.qk_nope_head_dim + self.v_head_dim),
                device,
            ),
            o_proj: projection(heads * self.v_head_dim, self.d_model, device),
            num_heads: heads,
            qk_nope_head_dim: self.qk_nope_head_dim,
        }
    }
}

/// Multi-head latent attention without positional encoding (MLA NoPE), causal.
///
/// Keys and values of all heads are made from one latent vector a token, which is all that has to be remembered. Projections
/// are fields under the names of the released tensors. Source: DeepSeek-V2, arXiv 2405.04434; without rotary embedding as in
/// Kimi Linear, arXiv 2510.26692.
#[derive(Module, Debug)]
pub struct MultiHeadLatentAttention {
    /// `[d_model, H * (nope + rope)]`.
    pub q_proj: Linear,
    /// `[d_model, latent + rope]`: the latent, then the key part that heads share.
    pub kv_a_proj_with_mqa: Linear,
    /// Norm of the latent.
    pub kv_a_layernorm: RmsNorm,
    /// `[latent, H * (nope + v)]`: each head's keys, then its values.
    pub kv_b_proj: Linear,
    /// `[H * v, d_model]`.
    pub o_proj: Linear,
    /// Heads.
    pub num_heads: usize,
    /// Width of a head's own part of queries and keys.
    pub qk_nope_head_dim: usize,
}

/// What a [`MultiHeadLatentAttention`] layer remembers: `latent + rope` values a token.
#[derive(Clone, Debug)]
pub struct MultiHeadLatentAttentionState {
    /// Normalised latents, `[B, T, latent]`.
    pub latent: Tensor<3>,
    /// The key part that heads share, `[B, T, rope]`.
    pub shared_key: Tensor<3>,
}

impl MultiHeadLatentAttentionState {
    /// Tokens seen so far.
    pub fn tokens(&self) -> usize {
        self.latent.dims()[1]
    }

    /// These tokens behind those of `past`.
    fn after(self, past: Option<Self>) -> Self {
        let Some(past) = past else { return self };
        let [batch, _, latent_dim] = self.latent.dims();
        let past_tokens = past.tokens();
        let past_latent = past.latent;
        assert_shape!(past_latent, [batch, past_tokens, latent_dim]);
        Self {
            latent: Tensor::cat(vec![past_latent, self.latent], 1),
            shared_key: Tensor::cat(vec![past.shared_key, self.shared_key], 1),
        }
    }
}

impl MultiHeadLatentAttention {
    /// Attends within `x`, `[B, T, d_model]`; the result has the same shape.
    ///
    /// # Panics
    ///
    /// If the last axis of `x` is not `d_model`.
    pub fn forward(&self, x: Tensor<3>) -> Tensor<3> {
        self.forward_with_state(x, None).0
    }

    /// Continues from `past`, or starts anew without one, and returns the state after `x`.
    ///
    /// # Panics
    ///
    /// If the last axis of `x` is not `d_model`, or `past` belongs to another batch.
    pub fn forward_with_state(
        &self,
        x: Tensor<3>,
        past: Option<MultiHeadLatentAttentionState>,
    ) -> (Tensor<3>, MultiHeadLatentAttentionState) {
        self.forward_observed(x, past, |_, _| {})
    }

    /// Like [`forward_with_state`](Self::forward_with_state), and shows the queries `[B, H, T, nope + rope]` and keys `[B, H, S, nope + rope]` to `observe`, from
    /// which it computes its logits: scaled by `1 / sqrt(nope + rope)`, with the last query seeing all keys and every one before it one key less. For what watches
    /// logits, as QK-Clip does. Without tokens nothing is shown.
    ///
    /// # Panics
    ///
    /// As [`forward_with_state`](Self::forward_with_state).
    pub fn forward_observed(
        &self,
        x: Tensor<3>,
        past: Option<MultiHeadLatentAttentionState>,
        observe: impl FnOnce(&Tensor<4>, &Tensor<4>),
    ) -> (Tensor<3>, MultiHeadLatentAttentionState) {
        let [batch, tokens, _] = x.dims();
        let [d_model, query_width] = self.q_proj.weight.dims();
        let [latent_dim, _] = self.kv_b_proj.weight.dims();
        assert_shape!(x, [batch, tokens, d_model]);
        let heads = self.num_heads;
        let query_dim = query_width / heads;

        let shared_dim = query_dim - self.qk_nope_head_dim;
        if batch == 0 || tokens == 0 {
            // Nothing attends to nothing; Flex 0.22.1 reads out of bounds when it multiplies an empty batch by a weight.
            let none = |width| Tensor::zeros([batch, tokens, width], (&x.device(), x.dtype()));
            let state = MultiHeadLatentAttentionState {
                latent: none(latent_dim),
                shared_key: none(shared_dim),
            };
            return (x, state.after(past));
        }

        let q = self.q_proj.forward(x.clone());
        let q = q.reshape([batch, tokens, heads, query_dim]).swap_dims(1, 2);

        let compressed = self.kv_a_proj_with_mqa.forward(x);
        let latent = compressed.clone().narrow(2, 0, latent_dim);
        let state = MultiHeadLatentAttentionState {
            latent: self.kv_a_layernorm.forward(latent),
            shared_key: compressed.slice_dim(2, latent_dim..latent_dim + shared_dim),
        };
        let state = state.after(past);
        let (k, v) = self.keys_and_values(&state);
        observe(&q, &k);
        let o = causal_attention(q, k, v);
        let width = o.dims()[1] * o.dims()[3];
        let o = o.swap_dims(1, 2).reshape([batch, tokens, width]);
        (self.o_proj.forward(o), state)
    }

    /// Keys, `[B, H, T, nope + rope]`, and values, `[B, H, T, v]`, of every remembered token.
    fn keys_and_values(&self, state: &MultiHeadLatentAttentionState) -> (Tensor<4>, Tensor<4>) {
        let [batch, tokens, shared_dim] = state.shared_key.dims();
        let [_, width] = self.kv_b_proj.weight.dims();
        let heads = self.num_heads;
        let per_head = width / heads;
        let nope = self.qk_nope_head_dim;

        let expanded = self.kv_b_proj.forward(state.latent.clone());
        let expanded = expanded
            .reshape([batch, tokens, heads, per_head])
            .swap_dims(1, 2);
        let own_key = expanded.clone().narrow(3, 0, nope);
        let v = expanded.narrow(3, nope, per_head - nope);
        if shared_dim == 0 {
            return (own_key, v);
        }
        let shared_key = state
            .shared_key
            .clone()
            .reshape([batch, 1, tokens, shared_dim])
            .expand([batch, heads, tokens, shared_dim]);
        (Tensor::cat(vec![own_key, shared_key], 3), v)
    }
}

/// Softmax attention in which the last query sees every key and each one before it one key less.
///
/// `q` is `[B, H, T, D]`, `k` is `[B, H, S, D]`, `v` is `[B, H, S, V]` with `S >= T`; scores and softmax are `f32` (`f64` if `q` is).
fn causal_attention(q: Tensor<4>, k: Tensor<4>, v: Tensor<4>) -> Tensor<4> {
    let [_, _, tokens, dim] = q.dims();
    let [_, _, seen, _] = k.dims();
    let dtype = q.dtype();
    let wide = compute_dtype(dtype);
    let q = q.cast(wide) * (dim as f64).powf(-0.5);
    let scores = q.matmul(k.cast(wide).swap_dims(2, 3));
    let scores = if tokens > 1 {
        let past = (seen - tokens) as i64;
        let future = Tensor::<2, Bool>::tril_mask([tokens, seen], past, &scores.device());
        scores.mask_fill(future.unsqueeze(), f32::NEG_INFINITY)
    } else {
        scores
    };
    softmax(scores, 3).cast(dtype).matmul(v)
}
