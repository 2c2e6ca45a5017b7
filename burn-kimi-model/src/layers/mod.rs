//! The sub-layers of a decoder.

mod attention;
mod feed_forward;

pub use attention::Attention;
pub use feed_forward::{FeedForward, FeedForwardConfig};
