use burn::tensor::{Tensor, activation::silu};

/// `silu(gate) * up`, element by element.
///
/// On the CPU a kernel reads and writes every number once. Elsewhere it is primitive operations, which Burn's fusion joins.
///
/// # Panics
///
/// If `gate` and `up` differ in shape.
pub fn swiglu<const D: usize>(gate: Tensor<D>, up: Tensor<D>) -> Tensor<D> {
    assert_eq!(
        gate.dims(),
        up.dims(),
        "swiglu: gate and up differ in shape"
    );
    #[cfg(feature = "flex")]
    if burn_kimi_kernels::cpu::serves(&gate) && gate.dtype() == up.dtype() {
        use super::definition::SwigluOps;
        return Tensor::from_dispatch(burn::backend::Dispatch::swiglu(
            gate.into_dispatch(),
            up.into_dispatch(),
        ));
    }
    silu(gate) * up
}
