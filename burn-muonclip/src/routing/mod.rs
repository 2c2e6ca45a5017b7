//! Which optimizer trains which parameter.
//!
//! Rank alone does not tell a hidden matrix from the rest: an embedding, an output head and a depthwise
//! convolution can all be matrices or stacks by shape. [`ParamPlan`] therefore looks at the path of a
//! parameter and at the types of the modules around it. The rules, in order; the first that applies
//! decides:
//!
//! | # | parameter | optimizer |
//! |---|---|---|
//! | 1 | named by the user ([`with_muon`], [`with_adamw`]); the last override that matches | as asked |
//! | 2 | rank 0, 1, 4 and above | AdamW |
//! | 3 | owned by an embedding, convolution, normalisation, depth-attention or LoRA module | AdamW |
//! | 4 | an output head, by name (`lm_head`, `head`, `classifier`, `unembed`, .. ; `output` outside layers) | AdamW |
//! | 5 | an embedding or a convolution, by name (`wte`, `pos_emb`, `conv`, ..) | AdamW |
//! | 6 | a raw parameter whose own name says it is no matrix (`dt_bias`, `a_log`, `gamma`, `queries`, ..) | AdamW |
//! | 7 | a matrix or stack of `1 x n`, `n x 1` or without elements | AdamW |
//! | 8 | rank 3 `[E, n, m]` under a path or type that says `expert` | Muon, `E` matrices |
//! | 9 | any other rank 3 | AdamW |
//! | 10 | rank 2 | Muon |
//!
//! A parameter used in several places (one id, several paths) gets one optimizer: the user's override on
//! any of its paths, or else AdamW if any of its uses asks for AdamW.
//!
//! Router and gate projections that are `Linear` layers are hidden matrices, as in Moonlight
//! ([arXiv:2502.16982](https://arxiv.org/abs/2502.16982)); only the gates' vectors go to AdamW.
//!
//! What cannot be seen: the last layer of an unnamed stack (`layers: Vec<Linear>`) is an output head only
//! for its author, and a fused projection (`qkv`, `gate_up`) counts as one matrix. Name the first with
//! [`with_adamw`], and split the second.
//!
//! [`with_muon`]: crate::MuonClipConfig::with_muon
//! [`with_adamw`]: crate::MuonClipConfig::with_adamw

mod names;
mod plan;
mod rule;

pub use plan::{ParamEntry, ParamPlan, RouteOverride};
pub use rule::{Reason, Route};
