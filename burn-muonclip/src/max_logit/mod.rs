//! The largest logit of every head of an attention layer, without the matrix of all logits.
//!
//! ```text
//! S_h = max over b, and over the pairs (i, j) that are visible, of scale <q_bhi, k_bgj>        g: the key head of h
//! ```
//!
//! This is what QK-Clip watches (Kimi K2, [arXiv:2507.20534](https://arxiv.org/abs/2507.20534), section 2.1): the input of the softmax, signed, over the
//! whole batch. [`bound`] is what it cannot exceed, from the lengths of queries and keys alone.
//!
//! Time is that of the scores of attention, `2 B H T S D` operations or half of it for causal attention, in blocks; the bound takes
//! `2 (B H T + B G S) D`.

mod bound;
#[cfg(feature = "flex")]
mod cpu;
#[cfg(feature = "cube")]
mod cube;
#[cfg(feature = "kernels")]
mod definition;
mod function;
mod inputs;
mod primitive;

pub use bound::max_logit_bound;
pub use function::{MaxLogitOptions, max_logit};
