//! The dtype in which optimizer arithmetic and states are kept.

use burn::tensor::{DType, FloatDType};

/// f64 for f64 parameters, f32 for everything else.
///
/// Momentum is a sum of up to `1 / (1 - mu)` gradients and Adam's second moment squares them: in f16 the
/// first overflows at 65504 and the second underflows for gradients below 2e-4, and in bf16 both lose
/// the contributions of small gradients.
pub(crate) fn working_dtype(dtype: DType) -> FloatDType {
    match dtype {
        DType::F64 => FloatDType::F64,
        _ => FloatDType::F32,
    }
}
