//! Depthwise causal convolution over time, with SiLU or without.
//!
//! ```text
//! a_t = sum_j weight_j x_{t - (W - 1) + j}       every channel by itself, W taps, the newest token last
//! y_t = a_t, or a_t sigmoid(a_t)
//! ```
//!
//! | tensor | shape | meaning |
//! |---|---|---|
//! | `x`, `y` | `[B, T, C]` | inputs and outputs |
//! | `weight` | `[C, 1, W]` | the taps |
//! | `window` | `[B, W - 1, C]` | the inputs before the first token |
//!
//! Source: Kimi Linear, arXiv 2510.26692, section 4.

#[cfg(feature = "flex")]
mod autodiff;
#[cfg(feature = "flex")]
mod cpu;
#[cfg(feature = "flex")]
mod definition;
mod function;
mod reference;

pub(crate) use function::{Activation, short_convolution};
