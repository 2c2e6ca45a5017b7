#![doc = include_str!("../README.md")]
#![cfg_attr(docsrs, feature(doc_cfg))]

mod gated_norm;
pub mod kda;
mod layers;
mod plan;
mod short_convolution;
mod swiglu;

pub use kda::{
    ForgetGate, KdaGate, KdaOptions, KdaProjections, KdaState, StateBytesError, kda, kda_gate,
    kda_projected,
};
pub use layers::{
    GatedRmsNorm, GatedRmsNormConfig, KimiDeltaAttention, KimiDeltaAttentionConfig,
    KimiDeltaAttentionState, MultiHeadLatentAttention, MultiHeadLatentAttentionConfig,
    MultiHeadLatentAttentionState, ShortConvolution, ShortConvolutionConfig,
};
pub use plan::{AttentionKind, AttentionPlan, ParseAttentionPlanError};
pub use swiglu::swiglu;
