//! Deterministic inputs, and comparison of numbers.

use burn::tensor::{DType, Device, Tensor, TensorData};

/// `len` numbers in [-1, 1), the same for the same seed.
pub(crate) fn numbers(seed: u64, len: usize) -> Vec<f64> {
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    (0..len)
        .map(|_| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state >> 11) as f64 / (1u64 << 52) as f64 - 1.0
        })
        .collect()
}

/// A tensor of these numbers, rounded to `dtype`.
pub(crate) fn tensor<const D: usize>(
    values: &[f64],
    shape: [usize; D],
    dtype: DType,
    device: &Device,
) -> Tensor<D> {
    let data = TensorData::new(values.to_vec(), shape).convert_dtype(dtype);
    Tensor::from_data(data, (device, dtype))
}

/// The numbers of a tensor, in row-major order, widened exactly.
pub(crate) fn to_f64<const D: usize>(tensor: Tensor<D>) -> Vec<f64> {
    tensor
        .into_data()
        .convert_dtype(DType::F64)
        .try_to_vec()
        .expect("f64 data")
}

/// Every difference is at most `tolerance * (1 + |want|)`; the inputs of these tests are of order 1.
#[track_caller]
pub(crate) fn assert_close(name: &str, got: &[f64], want: &[f64], tolerance: f64) {
    assert_eq!(got.len(), want.len(), "{name}: number of elements");
    for (i, (got, want)) in got.iter().zip(want).enumerate() {
        assert!(
            (got - want).abs() <= tolerance * (1.0 + want.abs()),
            "{name}[{i}]: got {got}, want {want}, tolerance {tolerance}"
        );
    }
}
