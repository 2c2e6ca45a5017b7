//! The operator as a backend sees it: plain tensors that were checked, and two functions.

use burn::backend::{Backend, backend_extension, tensor::FloatTensor};
use burn_kimi_kernels::list::TensorList;

/// Depth attention as an extension of a backend.
#[backend_extension(Flex: cfg(feature = "flex"), Autodiff)]
pub(super) trait DepthAttentionOps: Backend {
    /// `h`, like a source, and the weights `[n, batch, tokens]` in `f32`, of at least two sources `[batch, tokens, d]` and `u`, the product of query
    /// and gamma, `[d]` in `f32`.
    fn depth_attention(
        #[extension_type] sources: TensorList<Self>,
        u: FloatTensor<Self>,
        eps: f64,
    ) -> (FloatTensor<Self>, FloatTensor<Self>);

    /// The gradients of the sources and of `u` from those of `h` and of the weights.
    ///
    /// Nothing of the forward pass is saved but its inputs: a source is read once either way.
    fn depth_attention_backward(
        #[extension_type] sources: TensorList<Self>,
        u: FloatTensor<Self>,
        h_grad: FloatTensor<Self>,
        weights_grad: FloatTensor<Self>,
        eps: f64,
    ) -> (TensorList<Self>, FloatTensor<Self>);
}
