//! QK-Clip: attention logits are held under a threshold by rescaling the weights that make queries and keys.
//!
//! ```text
//! gamma_h = min(1, tau / S_h)                         S_h: the largest logit of head h in the optimizer step
//!
//! keys of group g          *= gamma_g^(1 - alpha)     gamma_g = min of gamma_h over the query heads that read them
//! queries of head h        *= gamma_h / gamma_g^(1 - alpha)
//! queries of head h that meet a key part which all heads share  *= gamma_h
//! ```
//!
//! The product of a query and its key is then `gamma_h` times what it was, for every head, whatever heads share keys: heads that were quiet keep their logits. With
//! one key head a query head and `alpha = 1/2` both sides get `sqrt(gamma_h)`. Values, output projection, momenta and the parts of heads that are not
//! above the threshold keep their bits.
//!
//! Source: Kimi K2, [arXiv:2507.20534](https://arxiv.org/abs/2507.20534), section 2.1 and Algorithm 1; the form for grouped queries is ours (the paper has none).
//!
//! # How it is used
//!
//! 1. The attention layers report `S_h` while the model runs forward: a [`LogitRecorder`] collects them, under the id of the weights that make the queries.
//!    [`max_logit`](crate::max_logit) computes them from queries and keys, and [`attend`] does so for Burn's `MultiHeadAttention`.
//! 2. What the weights of a layer look like is plain data, a [`QkLayer`].
//! 3. [`QkClip`] takes what was recorded after the optimizer's step, and rescales.
//!
//! The maximum is over everything that was recorded since the last time: micro-batches, layers that share their weights, and devices, if all have clones of one
//! recorder. Nothing is recorded without autodiff, so validation does not count.
//!
//! Normalised queries or keys (QK-norm) do not depend on the length of their weights, which clipping would shrink for ever without any effect: such layers are
//! refused. Layers without a softmax over logits (Kimi Delta Attention) have nothing to clip. Both can be named as [skipped](QkClip::skipping).

mod apply;
mod attend;
mod check;
mod clip;
mod config;
mod error;
mod factors;
mod layer;
mod maxima;
mod recorder;
mod report;

pub use attend::{AttentionInput, attend};
pub use clip::{QkClip, QkClipState};
pub use config::QkClipConfig;
pub use error::QkClipError;
pub use layer::{HeadColumns, LatentWidths, QkLayer, QkPart, QkSide, Unclippable};
pub use maxima::LogitMaxima;
pub use recorder::LogitRecorder;
pub use report::{HeadReport, LayerReport, QkClipReport};
