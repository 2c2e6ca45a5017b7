//! Tests of the crate: every formula against `f64` arithmetic written here, gradients against finite differences, and the
//! properties that callers rely on.

mod closeness;
mod cpu_layers;
mod draws;
mod engines;
mod gate;
mod gated_norm;
mod kda_cases;
mod kda_forward;
mod kda_gradient;
mod kda_kernels;
mod kda_numerics;
mod kda_oracle;
mod kda_projected;
mod kda_sequences;
mod kda_snapshots;
mod kda_state;
mod kda_summary;
mod latent_attention;
mod layer;
mod layer_oracle;
mod plan;
mod refusals;
mod short_convolution;
