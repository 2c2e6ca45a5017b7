//! Which dtype is computed in.

use burn::tensor::DType;

/// The dtype that decay, sums, norms and scores are computed in: half precision loses them, and only `f64` may stay what it is.
pub fn compute_dtype(storage: DType) -> DType {
    match storage {
        DType::F64 => DType::F64,
        _ => DType::F32,
    }
}

/// Whether kernels take tensors of this dtype: they store it, and compute in `f32`.
pub fn is_for_kernels(dtype: DType) -> bool {
    matches!(dtype, DType::F32 | DType::Flex32 | DType::F16 | DType::BF16)
}
