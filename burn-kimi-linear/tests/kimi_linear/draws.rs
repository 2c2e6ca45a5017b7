//! Numbers that look random and are the same in every run: a comparison that only some numbers fail is found today or never.

use std::cell::Cell;

use burn::tensor::{Device, Tensor, TensorData};

thread_local! {
    /// Draws of this thread so far. Every test has a thread of its own.
    static DRAWS: Cell<u64> = const { Cell::new(0) };
}

/// From a normal distribution around 0.
pub(crate) fn normal<const D: usize>(shape: [usize; D], deviation: f64) -> TensorData {
    let draw = DRAWS.get();
    DRAWS.set(draw + 1);
    let mut state = draw << 32;
    let mut uniform = || {
        state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = state;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        ((z ^ (z >> 31)) >> 11) as f64 / (1u64 << 53) as f64
    };
    // Box and Muller.
    let mut number = || {
        let (radius, angle) = (uniform(), uniform());
        let radius = (-2.0 * (1.0 - radius).ln()).sqrt();
        (deviation * radius * (std::f64::consts::TAU * angle).cos()) as f32
    };
    let numbers = (0..shape.iter().product()).map(|_| number());
    TensorData::new(numbers.collect::<Vec<_>>(), shape)
}

/// The same as a tensor.
pub(crate) fn normal_on<const D: usize>(shape: [usize; D], device: &Device) -> Tensor<D> {
    Tensor::from_data(normal(shape, 1.0), device)
}
