use burn::tensor::{Bool, Tensor};

use super::inputs::Inputs;
use super::primitive;

/// How logits are scaled, and which pairs of a query and a key count.
#[derive(Clone, Debug, Default)]
pub struct MaxLogitOptions {
    /// What a product of query and key is multiplied by: the softmax's scale, all of it. `1 / sqrt(D)` if it is `None`.
    pub scale: Option<f64>,
    /// Whether the last query sees all keys, and every one before it one key less.
    pub causal: bool,
    /// `true` hides a pair, as in Burn's attention. Each axis of `[B, H, T, S]` may be 1 instead, which then stands for all of it: padded keys are a
    /// mask `[B, 1, 1, S]`.
    pub mask: Option<Tensor<4, Bool>>,
}

impl MaxLogitOptions {
    /// Every pair, scaled by `1 / sqrt(D)`.
    pub fn new() -> Self {
        Self::default()
    }

    /// Multiplies products by `scale`.
    pub fn with_scale(self, scale: f64) -> Self {
        Self {
            scale: Some(scale),
            ..self
        }
    }

    /// Hides keys that are later than the query.
    pub fn with_causal(self, causal: bool) -> Self {
        Self { causal, ..self }
    }

    /// Hides the pairs for which `mask` is `true`.
    pub fn with_mask(self, mask: Tensor<4, Bool>) -> Self {
        Self {
            mask: Some(mask),
            ..self
        }
    }

    /// The scale for queries of this width.
    pub(super) fn scale_for(&self, dim: usize) -> f64 {
        let scale = self.scale.unwrap_or_else(|| (dim as f64).sqrt().recip());
        assert!(
            scale.is_finite() && scale > 0.0,
            "max_logit: `scale` must be positive and finite, got {scale}"
        );
        scale
    }
}

/// The largest logit of every head, `[H]` in `f32` (`f64` for `f64` queries), of queries `[B, H, T, D]` and keys `[B, G, S, D]`, where `H` is a
/// multiple of `G` and query head `h` reads key head `h / (H / G)`.
///
/// * Only visible pairs count; what a hidden row or column holds, NaN too, is nothing. A head without a visible pair has `-inf`.
/// * A visible logit that is NaN counts as `+inf`: a maximum that is not finite says that there is nothing to trust.
/// * Not differentiable: the result is detached, whatever the inputs are.
///
/// The logits of a block of queries and a block of keys exist at a time, never all of them.
///
/// # Panics
/// If shapes do not fit each other, or the scale is not positive and finite.
///
/// # Example
/// ```
/// use burn::tensor::{Device, Distribution, Tensor};
/// use burn_muonclip::{MaxLogitOptions, max_logit};
///
/// let device = Device::default();
/// let random = |shape: [usize; 4]| Tensor::<4>::random(shape, Distribution::Default, &device);
/// let (q, k) = (random([2, 8, 100, 64]), random([2, 2, 100, 64])); // eight query heads, two key heads
/// let largest = max_logit(q, k, &MaxLogitOptions::new().with_causal(true));
/// assert_eq!(largest.dims(), [8]);
/// ```
pub fn max_logit(q: Tensor<4>, k: Tensor<4>, options: &MaxLogitOptions) -> Tensor<1> {
    let inputs = Inputs::new(q, k, options);
    if inputs.is_empty() {
        return inputs.nothing_visible();
    }
    #[cfg(feature = "kernels")]
    if super::definition::serves(&inputs.q) {
        return super::definition::run(inputs);
    }
    primitive::max_logit(&inputs)
}
