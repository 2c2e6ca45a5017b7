use burn::module::Module;
use burn::nn::Linear;
use burn::nn::attention::{MhaInput, MhaOutput, MultiHeadAttention};
use burn::tensor::{Bool, Tensor};

use super::LogitRecorder;
use crate::max_logit::MaxLogitOptions;

/// What goes into Burn's attention. Its own `MhaInput` does not let others look at it.
#[derive(Clone, Debug)]
pub struct AttentionInput {
    /// `[B, T, d_model]`.
    pub query: Tensor<3>,
    /// `[B, S, d_model]`.
    pub key: Tensor<3>,
    /// `[B, S, d_model]`.
    pub value: Tensor<3>,
    /// `[B, S]`, `true` for padding.
    pub mask_pad: Option<Tensor<2, Bool>>,
    /// `[B, T, S]`, `true` for pairs that do not see each other.
    pub mask_attn: Option<Tensor<3, Bool>>,
}

impl AttentionInput {
    /// Queries, keys and values from one tensor `[B, T, d_model]`.
    pub fn self_attn(x: Tensor<3>) -> Self {
        Self::new(x.clone(), x.clone(), x)
    }

    /// Without masks.
    pub fn new(query: Tensor<3>, key: Tensor<3>, value: Tensor<3>) -> Self {
        Self {
            query,
            key,
            value,
            mask_pad: None,
            mask_attn: None,
        }
    }

    /// Hides padded keys.
    pub fn mask_pad(self, mask: Tensor<2, Bool>) -> Self {
        Self {
            mask_pad: Some(mask),
            ..self
        }
    }

    /// Hides pairs.
    pub fn mask_attn(self, mask: Tensor<3, Bool>) -> Self {
        Self {
            mask_attn: Some(mask),
            ..self
        }
    }

    /// The pairs that do not count, `[B, 1, T | 1, S]`.
    fn hidden(&self) -> Option<Tensor<4, Bool>> {
        let pad = self.mask_pad.clone().map(|mask| {
            let [batch, keys] = mask.dims();
            mask.reshape([batch, 1, 1, keys])
        });
        let pairs = self.mask_attn.clone().map(|mask| {
            let [batch, queries, keys] = mask.dims();
            mask.reshape([batch, 1, queries, keys])
        });
        match (pad, pairs) {
            (Some(pad), Some(pairs)) => {
                let shape = pairs.dims();
                Some(pad.expand(shape).bool_or(pairs))
            }
            (pad, pairs) => pad.or(pairs),
        }
    }
}

impl From<AttentionInput> for MhaInput {
    fn from(input: AttentionInput) -> Self {
        let mut given = Self::new(input.query, input.key, input.value);
        if let Some(mask) = input.mask_pad {
            given = given.mask_pad(mask);
        }
        if let Some(mask) = input.mask_attn {
            given = given.mask_attn(mask);
        }
        given
    }
}

/// Burn's attention, `attention.forward(input)`, with its largest logits recorded.
///
/// In training queries and keys are projected once more for it, outside of the graph; without autodiff nothing is added. `threshold` is that of
/// [`LogitRecorder::observe`].
pub fn attend(
    attention: &MultiHeadAttention,
    input: AttentionInput,
    recorder: &LogitRecorder,
    threshold: Option<f64>,
) -> MhaOutput {
    if input.query.is_autodiff() {
        let heads = |linear: &Linear, x: &Tensor<3>| {
            let x = linear.valid().forward(x.clone().inner());
            let [batch, tokens, _] = x.dims();
            x.reshape([batch, tokens, attention.n_heads, attention.d_k])
                .swap_dims(1, 2)
        };
        let mut options = MaxLogitOptions::new();
        options.mask = input.hidden();
        let q = heads(&attention.query, &input.query);
        let k = heads(&attention.key, &input.key);
        recorder.observe_plain(&attention.query, q, k, &options, threshold);
    }
    attention.forward(input.into())
}
