#![doc = include_str!("../README.md")]
#![cfg_attr(docsrs, feature(doc_cfg))]

mod adamw;
mod column_blocks;
mod config;
pub mod distributed;
mod error;
pub mod from_adamw;
mod fused;
mod max_logit;
mod muon;
mod newton_schulz;
mod precision;
pub mod qk_clip;
pub mod routing;

pub use column_blocks::ColumnBlocks;
pub use config::MuonClipConfig;
pub use distributed::DistributedMuonClip;
pub use error::{PlanError, StateError};
pub use fused::{GroupSummary, MuonClip, StepOutcome, StepReport, Summary};
pub use max_logit::{MaxLogitOptions, max_logit, max_logit_bound};
pub use muon::{Muon, MuonConfig, MuonState};
pub use newton_schulz::{
    NewtonSchulzConfig, POLAR_EXPRESS_COEFFICIENTS, STANDARD_COEFFICIENTS, TWO_STAGE_COEFFICIENTS,
    newton_schulz,
};
#[doc(no_inline)]
pub use routing::{
    BlocksOverride, ParamEntry, ParamPlan, Reason, Route, RouteOverride, WeightDecayOverride,
};
