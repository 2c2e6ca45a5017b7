use burn::nn::RmsNorm;
use burn::tensor::{Tensor, activation::sigmoid};

/// `norm(x) sigmoid(gate)`, where `x` and `gate` are `[B, T, H, D]`.
///
/// On the CPU a kernel reads and writes every number once. Elsewhere it is primitive operations, which Burn's fusion joins.
pub(crate) fn gated_norm(norm: &RmsNorm, x: Tensor<4>, gate: Tensor<4>) -> Tensor<4> {
    #[cfg(feature = "flex")]
    if burn_kimi_kernels::cpu::serves(&x) {
        use super::definition::GatedNormOps;
        return Tensor::from_dispatch(burn::backend::Dispatch::gated_norm(
            x.into_dispatch(),
            gate.into_dispatch(),
            norm.gamma.val().into_dispatch(),
            norm.epsilon,
        ));
    }
    norm.forward(x) * sigmoid(gate)
}
