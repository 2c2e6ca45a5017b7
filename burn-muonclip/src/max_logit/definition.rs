//! The operator as a backend sees it.

#[cfg(feature = "cube")]
use burn::backend::fusion::custom::TensorSpec;
use burn::backend::tensor::{BoolTensor, FloatTensor};
use burn::backend::{Backend, Dispatch, backend_extension};
#[cfg(feature = "cube")]
use burn::tensor::DType;
use burn::tensor::{Bool, Tensor};

use super::inputs::{Inputs, Sizes};

/// The largest logits as an extension of a backend.
#[backend_extension(
    Flex: cfg(feature = "flex"),
    Cube: cfg(feature = "cube"),
    Fusion: cfg(feature = "cube")
)]
pub(super) trait MaxLogitOps: Backend {
    /// The largest logit of every head, `[H]` in `f32`, of queries and keys that are not empty. Without a mask `mask` is one `false`.
    #[fusion(meta = one_a_head)]
    fn max_logit(
        q: FloatTensor<Self>,
        k: FloatTensor<Self>,
        mask: BoolTensor<Self>,
        sizes: Sizes,
    ) -> FloatTensor<Self>;
}

#[cfg(feature = "cube")]
fn one_a_head(_q: &TensorSpec, _k: &TensorSpec, _mask: &TensorSpec, sizes: &Sizes) -> TensorSpec {
    TensorSpec::new([sizes.heads].into(), DType::F32)
}

/// Whether the device has a kernel, and the inputs are for it.
pub(super) fn serves(q: &Tensor<4>) -> bool {
    #[cfg(feature = "flex")]
    if burn_kimi_kernels::cpu::serves(q) {
        return true;
    }
    #[cfg(feature = "cube")]
    if burn_kimi_kernels::cube::serves(q) {
        return true;
    }
    false
}

pub(super) fn run(inputs: Inputs) -> Tensor<1> {
    let Inputs { q, k, mask, sizes } = inputs;
    let mask = mask.unwrap_or_else(|| Tensor::<4, Bool>::zeros([1; 4], &q.device()));
    let (q, k, mask) = (q.into_dispatch(), k.into_dispatch(), mask.into_dispatch());
    Tensor::from_dispatch(Dispatch::max_logit(q, k, mask, sizes))
}
