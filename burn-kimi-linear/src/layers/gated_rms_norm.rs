use burn::config::Config;
use burn::module::Module;
use burn::nn::{RmsNorm, RmsNormConfig};
use burn::tensor::{Device, Tensor, assert_shape};

use crate::gated_norm::gated_norm;

/// Settings of a [`GatedRmsNorm`].
#[derive(Config, Debug)]
pub struct GatedRmsNormConfig {
    /// Width of a head.
    pub head_dim: usize,
    /// Added to the mean square.
    #[config(default = 1e-5)]
    pub epsilon: f64,
}

impl GatedRmsNormConfig {
    /// Creates the layer with weight 1.
    pub fn init(&self, device: &Device) -> GatedRmsNorm {
        let norm = RmsNormConfig::new(self.head_dim).with_epsilon(self.epsilon);
        GatedRmsNorm {
            norm: norm.init(device),
        }
    }
}

/// Normalises every head by itself, then gates it: `RMSNorm(x) * sigmoid(gate)`. All heads share one weight.
#[derive(Module, Debug)]
pub struct GatedRmsNorm {
    /// Weight of `[head_dim]`.
    pub norm: RmsNorm,
}

impl GatedRmsNorm {
    /// `x` and `gate` are `[B, T, H, head_dim]`, and so is the result.
    ///
    /// # Panics
    ///
    /// If the last axis of `x` is not `head_dim`, or the shapes differ.
    pub fn forward(&self, x: Tensor<4>, gate: Tensor<4>) -> Tensor<4> {
        let [batch, tokens, heads, _] = x.dims();
        let [head_dim] = self.norm.gamma.dims();
        assert_shape!(x, [batch, tokens, heads, head_dim]);
        assert_shape!(gate, [batch, tokens, heads, head_dim]);
        gated_norm(&self.norm, x, gate)
    }
}
