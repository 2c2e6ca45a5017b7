use burn::tensor::{Tensor, activation::silu};

/// `silu(gate) * up`, element by element.
///
/// On the CPU a kernel reads and writes every number once. On GPUs Burn's fusion makes one kernel of the primitive operations.
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
    if crate::cpu::serves(&gate) && gate.dtype() == up.dtype() && gate.shape().num_elements() > 0 {
        use super::definition::SwigluOps;
        return Tensor::from_dispatch(burn::backend::Dispatch::swiglu(
            gate.into_dispatch(),
            up.into_dispatch(),
        ));
    }
    silu(gate) * up
}
