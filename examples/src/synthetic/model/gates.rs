use burn::module::{Module, Param};
use burn::nn::Linear;
use burn::tensor::{Tensor, activation::sigmoid};
use burn_kimi_linear::{ForgetGate, kda_gate};

/// What decides how a memory forgets and writes: fields of a [`KimiDeltaAttention`](burn_kimi_linear::KimiDeltaAttention) layer
/// under the names they have there, with one or `K` decays a head.
#[derive(Module, Debug)]
pub struct MemoryGates {
    /// Logarithm of each head's decay rate, `[H]`.
    pub a_log: Param<Tensor<1>>,
    /// Offset of the forget gate, `[H, decays]`.
    pub dt_bias: Param<Tensor<2>>,
    /// Forget gate, first of two factors: `[d_model, K]`.
    pub f_a_proj: Linear,
    /// Forget gate, second factor: `[K, H * decays]`.
    pub f_b_proj: Linear,
    /// Write strength, `[d_model, H]`.
    pub b_proj: Linear,
}

impl MemoryGates {
    /// The same with one decay a head, that of its first channel.
    pub(super) fn with_one_decay_per_head(self) -> Self {
        let [heads, decays] = self.dt_bias.dims();
        let [rank, _] = self.f_b_proj.weight.dims();
        let columns = self.f_b_proj.weight.val();
        let columns = columns.reshape([rank, heads, decays]).narrow(2, 0, 1);
        let columns = columns.reshape([rank, heads]);
        let offsets = self.dt_bias.val().narrow(1, 0, 1);
        Self {
            dt_bias: Param::from_tensor(offsets.detach()),
            f_b_proj: Linear {
                weight: Param::from_tensor(columns.detach()),
                ..self.f_b_proj
            },
            ..self
        }
    }

    /// From `x`, `[B, T, d_model]`, the logarithm of the decay of `key_dim` channels, `[B, T, H, K]`, and the write strength,
    /// `[B, T, H]`. A single decay of a head is that of all its channels.
    pub(super) fn forward(&self, x: Tensor<3>, key_dim: usize) -> (Tensor<4>, Tensor<3>) {
        let [batch, tokens, _] = x.dims();
        let [heads, decays] = self.dt_bias.dims();
        let decay = self.f_b_proj.forward(self.f_a_proj.forward(x.clone()));
        let g = kda_gate(
            decay.reshape([batch, tokens, heads, decays]),
            Some(self.a_log.val()),
            self.dt_bias.val(),
            ForgetGate::Softplus,
        );
        let g = g.expand([batch, tokens, heads, key_dim]);
        (g, sigmoid(self.b_proj.forward(x)))
    }
}
