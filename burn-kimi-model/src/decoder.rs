use burn::module::Module;
use burn::nn::{Embedding, EmbeddingConfig, Linear, LinearConfig, RmsNorm, RmsNormConfig};
use burn::tensor::{Device, Int, Tensor};
use burn_attnres::AttnRes;
use burn_muonclip::qk_clip::QkClip;

use crate::config::DecoderConfig;
use crate::layers::{Attention, FeedForward, FeedForwardConfig};
use crate::qk_clip::LogitWatch;
use crate::residual::ResidualStream;
use crate::state::{DecoderState, LayerState};

/// A causal language model of the Kimi family.
///
/// Projections are fields under the names of the released tensors.
#[derive(Module, Debug)]
pub struct Decoder {
    /// `[vocab_size, hidden_size]`.
    pub embed_tokens: Embedding,
    /// The layers, first to last.
    pub layers: Vec<DecoderLayer>,
    /// Queries and norms of the attention over depth; `None` where sub-layers are summed.
    pub attn_res: Option<AttnRes>,
    /// Norm before the output head.
    pub norm: RmsNorm,
    /// `[hidden_size, vocab_size]`, not tied to the embedding.
    pub lm_head: Linear,
}

impl Decoder {
    /// Logits of the token after each one: `tokens` is `[B, T]`, the result `[B, T, vocab_size]`.
    pub fn forward(&self, tokens: Tensor<2, Int>) -> Tensor<3> {
        self.forward_with_state(tokens, self.init_state()).0
    }

    /// Like [`forward`](Self::forward), and lets `qk_clip` have the attention logits of a training step: without autodiff nothing is recorded.
    ///
    /// ```
    /// use burn::optim::GradientsParams;
    /// use burn::tensor::{Device, Int, Tensor};
    /// use burn_kimi_model::DecoderConfig;
    /// use burn_muonclip::MuonClipConfig;
    /// use burn_muonclip::qk_clip::QkClipConfig;
    ///
    /// let device = Device::default().autodiff();
    /// let mut model = DecoderConfig::new(16, 8, 4, 2, 4, 16).init(&device);
    /// let qk_clip = model.qk_clip(&QkClipConfig::new()).unwrap();
    /// let mut optimizer = MuonClipConfig::new().init_fused(&model).with_qk_clip(qk_clip.clone());
    ///
    /// let tokens = Tensor::<2, Int>::from_data([[1, 2, 3, 4]], &device);
    /// let loss = model.forward_watched(tokens, &qk_clip).powi_scalar(2).mean();
    /// let grads = GradientsParams::from_grads(loss.backward(), &model);
    /// model = optimizer.step(1e-3, model, grads);
    /// println!("{}", qk_clip.last_report().unwrap());
    /// ```
    pub fn forward_watched(&self, tokens: Tensor<2, Int>, qk_clip: &QkClip) -> Tensor<3> {
        let watch = Some(LogitWatch::new(qk_clip));
        self.run(tokens, self.init_state(), watch).0
    }

    /// The state before the first token, for a batch of any size.
    pub fn init_state(&self) -> DecoderState {
        DecoderState::new(self.layers.len())
    }

    /// Continues from `state`; returns the logits of `tokens` and the state after them. Without tokens the logits are empty
    /// and the state comes back as it went in.
    ///
    /// # Panics
    ///
    /// If `state` belongs to another batch or another model.
    pub fn forward_with_state(
        &self,
        tokens: Tensor<2, Int>,
        state: DecoderState,
    ) -> (Tensor<3>, DecoderState) {
        self.run(tokens, state, None)
    }

    fn run(
        &self,
        tokens: Tensor<2, Int>,
        state: DecoderState,
        watch: Option<LogitWatch<'_>>,
    ) -> (Tensor<3>, DecoderState) {
        assert_eq!(
            state.layers.len(),
            self.layers.len(),
            "Decoder: a state of {} layers was given to a model of {}",
            state.layers.len(),
            self.layers.len()
        );
        let [batch, count] = tokens.dims();
        if batch == 0 || count == 0 {
            let [_, vocab_size] = self.lm_head.weight.dims();
            let logits = Tensor::zeros([batch, count, vocab_size], &tokens.device());
            return (logits, state);
        }
        let seen = state.tokens + count;
        let embedding = self.embed_tokens.forward(tokens);
        let mut stream = ResidualStream::start(self.attn_res.as_ref(), embedding);
        let layers = self
            .layers
            .iter()
            .zip(state.layers)
            .map(|(layer, state)| Some(layer.forward(&mut stream, state, watch)))
            .collect();
        let logits = self.lm_head.forward(self.norm.forward(stream.finish()));
        let state = DecoderState {
            layers,
            tokens: seen,
        };
        (logits, state)
    }
}

/// One transformer layer: attention, then feed-forward, each behind its own norm.
#[derive(Module, Debug)]
pub struct DecoderLayer {
    /// Norm before the attention.
    pub input_layernorm: RmsNorm,
    /// The attention.
    pub self_attn: Attention,
    /// Norm before the feed-forward.
    pub post_attention_layernorm: RmsNorm,
    /// The feed-forward.
    pub mlp: FeedForward,
}

impl DecoderLayer {
    /// Runs both sub-layers on the stream and returns the attention's new state.
    pub(crate) fn forward(
        &self,
        stream: &mut ResidualStream<'_>,
        state: Option<LayerState>,
        watch: Option<LogitWatch<'_>>,
    ) -> LayerState {
        let x = self.input_layernorm.forward(stream.read());
        let (y, state) = self.self_attn.forward(x, state, watch);
        stream.write(y);

        let x = self.post_attention_layernorm.forward(stream.read());
        stream.write(self.mlp.forward(x));
        state
    }
}

impl DecoderConfig {
    /// Creates the decoder with fresh weights: the embedding standard normal, projections as Burn's `Linear`.
    ///
    /// # Panics
    ///
    /// If [`validate`](Self::validate) refuses the config.
    pub fn init(&self, device: &Device) -> Decoder {
        if let Err(error) = self.validate() {
            panic!("DecoderConfig: {error}");
        }
        let norm = RmsNormConfig::new(self.hidden_size).with_epsilon(self.rms_norm_eps);
        let feed_forward = FeedForwardConfig::new(self.hidden_size, self.intermediate_size);
        let layer = |index| DecoderLayer {
            input_layernorm: norm.init(device),
            self_attn: Attention::new(self.attention.kind(index), self, device),
            post_attention_layernorm: norm.init(device),
            mlp: feed_forward.init(device),
        };
        Decoder {
            embed_tokens: EmbeddingConfig::new(self.vocab_size, self.hidden_size).init(device),
            layers: (0..self.num_layers).map(layer).collect(),
            attn_res: self.residual.init(
                self.hidden_size,
                self.num_sublayers(),
                self.rms_norm_eps,
                device,
            ),
            norm: norm.init(device),
            lm_head: LinearConfig::new(self.hidden_size, self.vocab_size)
                .with_bias(false)
                .init(device),
        }
    }
}
