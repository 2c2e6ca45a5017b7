use burn::config::Config;
use burn_kimi_linear::{
    AttentionPlan, ForgetGate, KimiDeltaAttentionConfig, MultiHeadLatentAttentionConfig,
};

use crate::residual::ResidualScheme;

/// No size of a model is larger, and none that is smaller overflows when two are multiplied.
const MAX_SIZE: usize = 1 << 24;

/// What a [`Decoder`](crate::Decoder) is made of.
///
/// Widths that are not given follow Kimi Linear's proportions to `head_dim`.
#[derive(Config, Debug, PartialEq)]
pub struct DecoderConfig {
    /// Number of tokens.
    pub vocab_size: usize,
    /// Width of the model.
    pub hidden_size: usize,
    /// Transformer layers; each is an attention and a feed-forward sub-layer.
    pub num_layers: usize,
    /// Attention heads.
    pub num_heads: usize,
    /// Width of a head.
    pub head_dim: usize,
    /// Width inside the feed-forward.
    pub intermediate_size: usize,
    /// Which layer attends how.
    #[config(default = "AttentionPlan::KIMI_LINEAR")]
    pub attention: AttentionPlan,
    /// How sub-layers are joined.
    #[config(default = "ResidualScheme::PreNorm")]
    pub residual: ResidualScheme,
    /// Tokens that the short convolutions of delta attention see.
    #[config(default = 4)]
    pub conv_size: usize,
    /// Forget gate of delta attention.
    #[config(default = "ForgetGate::Softplus")]
    pub gate: ForgetGate,
    /// Width of the latent of latent attention; `None` for `4 * head_dim`.
    pub kv_lora_rank: Option<usize>,
    /// Width of the key part that heads share in latent attention; `None` for `head_dim / 2`.
    pub qk_rope_head_dim: Option<usize>,
    /// Added to the mean square in the norms.
    #[config(default = 1e-5)]
    pub rms_norm_eps: f64,
}

/// A [`DecoderConfig`] that describes no decoder.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum ConfigError {
    /// A size of nothing, or one that no memory holds.
    #[error("{field} must be from 1 to {MAX_SIZE}, got {size}")]
    Size {
        /// Name of the field.
        field: &'static str,
        /// What it holds.
        size: usize,
    },
    /// A norm that could divide by zero.
    #[error("rms_norm_eps must be a positive number, got {0}")]
    Epsilon(f64),
    /// A forget gate without decay.
    #[error("gate: the lower bound must be a negative number in f32, got {0:?}")]
    LowerBound(f64),
    /// More blocks than there are sub-layers to fill them.
    #[error(
        "residual: {blocks} blocks for {sublayers} sub-layers (two a layer); expected 1 to {sublayers}"
    )]
    Blocks {
        /// Blocks asked for.
        blocks: usize,
        /// Sub-layers of the decoder.
        sublayers: usize,
    },
}

impl DecoderConfig {
    /// Checks that the parts fit each other.
    ///
    /// # Errors
    ///
    /// The first field that does not, by name.
    pub fn validate(&self) -> Result<(), ConfigError> {
        let kda_per_mla = match self.attention {
            AttentionPlan::Hybrid { kda_per_mla } => kda_per_mla,
            AttentionPlan::Mla | AttentionPlan::Kda => 1,
        };
        let sizes = [
            ("vocab_size", self.vocab_size),
            ("hidden_size", self.hidden_size),
            ("num_layers", self.num_layers),
            ("num_heads", self.num_heads),
            ("head_dim", self.head_dim),
            ("intermediate_size", self.intermediate_size),
            ("conv_size", self.conv_size),
            ("kv_lora_rank", self.kv_lora_rank.unwrap_or(1)),
            ("attention.kda_per_mla", kda_per_mla),
        ];
        let impossible = |size: usize| !(1..=MAX_SIZE).contains(&size);
        if let Some((field, size)) = sizes.into_iter().find(|(_, size)| impossible(*size)) {
            return Err(ConfigError::Size { field, size });
        }
        let shared = self.qk_rope_head_dim();
        if shared > MAX_SIZE {
            let field = "qk_rope_head_dim";
            return Err(ConfigError::Size {
                field,
                size: shared,
            });
        }
        if !(self.rms_norm_eps > 0.0 && self.rms_norm_eps.is_finite()) {
            return Err(ConfigError::Epsilon(self.rms_norm_eps));
        }
        if let ForgetGate::LowerBound(bound) = self.gate
            && !((bound as f32) < 0.0 && (bound as f32).is_finite())
        {
            return Err(ConfigError::LowerBound(bound));
        }
        let sublayers = self.num_sublayers();
        if let ResidualScheme::AttnResBlock { blocks } = self.residual
            && !(1..=sublayers).contains(&blocks)
        {
            return Err(ConfigError::Blocks { blocks, sublayers });
        }
        Ok(())
    }

    /// Attention and feed-forward sub-layers together.
    pub fn num_sublayers(&self) -> usize {
        2 * self.num_layers
    }

    /// Width of the latent of latent attention.
    pub fn kv_lora_rank(&self) -> usize {
        self.kv_lora_rank.unwrap_or(4 * self.head_dim)
    }

    /// Width of the key part that heads share in latent attention.
    pub fn qk_rope_head_dim(&self) -> usize {
        self.qk_rope_head_dim.unwrap_or(self.head_dim / 2)
    }

    pub(crate) fn delta_attention(&self) -> KimiDeltaAttentionConfig {
        KimiDeltaAttentionConfig::new(self.hidden_size, self.num_heads, self.head_dim)
            .with_conv_size(self.conv_size)
            .with_gate(self.gate)
            .with_norm_epsilon(self.rms_norm_eps)
    }

    pub(crate) fn latent_attention(&self) -> MultiHeadLatentAttentionConfig {
        MultiHeadLatentAttentionConfig::new(
            self.hidden_size,
            self.num_heads,
            self.kv_lora_rank(),
            self.head_dim,
            self.qk_rope_head_dim(),
            self.head_dim,
        )
    }
}
