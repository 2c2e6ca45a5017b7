use burn::tensor::{Tensor, activation::silu};

use super::Activation;

/// The convolution from primitive operations, as its equation has it.
pub(super) fn reference(
    x: Tensor<3>,
    weight: Tensor<3>,
    window: Tensor<3>,
    activation: Activation,
) -> Tensor<3> {
    let [_, tokens, _] = x.dims();
    let [_, _, taps] = weight.dims();
    let seen = Tensor::cat(vec![window, x], 1);
    let weight = weight.permute([2, 1, 0]);
    let sum = (0..taps)
        .map(|j| seen.clone().slice_dim(1, j..j + tokens) * weight.clone().narrow(0, j, 1))
        .reduce(|sum, term| sum + term)
        .expect("a convolution has taps");
    match activation {
        Activation::Identity => sum,
        Activation::Silu => silu(sum),
    }
}
