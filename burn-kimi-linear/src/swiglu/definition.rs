use burn::backend::{Backend, backend_extension, tensor::FloatTensor};

/// The product as an extension of the CPU backend.
#[backend_extension(Flex: cfg(feature = "flex"), Autodiff)]
pub(super) trait SwigluOps: Backend {
    /// `silu(gate) up`, of one shape.
    fn swiglu(gate: FloatTensor<Self>, up: FloatTensor<Self>) -> FloatTensor<Self>;

    /// The gradients of `gate` and `up` from that of the result.
    fn swiglu_backward(
        gate: FloatTensor<Self>,
        up: FloatTensor<Self>,
        gradient: FloatTensor<Self>,
    ) -> (FloatTensor<Self>, FloatTensor<Self>);
}
