//! Tests of the optimizer: by formula in f64, by contract for both forms, and one for every known fault of
//! other implementations.

mod bf16_momentum;
mod border;
mod column_blocks;
mod config;
mod contract;
mod distributed;
mod faults;
mod fused;
mod max_logit;
mod models;
mod muon;
mod newton_schulz;
mod newton_schulz_forms;
mod optimizers;
mod qk_clip;
mod reference;
mod routing;
mod weight_decay;
