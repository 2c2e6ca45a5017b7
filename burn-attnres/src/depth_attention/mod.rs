//! Depth attention: one read over the outputs of earlier sub-layers, token by token.
//!
//! ```text
//! z_i = <w * gamma, v_i> / sqrt(mean(v_i^2) + eps)     n sources v_i [batch, tokens, d]; w, gamma [d]
//! p   = softmax(z_1 .. z_n)
//! h   = sum_i p_i v_i
//! ```
//!
//! The paper writes the logit as `<w, RMSNorm(v_i)>` with gamma as the weight of the norm. Only the product
//! `w * gamma` enters, so it is formed once and no normalised key is ever stored.
//!
//! Source: Kimi Team, "Attention Residuals", arXiv 2603.15031, equations 1 to 4.

#[cfg(feature = "kernels")]
mod autodiff;
#[cfg(feature = "flex")]
mod cpu;
#[cfg(feature = "kernels")]
mod definition;
mod function;
mod reference;

pub use function::{depth_attention, depth_attention_with_weights};
