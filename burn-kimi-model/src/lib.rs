#![doc = include_str!("../README.md")]
#![cfg_attr(docsrs, feature(doc_cfg))]

mod config;
mod decoder;
mod device;
pub mod layers;
mod qk_clip;
mod residual;
mod state;

pub use burn_kimi_linear::{AttentionKind, AttentionPlan, ForgetGate};
pub use config::{ConfigError, DecoderConfig};
pub use decoder::{Decoder, DecoderLayer};
pub use device::{DeviceError, DeviceName};
pub use residual::{ParseResidualSchemeError, ResidualScheme};
pub use state::DecoderState;
