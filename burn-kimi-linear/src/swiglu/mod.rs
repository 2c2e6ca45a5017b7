//! The product inside a SwiGLU feed-forward layer: `silu(gate) up = gate sigmoid(gate) up`, element by element.
//!
//! Source: GLU Variants Improve Transformer, arXiv 2002.05202.

#[cfg(feature = "flex")]
mod autodiff;
#[cfg(feature = "flex")]
mod cpu;
#[cfg(feature = "flex")]
mod definition;
mod function;

pub use function::swiglu;
