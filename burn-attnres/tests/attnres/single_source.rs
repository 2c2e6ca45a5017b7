//! One source: the read is the source, and its parameters do not matter.

use std::slice::from_ref;

use burn::tensor::{DType, Device, Tensor, TensorData};
use burn_attnres::{depth_attention, depth_attention_with_weights};

use crate::numbers::{numbers, tensor, to_f64};

/// Ordinary numbers with signed zeros and the smallest and largest ones.
fn awkward_numbers() -> Vec<f32> {
    let mut values: Vec<f32> = numbers(1, 24).iter().map(|&x| x as f32).collect();
    values[..5].copy_from_slice(&[-0.0, 0.0, f32::MIN_POSITIVE, -f32::MAX, 1e-42]);
    values
}

fn bits(tensor: Tensor<3>) -> Vec<u32> {
    let values: Vec<f32> = tensor.into_data().try_to_vec().expect("f32 data");
    values.into_iter().map(f32::to_bits).collect()
}

#[test]
fn is_returned_bit_for_bit() {
    let want: Vec<u32> = awkward_numbers().into_iter().map(f32::to_bits).collect();
    for device in [Device::flex(), Device::flex().autodiff()] {
        let data = TensorData::new(awkward_numbers(), [2, 3, 4]);
        let source = Tensor::<3>::from_data(data, &device);
        let parameter = |seed| {
            let values = tensor::<1>(&numbers(seed, 4), [4], DType::F32, &device);
            values.set_require_grad(device.is_autodiff())
        };
        let (query, gamma) = (parameter(2), parameter(3));
        let (h, p) = depth_attention_with_weights(&[source], query, gamma, 1e-6);
        assert_eq!(bits(h), want);
        assert_eq!(p.dims(), [1, 2, 3]);
        assert!(to_f64(p).iter().all(|&p| p == 1.0));
    }
}

#[test]
fn half_precision_is_not_rounded_again() {
    for dtype in [DType::BF16, DType::F16] {
        let device = Device::flex().autodiff();
        let source = tensor::<3>(&numbers(4, 24), [2, 3, 4], dtype, &device);
        let query = tensor(&numbers(5, 4), [4], DType::F32, &device).require_grad();
        let gamma = Tensor::ones([4], &device);
        let h = depth_attention(from_ref(&source), query, gamma, 1e-6);
        assert_eq!(h.dtype(), dtype);
        assert_eq!(to_f64(h), to_f64(source));
    }
}

#[test]
fn gradients_of_query_and_gamma_are_exactly_zero() {
    let device = Device::flex().autodiff();
    let source = tensor::<3>(&numbers(6, 60), [3, 5, 4], DType::F32, &device).require_grad();
    let query = tensor::<1>(&numbers(7, 4), [4], DType::F32, &device).require_grad();
    let gamma = tensor::<1>(&numbers(8, 4), [4], DType::F32, &device).require_grad();
    let g = tensor::<3>(&numbers(9, 60), [3, 5, 4], DType::F32, &device);

    let h = depth_attention(from_ref(&source), query.clone(), gamma.clone(), 1e-6);
    let gradients = (h * g.clone()).sum().backward();
    let of = |x: &Tensor<1>| to_f64(x.grad(&gradients).expect("a gradient, though zero"));
    assert_eq!(of(&query), [0.0; 4]);
    assert_eq!(of(&gamma), [0.0; 4]);
    let source = source.grad(&gradients).expect("gradient of the source");
    assert_eq!(to_f64(source), to_f64(g));
}
