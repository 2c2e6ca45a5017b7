//! Which optimizer trains which parameter, and with which weight decay.
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
//! # Weight decay
//!
//! Both optimizers decay what they train, norm gains and biases included, as Moonlight and Kimi K2 do. Again
//! the first rule that applies decides:
//!
//! | # | parameter | weight decay |
//! |---|---|---|
//! | 1 | named by the user ([`with_group_weight_decay`]); the last override that matches | as asked |
//! | 2 | owned by a depth-attention module (`AttnRes`, `DepthAttention`, `DepthRead`, ..) | none |
//! | 3 | a raw parameter named `a_log` or `dt_bias` | none |
//! | 4 | any other | [`weight_decay`] |
//!
//! Rule 2 is there because a query of depth attention that decays towards zero mixes all depths alike. Rule 3
//! is how the authors of gated linear attention train these time scales (Flash Linear Attention marks both as
//! not to be decayed). A shared parameter has one weight decay: the user's for any of its paths, or else none if
//! any of its uses has none.
//!
//! # Gate projections
//!
//! Router and gate projections that are `Linear` layers are hidden matrices, as in Moonlight
//! ([arXiv:2502.16982](https://arxiv.org/abs/2502.16982)); only the gates' vectors go to AdamW. For the gate
//! projections of Kimi Delta Attention (`f_a`, `f_b`, `g_a`, `g_b`, `b`) this was also measured, with
//! `train-lm --steps 150 --warmup 30 --eval-tokens 16384 --eval-every 150 --seed S` and weight decay on every
//! parameter:
//!
//! | gate projections by | validation loss, seed 0 | seed 1 |
//! |---|---|---|
//! | Muon | 1.6913 nats per byte | 1.6100 |
//! | AdamW | 1.7347 nats per byte | 1.6284 |
//!
//! To train them by AdamW nevertheless:
//!
//! ```
//! use burn::module::ParamGroup;
//! use burn_muonclip::MuonClipConfig;
//!
//! let gates = ParamGroup::from_regex(r"\b(f_a|f_b|g_a|g_b|b)_proj\.weight$").unwrap();
//! let config = MuonClipConfig::new().with_adamw(gates);
//! # assert_eq!(config.overrides.len(), 1);
//! ```
//!
//! # Limits
//!
//! What cannot be seen: the last layer of an unnamed stack (`layers: Vec<Linear>`) is an output head only
//! for its author, and a fused projection (`qkv`, `gate_up`) counts as one matrix. Name the first with
//! [`with_adamw`], and the blocks of the second with [`with_column_blocks`].
//!
//! [`with_column_blocks`]: crate::MuonClipConfig::with_column_blocks
//! [`with_muon`]: crate::MuonClipConfig::with_muon
//! [`with_adamw`]: crate::MuonClipConfig::with_adamw
//! [`with_group_weight_decay`]: crate::MuonClipConfig::with_group_weight_decay
//! [`weight_decay`]: crate::MuonClipConfig::weight_decay

mod names;
mod plan;
mod planner;
mod rule;

pub use plan::{BlocksOverride, ParamEntry, ParamPlan, RouteOverride, WeightDecayOverride};
pub(crate) use planner::{Wishes, plan};
pub use rule::{Reason, Route};
