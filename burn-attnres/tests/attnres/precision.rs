//! Half precision storage with f32 arithmetic inside.

use burn::tensor::{DType, Device, Tensor};
use burn_attnres::{depth_attention, depth_attention_with_weights};

use crate::case::{self, Shape, cotangents, inputs, rounded};
use crate::numbers::{assert_close, numbers, tensor, to_f64};

const SHAPE: Shape = Shape {
    n: 9,
    batch: 2,
    tokens: 5,
    d: 200,
};

/// The largest relative error of rounding to the nearest number of the type.
fn half_ulp(dtype: DType) -> f64 {
    match dtype {
        DType::BF16 => 2f64.powi(-8),
        DType::F16 => 2f64.powi(-11),
        other => panic!("{other:?} is no half precision type"),
    }
}

/// Each element is the exact result rounded once, up to the error of f32 arithmetic.
#[track_caller]
fn assert_rounded_once(name: &str, got: &[f64], want: &[f64], dtype: DType) {
    for (i, (got, want)) in got.iter().zip(want).enumerate() {
        let allowed = 1.01 * half_ulp(dtype) * want.abs() + 1e-5;
        assert!(
            (got - want).abs() <= allowed,
            "{name}[{i}]: got {got}, want {want}, allowed difference {allowed}"
        );
    }
}

#[test]
fn the_result_is_rounded_once() {
    let device = Device::flex().autodiff();
    for dtype in [DType::BF16, DType::F16] {
        let read = rounded(&inputs(SHAPE, 1, 1e-6), dtype);
        let got = case::run(&read, SHAPE, dtype, &cotangents(SHAPE, 1), &device);
        assert_rounded_once("h", &got.output, &read.output(), dtype);
        // The weights are not rounded at all.
        assert_close("p", &got.weights, &read.weights(), 1e-5);
    }
}

#[test]
fn gradients_are_rounded_once() {
    let device = Device::flex().autodiff();
    let (g, mut a) = cotangents(SHAPE, 2);
    a.fill(0.0);
    for dtype in [DType::BF16, DType::F16] {
        let g = to_f64(tensor(&g, [g.len()], dtype, &device));
        let read = rounded(&inputs(SHAPE, 2, 1e-6), dtype);
        let got = case::run(&read, SHAPE, dtype, &(g.clone(), a.clone()), &device).gradients;
        let want = read.gradients(&g, &a);
        for (got, want) in got.sources.iter().zip(&want.sources) {
            assert_rounded_once("dv", got, want, dtype);
        }
        assert_rounded_once("dquery", &got.query, &want.query, dtype);
        assert_rounded_once("dgamma", &got.gamma, &want.gamma, dtype);
    }
}

/// Mixed precision training: activations in bf16, parameters and their gradients in f32.
#[test]
fn parameters_may_be_wider_than_the_sources() {
    let device = Device::flex().autodiff();
    let read = rounded(&inputs(SHAPE, 3, 1e-6), DType::BF16);
    let dims = [SHAPE.batch, SHAPE.tokens, SHAPE.d];
    let sources: Vec<Tensor<3>> = read
        .sources
        .iter()
        .map(|v| tensor(v, dims, DType::BF16, &device).require_grad())
        .collect();
    let query = tensor::<1>(&read.query, [SHAPE.d], DType::F32, &device).require_grad();
    let gamma = tensor::<1>(&read.gamma, [SHAPE.d], DType::F32, &device);

    let h = depth_attention(&sources, query.clone(), gamma, 1e-6);
    assert_eq!(h.dtype(), DType::BF16);
    let g = tensor::<3>(&cotangents(SHAPE, 3).0, dims, DType::BF16, &device);
    let gradients = (h * g.clone()).sum().backward();
    let got = query.grad(&gradients).expect("gradient of the query");
    assert_eq!(got.dtype(), DType::F32);
    let no_weights = vec![0.0; SHAPE.n * SHAPE.batch * SHAPE.tokens];
    let want = read.gradients(&to_f64(g), &no_weights);
    assert_close("dquery", &to_f64(got), &want.query, 1e-4);
    let got = sources[0].grad(&gradients).expect("gradient of a source");
    assert_eq!(got.dtype(), DType::BF16);
}

#[test]
fn large_logits_in_bf16() {
    let device = Device::flex();
    let sources: Vec<Tensor<3>> = (0..3)
        .map(|i| tensor(&numbers(i, 64), [1, 1, 64], DType::BF16, &device))
        .collect();
    let query = Tensor::full([64], 100.0, (&device, DType::BF16));
    let gamma = Tensor::ones([64], (&device, DType::BF16));
    let (h, p) = depth_attention_with_weights(&sources, query, gamma, 1e-6);
    let p = to_f64(p);
    let chosen = p.iter().position(|&p| p > 0.999).expect("one source wins");
    assert_eq!(to_f64(h), to_f64(sources[chosen].clone()));
}
