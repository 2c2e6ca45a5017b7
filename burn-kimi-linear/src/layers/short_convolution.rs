use burn::config::Config;
use burn::module::{Module, Param};
use burn::nn::Initializer;
use burn::tensor::{Device, Tensor, assert_shape};

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

/// Depthwise causal convolution over time, without bias or activation:
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

        let seen = Tensor::cat(vec![window, x], 1);
        let weight = self.weight.val().permute([2, 1, 0]);
        let y = (0..kernel_size)
            .map(|j| seen.clone().slice_dim(1, j..j + tokens) * weight.clone().narrow(0, j, 1))
            .reduce(|sum, term| sum + term)
            .expect("kernel_size is at least 1");
        (y, seen.slice_dim(1, tokens..tokens + past))
    }
}
