use burn::tensor::{Bool, DType, Tensor};

use super::MaxLogitOptions;
use crate::precision::working_dtype;

/// Inputs that fit each other, detached.
pub(super) struct Inputs {
    /// `[B, H, T, D]`.
    pub(super) q: Tensor<4>,
    /// `[B, G, S, D]`.
    pub(super) k: Tensor<4>,
    pub(super) mask: Option<Tensor<4, Bool>>,
    pub(super) sizes: Sizes,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Sizes {
    pub(super) batch: usize,
    pub(super) heads: usize,
    pub(super) key_heads: usize,
    pub(super) queries: usize,
    pub(super) keys: usize,
    pub(super) dim: usize,
    pub(super) scale: f64,
    pub(super) causal: bool,
    /// Whether the mask hides anything.
    pub(super) masked: bool,
}

impl Sizes {
    /// How many keys the query may see, as far as causality is concerned.
    pub(super) fn visible(&self, query: usize) -> usize {
        if self.causal {
            (query + 1 + self.keys).saturating_sub(self.queries)
        } else {
            self.keys
        }
    }
}

impl Inputs {
    /// # Panics
    /// As [`max_logit`](super::max_logit).
    pub(super) fn new(q: Tensor<4>, k: Tensor<4>, options: &MaxLogitOptions) -> Self {
        let [batch, heads, queries, dim] = q.dims();
        let [key_batch, key_heads, keys, key_dim] = k.dims();
        assert!(
            batch == key_batch && dim == key_dim && dim > 0,
            "max_logit: queries {:?} and keys {:?} must agree in the first and the last axis, which must not be empty",
            q.dims(),
            k.dims()
        );
        assert!(
            key_heads > 0 && heads.is_multiple_of(key_heads),
            "max_logit: {heads} query heads are not a multiple of {key_heads} key heads"
        );
        assert!(
            q.dtype() == k.dtype(),
            "max_logit: queries are {:?}, keys are {:?}",
            q.dtype(),
            k.dtype()
        );
        if let Some(mask) = &options.mask {
            let wanted = [batch, heads, queries, keys];
            let mut axes = mask.dims().into_iter().zip(wanted);
            assert!(
                axes.all(|(is, wanted)| is == 1 || is == wanted),
                "max_logit: a mask {:?} does not fit {wanted:?}; an axis may be 1",
                mask.dims()
            );
        }
        Self {
            sizes: Sizes {
                batch,
                heads,
                key_heads,
                queries,
                keys,
                dim,
                scale: options.scale_for(dim),
                causal: options.causal,
                masked: options.mask.is_some(),
            },
            q: q.inner(),
            k: k.inner(),
            mask: options.mask.clone().map(Tensor::inner),
        }
    }

    /// Whether there is no logit at all.
    pub(super) fn is_empty(&self) -> bool {
        let Sizes {
            batch,
            queries,
            keys,
            ..
        } = self.sizes;
        batch == 0 || queries == 0 || keys == 0
    }

    /// The result where no pair is visible.
    pub(super) fn nothing_visible(&self) -> Tensor<1> {
        let dtype = DType::from(working_dtype(self.q.dtype()));
        let heads = [self.sizes.heads];
        Tensor::full(heads, f64::NEG_INFINITY, (&self.q.device(), dtype))
    }
}
