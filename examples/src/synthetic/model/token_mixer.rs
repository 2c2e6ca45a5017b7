use burn::module::Module;
use burn::nn::Linear;
use burn::tensor::Tensor;
use burn_kimi_linear::{GatedRmsNorm, KdaOptions, KimiDeltaAttention, ShortConvolution, kda};

use super::gated_linear_attention::gated_linear_attention;
use super::gates::MemoryGates;
use super::softmax_attention::softmax_attention;
use crate::synthetic::Arm;

/// The layer that the arms differ in.
///
/// Projections, short convolutions, SiLU, output norm and output gate are those of Kimi Delta Attention in every arm, and fields
/// have the names they have in [`KimiDeltaAttention`]. Between them the arms differ:
///
/// | arm | queries and keys | decay | update |
/// |---|---|---|---|
/// | `kda` | unit length | one a channel | delta rule |
/// | `scalar-gate` | unit length | one a head | delta rule |
/// | `no-delta` | unit length | one a channel | sum |
/// | `softmax` | as they are | none | none: every token is kept |
///
/// Softmax attention has no write strength either, and takes queries and keys of any length: of unit length they would give
/// scores within `K^-1/2`, which is nearly a plain mean.
#[derive(Module, Debug)]
pub struct TokenMixer {
    /// `[d_model, H * K]`.
    pub q_proj: Linear,
    /// `[d_model, H * K]`.
    pub k_proj: Linear,
    /// `[d_model, H * K]`.
    pub v_proj: Linear,
    /// Convolution of the queries.
    pub q_conv1d: ShortConvolution,
    /// Convolution of the keys.
    pub k_conv1d: ShortConvolution,
    /// Convolution of the values.
    pub v_conv1d: ShortConvolution,
    /// Decay and write strength; `None` where there is no memory that could forget.
    pub gates: Option<MemoryGates>,
    /// Output gate, first of two factors: `[d_model, K]`.
    pub g_a_proj: Linear,
    /// Output gate, second factor: `[K, H * K]`.
    pub g_b_proj: Linear,
    /// Norm and gate of the output.
    pub o_norm: GatedRmsNorm,
    /// `[H * K, d_model]`.
    pub o_proj: Linear,
    heads: usize,
    #[module(skip)]
    arm: Arm,
}

impl TokenMixer {
    /// The mixer of `arm`, with the weights of a layer of Kimi Delta Attention in what the two share. The scalar gate has those of
    /// each head's first channel.
    pub fn from_layer(arm: Arm, layer: KimiDeltaAttention) -> Self {
        let [heads, _] = layer.dt_bias.dims();
        let gates = MemoryGates {
            a_log: layer.a_log,
            dt_bias: layer.dt_bias,
            f_a_proj: layer.f_a_proj,
            f_b_proj: layer.f_b_proj,
            b_proj: layer.b_proj,
        };
        Self {
            q_proj: layer.q_proj,
            k_proj: layer.k_proj,
            v_proj: layer.v_proj,
            q_conv1d: layer.q_conv1d,
            k_conv1d: layer.k_conv1d,
            v_conv1d: layer.v_conv1d,
            gates: match arm {
                Arm::Kda | Arm::NoDelta => Some(gates),
                Arm::ScalarGate => Some(gates.with_one_decay_per_head()),
                Arm::Softmax => None,
            },
            g_a_proj: layer.g_a_proj,
            g_b_proj: layer.g_b_proj,
            o_norm: layer.o_norm,
            o_proj: layer.o_proj,
            heads,
            arm,
        }
    }

    /// Mixes the tokens of `x`, `[B, T, d_model]`; the result has the same shape.
    pub fn forward(&self, x: Tensor<3>) -> Tensor<3> {
        let [batch, tokens, _] = x.dims();
        let [_, width] = self.q_proj.weight.dims();
        let per_head = [batch, tokens, self.heads, width / self.heads];
        let part = |projection: &Linear, convolution: &ShortConvolution| {
            let (y, _) = convolution.forward_silu(projection.forward(x.clone()), None);
            y.reshape(per_head)
        };
        let q = part(&self.q_proj, &self.q_conv1d);
        let k = part(&self.k_proj, &self.k_conv1d);
        let v = part(&self.v_proj, &self.v_conv1d);

        let o = self.attend(x.clone(), q, k, v);
        let gate = self.g_b_proj.forward(self.g_a_proj.forward(x));
        let o = self.o_norm.forward(o, gate.reshape(per_head));
        self.o_proj.forward(o.reshape([batch, tokens, width]))
    }

    /// `q`, `k`, `v` and the result are `[B, T, H, K]`.
    fn attend(&self, x: Tensor<3>, q: Tensor<4>, k: Tensor<4>, v: Tensor<4>) -> Tensor<4> {
        let Some(gates) = &self.gates else {
            return softmax_attention(q, k, v);
        };
        let [_, _, _, key_dim] = k.dims();
        let (g, beta) = gates.forward(x, key_dim);
        let (q, k) = (unit_length(q), unit_length(k));
        match self.arm {
            Arm::NoDelta => gated_linear_attention(q, k, v, g, beta),
            _ => kda(q, k, v, g, beta, None, &KdaOptions::new()).0,
        }
    }
}

/// `x / sqrt(sum(x^2) + 1e-6)` over the last axis, as in the layer of Kimi Delta Attention.
fn unit_length(x: Tensor<4>) -> Tensor<4> {
    const EPSILON: f64 = 1e-6;
    let length = (x.clone().square().sum_dim(3) + EPSILON).sqrt();
    x / length
}
