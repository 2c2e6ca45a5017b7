//! The operator as Flex sees it.

use burn::backend::tensor::{BoolTensor, FloatTensor};
use burn::backend::{Backend, Dispatch, backend_extension};
use burn::tensor::{Bool, Tensor};

use super::inputs::{Inputs, Sizes};

/// The largest logits as an extension of a backend.
#[backend_extension(Flex: cfg(feature = "flex"))]
pub(super) trait MaxLogitOps: Backend {
    /// The largest logit of every head, `[H]` in `f32`, of queries and keys that are not empty. Without a mask `mask` is one `false`.
    fn max_logit(
        q: FloatTensor<Self>,
        k: FloatTensor<Self>,
        mask: BoolTensor<Self>,
        sizes: Sizes,
    ) -> FloatTensor<Self>;
}

pub(super) fn on_flex(inputs: Inputs) -> Tensor<1> {
    let Inputs { q, k, mask, sizes } = inputs;
    let mask = mask.unwrap_or_else(|| Tensor::<4, Bool>::zeros([1; 4], &q.device()));
    let (q, k, mask) = (q.into_dispatch(), k.into_dispatch(), mask.into_dispatch());
    Tensor::from_dispatch(Dispatch::max_logit(q, k, mask, sizes))
}
