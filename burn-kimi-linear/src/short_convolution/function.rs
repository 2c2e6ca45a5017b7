use burn::tensor::Tensor;

#[cfg(feature = "flex")]
use super::cpu::MOST_TAPS;
#[cfg(feature = "flex")]
use super::definition::ShortConvolutionOps;
use super::reference::reference;

/// What the sums of a convolution go through.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Activation {
    /// Nothing.
    Identity,
    /// `a sigmoid(a)`.
    Silu,
}

/// The convolution of `x`, `[B, T, C]`, with the taps `[C, 1, W]` behind the inputs `window`, `[B, W - 1, C]`.
///
/// On the CPU a kernel reads and writes every number once. Elsewhere it is primitive operations, which Burn's fusion joins.
pub(crate) fn short_convolution(
    x: Tensor<3>,
    weight: Tensor<3>,
    window: Tensor<3>,
    activation: Activation,
) -> Tensor<3> {
    #[cfg(feature = "flex")]
    if burn_kimi_kernels::cpu::serves(&x) && weight.dims()[2] <= MOST_TAPS {
        return Tensor::from_dispatch(burn::backend::Dispatch::short_convolution(
            x.into_dispatch(),
            weight.into_dispatch(),
            window.into_dispatch(),
            activation,
        ));
    }
    reference(x, weight, window, activation)
}
