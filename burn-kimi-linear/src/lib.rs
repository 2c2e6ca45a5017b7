#![doc = include_str!("../README.md")]
#![cfg_attr(docsrs, feature(doc_cfg))]

pub mod kda;
mod layers;
mod plan;
mod precision;

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
