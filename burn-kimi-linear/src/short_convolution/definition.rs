use burn::backend::{Backend, backend_extension, tensor::FloatTensor};

use super::Activation;

/// The convolution as an extension of the CPU backend.
#[backend_extension(Flex: cfg(feature = "flex"), Autodiff)]
pub(super) trait ShortConvolutionOps: Backend {
    /// `[B, T, C]` from `x` like it, `weight`, `[C, 1, W]`, and `window`, `[B, W - 1, C]`.
    fn short_convolution(
        x: FloatTensor<Self>,
        weight: FloatTensor<Self>,
        window: FloatTensor<Self>,
        activation: Activation,
    ) -> FloatTensor<Self>;

    /// The gradients of `x`, `weight` and `window` from that of the result.
    fn short_convolution_backward(
        x: FloatTensor<Self>,
        weight: FloatTensor<Self>,
        window: FloatTensor<Self>,
        gradient: FloatTensor<Self>,
        activation: Activation,
    ) -> (FloatTensor<Self>, FloatTensor<Self>, FloatTensor<Self>);
}
