use burn::backend::{Backend, backend_extension, tensor::FloatTensor};

/// Newton-Schulz as an extension of a backend.
#[backend_extension(Flex: cfg(feature = "flex"))]
pub(super) trait NewtonSchulzOps: Backend {
    /// The orthogonalised matrices of `x: [batch, n, m]`, none of which is empty, in `f32`.
    fn newton_schulz(x: FloatTensor<Self>, steps: Vec<[f64; 3]>) -> FloatTensor<Self>;
}
