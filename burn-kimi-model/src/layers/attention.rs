use burn::module::Module;
use burn::tensor::{Device, Tensor};
use burn_kimi_linear::{AttentionKind, KimiDeltaAttention, MultiHeadLatentAttention};

use crate::config::DecoderConfig;
use crate::qk_clip::LogitWatch;
use crate::state::LayerState;

/// The attention of one layer.
#[derive(Module, Debug)]
#[allow(clippy::large_enum_variant)]
pub enum Attention {
    /// Kimi Delta Attention.
    Kda(KimiDeltaAttention),
    /// Multi-head latent attention without positional encoding.
    Mla(MultiHeadLatentAttention),
}

impl Attention {
    pub(crate) fn new(kind: AttentionKind, config: &DecoderConfig, device: &Device) -> Self {
        match kind {
            AttentionKind::Kda => Self::Kda(config.delta_attention().init(device)),
            AttentionKind::Mla => Self::Mla(config.latent_attention().init(device)),
        }
    }

    /// `x` and the result are `[B, T, hidden_size]`; `state` is what this layer returned for the tokens before.
    ///
    /// # Panics
    ///
    /// If `state` belongs to a layer of the other kind, or shapes disagree.
    pub(crate) fn forward(
        &self,
        x: Tensor<3>,
        state: Option<LayerState>,
        watch: Option<LogitWatch<'_>>,
    ) -> (Tensor<3>, LayerState) {
        match self {
            Self::Kda(layer) => {
                let (y, state) = layer.forward_with_state(x, state.map(LayerState::into_kda));
                (y, LayerState::Kda(state))
            }
            Self::Mla(layer) => {
                let (y, state) =
                    layer.forward_observed(x, state.map(LayerState::into_mla), |q, k| {
                        if let Some(watch) = watch {
                            watch.observe(layer, q, k);
                        }
                    });
                (y, LayerState::Mla(state))
            }
        }
    }
}
