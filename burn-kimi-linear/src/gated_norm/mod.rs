//! RMSNorm of each head, then a gate.
//!
//! ```text
//! r = 1 / sqrt(mean(x^2) + epsilon)
//! y = weight x r sigmoid(gate)
//! ```
//!
//! `x`, `gate` and `y` are `[B, T, H, D]`, `weight` is `[D]`, shared by the heads.
//!
//! Source: Kimi Linear, arXiv 2510.26692, section 4.

#[cfg(feature = "flex")]
mod autodiff;
#[cfg(feature = "flex")]
mod cpu;
#[cfg(feature = "flex")]
mod definition;
mod function;

pub(crate) use function::gated_norm;
