//! The models: alike in everything but what mixes their tokens.

mod answers;
mod gated_linear_attention;
mod gates;
mod network;
mod softmax_attention;
mod token_mixer;

pub use answers::{accuracy, answer_loss};
pub use gated_linear_attention::gated_linear_attention;
pub use gates::MemoryGates;
pub use network::{Block, Network};
pub use token_mixer::TokenMixer;
