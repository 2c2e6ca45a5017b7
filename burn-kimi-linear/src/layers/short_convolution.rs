use burn::config::Config;
use burn::module::{Module, Param};
use burn::nn::Initializer;
use burn::tensor::{Device, Tensor, assert_shape};

use crate::short_convolution::{Activation, short_convolution};

/// Settings of a [`ShortConvolution`].
#[derive(Config, Debug)]
pub struct ShortConvolutionConfig {
    /// Channels, each with its own kernel.
    pub channels: usize,
    /// Tokens that a kernel sees, itself included.
    #[config(default = 4)]
    pub kernel_size: usize,
}

impl ShortConvolutionConfig {
    /// Creates the layer, weights uniform in `±1/sqrt(kernel_size)`.
    ///
    /// # Panics
    ///
    /// If `kernel_size` is 0.
    pub fn init(&self, device: &Device) -> ShortConvolution {
        assert!(
            self.kernel_size > 0,
            "ShortConvolution: kernel_size must be at least 1"
        );
        let bound = (self.kernel_size as f64).powf(-0.5);
        let initializer = Initializer::Uniform {
            min: -bound,
            max: bound,
        };
        ShortConvolution {
            weight: initializer.init([self.channels, 1, self.kernel_size], device),
        }
    }
}

/// Depthwise causal convolution over time, without bias:
/// `y_t = sum_j weight[:, 0, j] x_{t - (kernel_size - 1) + j}`.
#[derive(Module, Debug)]
pub struct ShortConvolution {
    /// `[channels, 1, kernel_size]`, the newest token last.
    pub weight: Param<Tensor<3>>,
}

impl ShortConvolution {
    /// Convolves `x`, `[B, T, channels]`, with the `kernel_size - 1` inputs before it. Without `window` those are zeros.
    ///
    /// Returns the output, `[B, T, channels]`, and the window for the tokens that follow, `[B, kernel_size - 1, channels]`.
    ///
    /// # Panics
    ///
    /// If `x` or `window` has another shape.
    pub fn forward(&self, x: Tensor<3>, window: Option<Tensor<3>>) -> (Tensor<3>, Tensor<3>) {
        self.forward_with(x, window, Activation::Identity)
    }

    /// [`forward`](Self::forward) with the output through SiLU, `y sigmoid(y)`, as delta attention has it; on the CPU in one pass.
    ///
    /// # Panics
    ///
    /// If `x` or `window` has another shape.
    pub fn forward_silu(&self, x: Tensor<3>, window: Option<Tensor<3>>) -> (Tensor<3>, Tensor<3>) {
        self.forward_with(x, window, Activation::Silu)
    }

    fn forward_with(
        &self,
        x: Tensor<3>,
        window: Option<Tensor<3>>,
        activation: Activation,
    ) -> (Tensor<3>, Tensor<3>) {
        let [channels, _, kernel_size] = self.weight.dims();
        let [batch, tokens, _] = x.dims();
        assert_shape!(x, [batch, tokens, channels]);
        let past = kernel_size - 1;
        let window = match window {
            Some(window) => {
                assert_shape!(window, [batch, past, channels]);
                window
            }
            None => Tensor::zeros([batch, past, channels], (&x.device(), x.dtype())),
        };
        let next = match tokens < past {
            true => Tensor::cat(vec![window.clone(), x.clone()], 1),
            false => x.clone(),
        };
        let [_, seen, _] = next.dims();
        let next = next.slice_dim(1, seen - past..seen);
        let y = short_convolution(x, self.weight.val(), window, activation);
        (y, next)
    }
}
