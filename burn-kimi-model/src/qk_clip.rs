//! The glue between attention layers and QK-Clip: what their weights look like, and their logits.

use burn::tensor::Tensor;
use burn_kimi_linear::MultiHeadLatentAttention;
use burn_muonclip::MaxLogitOptions;
use burn_muonclip::qk_clip::{
    LatentWidths, LogitRecorder, QkClip, QkClipConfig, QkClipError, QkLayer, Unclippable,
};

use crate::decoder::Decoder;
use crate::layers::Attention;

impl Decoder {
    /// QK-Clip for this decoder: its layers of latent attention are clipped; those of delta attention have no softmax, and reports say so.
    ///
    /// [`forward_watched`](Self::forward_watched) gives it the logits.
    ///
    /// # Errors
    /// [`QkClipError::Setting`] if a setting is out of range.
    pub fn qk_clip(&self, config: &QkClipConfig) -> Result<QkClip, QkClipError> {
        let name = |index: usize| format!("layers.{index}.self_attn");
        let (mut layers, mut skipped) = (Vec::new(), Vec::new());
        for (index, layer) in self.layers.iter().enumerate() {
            match &layer.self_attn {
                Attention::Mla(attention) => layers.push(describe(name(index), attention)),
                Attention::Kda(_) => skipped.push(name(index)),
            }
        }
        let clip = config.init(self, layers, LogitRecorder::new())?;
        Ok(skipped.into_iter().fold(clip, |clip, name| {
            clip.skipping(name, Unclippable::NoSoftmax)
        }))
    }
}

/// The weights of latent attention.
fn describe(name: String, attention: &MultiHeadLatentAttention) -> QkLayer {
    let heads = attention.num_heads;
    let nope = attention.qk_nope_head_dim;
    let per_head = |columns: [usize; 2]| columns[1] / heads - nope;
    let widths = LatentWidths {
        nope,
        rope: per_head(attention.q_proj.weight.dims()),
        value: per_head(attention.kv_b_proj.weight.dims()),
    };
    QkLayer::latent(name, &attention.q_proj, &attention.kv_b_proj, heads, widths)
}

/// Where the logits of a forward pass go.
#[derive(Clone, Copy)]
pub(crate) struct LogitWatch<'a> {
    recorder: &'a LogitRecorder,
    threshold: Option<f64>,
}

impl<'a> LogitWatch<'a> {
    pub(crate) fn new(qk_clip: &'a QkClip) -> Self {
        Self {
            recorder: qk_clip.recorder(),
            threshold: qk_clip.config().bound(),
        }
    }

    /// The queries and keys of a layer.
    pub(crate) fn observe(&self, layer: &MultiHeadLatentAttention, q: &Tensor<4>, k: &Tensor<4>) {
        let options = MaxLogitOptions::new().with_causal(true);
        let (q, k) = (q.clone(), k.clone());
        self.recorder
            .observe(&layer.q_proj, q, k, &options, self.threshold);
    }
}
