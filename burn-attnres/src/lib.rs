#![doc = include_str!("../README.md")]
#![cfg_attr(docsrs, feature(doc_cfg))]

mod depth_attention;
mod schedule;

mod attn_res;
mod state;

pub use attn_res::{AttnRes, AttnResConfig, DepthRead};
pub use depth_attention::{depth_attention, depth_attention_with_weights};
pub use schedule::{BlockPlan, Schedule, ScheduleError, Source};
pub use state::AttnResState;
