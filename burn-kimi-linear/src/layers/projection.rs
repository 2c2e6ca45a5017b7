use burn::nn::{Linear, LinearConfig};
use burn::tensor::Device;

/// Every projection of these layers is without bias, as in the released checkpoints.
pub(super) fn projection(d_input: usize, d_output: usize, device: &Device) -> Linear {
    LinearConfig::new(d_input, d_output)
        .with_bias(false)
        .init(device)
}
