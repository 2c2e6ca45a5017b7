use burn::backend::{Backend, backend_extension, tensor::FloatTensor};

/// The gated norm as an extension of the CPU backend.
#[backend_extension(Flex: cfg(feature = "flex"), Autodiff)]
pub(super) trait GatedNormOps: Backend {
    /// Like `x`, `[.., D]`, and `gate` like it; `weight` is `[D]`.
    fn gated_norm(
        x: FloatTensor<Self>,
        gate: FloatTensor<Self>,
        weight: FloatTensor<Self>,
        epsilon: f64,
    ) -> FloatTensor<Self>;

    /// The gradients of `x`, `gate` and `weight` from that of the result.
    fn gated_norm_backward(
        x: FloatTensor<Self>,
        gate: FloatTensor<Self>,
        weight: FloatTensor<Self>,
        gradient: FloatTensor<Self>,
        epsilon: f64,
    ) -> (FloatTensor<Self>, FloatTensor<Self>, FloatTensor<Self>);
}
