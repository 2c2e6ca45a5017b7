//! Layers: parameters, their start, and their decode state around the operators.

mod gated_rms_norm;
mod kimi_delta_attention;
mod kimi_delta_attention_state;
mod multi_head_latent_attention;
mod projection;
mod short_convolution;

pub use gated_rms_norm::{GatedRmsNorm, GatedRmsNormConfig};
pub use kimi_delta_attention::{KimiDeltaAttention, KimiDeltaAttentionConfig};
pub use kimi_delta_attention_state::KimiDeltaAttentionState;
pub use multi_head_latent_attention::{
    MultiHeadLatentAttention, MultiHeadLatentAttentionConfig, MultiHeadLatentAttentionState,
};
pub use short_convolution::{ShortConvolution, ShortConvolutionConfig};
