use burn::module::{Module, ModuleVisitor, Param};
use burn::nn::{Embedding, EmbeddingConfig, Linear, LinearConfig, RmsNorm, RmsNormConfig};
use burn::tensor::{Device, Int, Tensor};
use burn_kimi_linear::KimiDeltaAttentionConfig;
use burn_kimi_model::layers::{FeedForward, FeedForwardConfig};

use super::TokenMixer;
use crate::synthetic::{Arm, ModelSettings};

/// A small causal language model: pre-norm blocks that are summed, an embedding below and a head above.
#[derive(Module, Debug)]
pub struct Network {
    /// `[vocabulary, d_model]`.
    pub embedding: Embedding,
    /// The blocks, first to last.
    pub blocks: Vec<Block>,
    /// Norm before the head.
    pub norm: RmsNorm,
    /// `[d_model, vocabulary]`.
    pub head: Linear,
}

/// A token mixer and a feed-forward part, each behind its own norm.
#[derive(Module, Debug)]
pub struct Block {
    /// Norm before the token mixer.
    pub mixer_norm: RmsNorm,
    /// What the arms differ in.
    pub mixer: TokenMixer,
    /// Norm before the feed-forward part.
    pub feed_forward_norm: RmsNorm,
    /// The feed-forward part.
    pub feed_forward: FeedForward,
}

impl Network {
    /// A network whose weights follow from the arguments.
    pub fn seeded(
        vocabulary: usize,
        arm: Arm,
        sizes: &ModelSettings,
        seed: u64,
        device: &Device,
    ) -> Self {
        device.seed(seed);
        let norm = RmsNormConfig::new(sizes.hidden);
        let attention = KimiDeltaAttentionConfig::new(sizes.hidden, sizes.heads, sizes.head_dim);
        let block = |_| Block {
            mixer_norm: norm.init(device),
            // Drawn whole, also where an arm drops some of it, so that one seed gives all arms the same weights in what they share.
            mixer: TokenMixer::from_layer(arm, drawn(attention.init(device))),
            feed_forward_norm: norm.init(device),
            feed_forward: FeedForwardConfig::new(sizes.hidden, sizes.ffn).init(device),
        };
        drawn(Self {
            blocks: (0..sizes.layers).map(block).collect(),
            embedding: EmbeddingConfig::new(vocabulary, sizes.hidden).init(device),
            norm: norm.init(device),
            head: LinearConfig::new(sizes.hidden, vocabulary)
                .with_bias(false)
                .init(device),
        })
    }

    /// Logits of the token after each one: `tokens` is `[B, T]`, the result `[B, T, vocabulary]`.
    pub fn forward(&self, tokens: Tensor<2, Int>) -> Tensor<3> {
        let mut x = self.embedding.forward(tokens);
        for block in &self.blocks {
            x = x.clone() + block.mixer.forward(block.mixer_norm.forward(x));
            let inner = block.feed_forward_norm.forward(x.clone());
            x = x + block.feed_forward.forward(inner);
        }
        self.head.forward(self.norm.forward(x))
    }
}

/// Draws the weights of `module` now, in the order of its fields. Burn draws weights when they are first read, so that otherwise
/// the order of the first forward pass would decide what is drawn.
fn drawn<M: Module>(module: M) -> M {
    struct Draw;
    impl ModuleVisitor for Draw {
        fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
            param.val();
        }
    }
    module.visit(&mut Draw);
    module
}
