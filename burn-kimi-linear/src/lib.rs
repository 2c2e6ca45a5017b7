#![doc = include_str!("../README.md")]
#![cfg_attr(docsrs, feature(doc_cfg))]

pub mod kda;
mod layers;
mod plan;
mod precision;

pub use kda::{ForgetGate, KdaOptions, KdaState, kda, kda_gate};
pub use layers::{
    GatedRmsNorm, GatedRmsNormConfig, KimiDeltaAttention, KimiDeltaAttentionConfig,
    KimiDeltaAttentionState, MultiHeadLatentAttention, MultiHeadLatentAttentionConfig,
    MultiHeadLatentAttentionState, ShortConvolution, ShortConvolutionConfig,
};
pub use plan::{AttentionKind, AttentionPlan, ParseAttentionPlanError};
