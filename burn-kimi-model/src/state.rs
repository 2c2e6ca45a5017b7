use burn_kimi_linear::{KimiDeltaAttentionState, MultiHeadLatentAttentionState};

/// What one layer remembers of the tokens before.
#[derive(Clone, Debug)]
#[allow(clippy::large_enum_variant)] // A handful of tensor handles either way.
pub(crate) enum LayerState {
    /// Memory matrices and convolution windows: constant in size.
    Kda(KimiDeltaAttentionState),
    /// Latents: one row a token.
    Mla(MultiHeadLatentAttentionState),
}

impl LayerState {
    /// # Panics
    ///
    /// If it belongs to latent attention.
    pub(crate) fn into_kda(self) -> KimiDeltaAttentionState {
        match self {
            Self::Kda(state) => state,
            Self::Mla(_) => {
                panic!("a delta attention layer was given the state of latent attention")
            }
        }
    }

    /// # Panics
    ///
    /// If it belongs to delta attention.
    pub(crate) fn into_mla(self) -> MultiHeadLatentAttentionState {
        match self {
            Self::Mla(state) => state,
            Self::Kda(_) => {
                panic!("a latent attention layer was given the state of delta attention")
            }
        }
    }
}

/// What a [`Decoder`](crate::Decoder) remembers of the tokens before: a value, so a clone is a fork.
#[derive(Clone, Debug)]
pub struct DecoderState {
    /// One entry a layer, empty before the first token.
    pub(crate) layers: Vec<Option<LayerState>>,
    pub(crate) tokens: usize,
}

impl DecoderState {
    pub(crate) fn new(layers: usize) -> Self {
        Self {
            layers: vec![None; layers],
            tokens: 0,
        }
    }

    /// Tokens seen so far, by each sequence of the batch.
    pub fn tokens(&self) -> usize {
        self.tokens
    }
}
