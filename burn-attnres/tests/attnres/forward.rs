//! The read against the equations in f64.

use burn::tensor::{DType, Device, Tensor};
use burn_attnres::{depth_attention, depth_attention_with_weights};
use proptest::prelude::*;

use crate::case::{self, Shape, cotangents, inputs, rounded};
use crate::formula::Read;
use crate::numbers::{assert_close, numbers, tensor, to_f64};

fn check(shape: Shape, seed: u64, eps: f64) {
    let device = Device::flex().autodiff();
    for (dtype, tolerance) in [(DType::F32, 1e-5), (DType::F64, 1e-12)] {
        let read = rounded(&inputs(shape, seed, eps), dtype);
        let got = case::run(&read, shape, dtype, &cotangents(shape, seed), &device);
        assert_close("h", &got.output, &read.output(), tolerance);
        assert_close("p", &got.weights, &read.weights(), tolerance);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn agrees_with_the_equations(
        n in 1usize..12, batch in 1usize..4, tokens in 1usize..6, d in 1usize..40,
        seed in 0u64..1000, eps in prop_oneof![Just(1e-6), Just(1e-5), Just(0.1)],
    ) {
        check(Shape { n, batch, tokens, d }, seed, eps);
    }
}

#[test]
fn any_number_of_sources() {
    for n in [1, 2, 17, 33, 65, 200] {
        let shape = Shape {
            n,
            batch: 1,
            tokens: 2,
            d: 12,
        };
        check(shape, n as u64, 1e-6);
    }
}

#[test]
fn any_width() {
    for d in [1, 3, 33, 150, 1000, 7186] {
        let shape = Shape {
            n: 3,
            batch: 1,
            tokens: 2,
            d,
        };
        check(shape, d as u64, 1e-6);
    }
}

#[test]
fn no_tokens_is_an_empty_read() {
    for (batch, tokens) in [(1, 0), (0, 3)] {
        let device = Device::flex();
        let sources = vec![Tensor::<3>::zeros([batch, tokens, 4], &device); 3];
        let query = Tensor::ones([4], &device);
        let gamma = Tensor::ones([4], &device);
        let (h, p) = depth_attention_with_weights(&sources, query, gamma, 1e-6);
        assert_eq!(h.dims(), [batch, tokens, 4]);
        assert_eq!(p.dims(), [3, batch, tokens]);
    }
}

/// One token, d = 4, no eps: the logit of a one-hot vector is its sign times sqrt(4).
fn worked_example(query: [f32; 4]) -> (Vec<f64>, Vec<f64>) {
    let device = Device::flex();
    let sources = [
        Tensor::from_data([[[2.0, 0.0, 0.0, 0.0]]], &device),
        Tensor::from_data([[[0.0, 1.0, 0.0, 0.0]]], &device),
    ];
    let query = Tensor::from_data(query, &device);
    let (h, p) = depth_attention_with_weights(&sources, query, Tensor::ones([4], &device), 0.0);
    (to_f64(h), to_f64(p))
}

#[test]
fn keys_are_rms_normalised_and_logits_unscaled() {
    let (_, p) = worked_example([1.0, 1.0, 0.0, 0.0]);
    assert_close("p, both keys alike", &p, &[0.5, 0.5], 1e-6);

    // Logits 2 and 0. An L2 norm with 1/sqrt(d) would give 0.6225.
    let (_, p) = worked_example([1.0, 0.0, 0.0, 0.0]);
    assert_close("p", &p, &[0.880797, 0.119203], 1e-6);
}

#[test]
fn values_are_not_normalised() {
    let (h, _) = worked_example([1.0, 0.0, 0.0, 0.0]);
    assert_close("h", &h, &[1.761594, 0.119203, 0.0, 0.0], 1e-6);
}

#[test]
fn gamma_scales_the_keys_alone() {
    let shape = Shape {
        n: 4,
        batch: 2,
        tokens: 3,
        d: 10,
    };
    let read = inputs(shape, 7, 1e-6);
    // Moving a factor from gamma to the query leaves everything as it was.
    let moved = Read {
        query: read.query.iter().map(|x| 4.0 * x).collect(),
        gamma: read.gamma.iter().map(|x| x / 4.0).collect(),
        ..read.clone()
    };
    let device = Device::flex().autodiff();
    let cotangents = cotangents(shape, 7);
    let a = case::run(&read, shape, DType::F64, &cotangents, &device);
    let b = case::run(&moved, shape, DType::F64, &cotangents, &device);
    assert_close("h", &a.output, &b.output, 1e-14);
}

#[test]
fn zero_query_gives_the_mean() {
    let device = Device::flex();
    let sources: Vec<Tensor<3>> = (0..5)
        .map(|i| tensor(&numbers(i, 24), [2, 3, 4], DType::F32, &device))
        .collect();
    let mean = sources.iter().cloned().reduce(|a, b| a + b).unwrap() / 5.0;
    let zero = Tensor::zeros([4], &device);
    let gamma = tensor(&numbers(9, 4), [4], DType::F32, &device);
    let h = depth_attention(&sources, zero, gamma, 1e-6);
    assert_close("h", &to_f64(h), &to_f64(mean), 1e-6);
}

#[test]
fn a_zero_source_has_logit_zero() {
    let shape = Shape {
        n: 3,
        batch: 1,
        tokens: 4,
        d: 8,
    };
    let mut read = rounded(&inputs(shape, 3, 1e-6), DType::F32);
    read.sources[1].fill(0.0);
    let device = Device::flex().autodiff();
    let cotangents = cotangents(shape, 3);
    let got = case::run(&read, shape, DType::F32, &cotangents, &device);
    assert_close("h", &got.output, &read.output(), 1e-5);
    let want = read.gradients(&cotangents.0, &cotangents.1);
    // The gradient at a zero vector is dz * u / sqrt(eps): large, but finite and right.
    for (i, (got, want)) in got.gradients.sources.iter().zip(&want.sources).enumerate() {
        assert_close(&format!("dv{i}"), got, want, 1e-4);
    }

    read.sources.iter_mut().for_each(|source| source.fill(0.0));
    let got = case::run(&read, shape, DType::F32, &cotangents, &device);
    assert!(got.output.iter().all(|&x| x == 0.0));
    assert_close("p", &got.weights, &read.weights(), 1e-6);
}

/// Logits of a few thousand: the exponential of one alone would overflow.
#[test]
fn large_logits_choose_one_source() {
    let shape = Shape {
        n: 5,
        batch: 1,
        tokens: 6,
        d: 16,
    };
    for sign in [1.0, -1.0] {
        let mut read = inputs(shape, 5, 1e-6);
        read.query.fill(sign * 400.0);
        let read = rounded(&read, DType::F32);
        let device = Device::flex().autodiff();
        let cotangents = cotangents(shape, 5);
        let got = case::run(&read, shape, DType::F32, &cotangents, &device);
        let gradients = got.gradients;
        let all = [
            &got.output,
            &got.weights,
            &gradients.query,
            &gradients.gamma,
        ];
        for values in all.into_iter().chain(&gradients.sources) {
            assert!(values.iter().all(|x| x.is_finite()));
        }
        assert_close("p", &got.weights, &read.weights(), 1e-3);
        assert!(got.weights.iter().filter(|&&p| p > 0.99).count() >= 5);
    }
}

#[test]
fn views_give_the_same_numbers_as_copies() {
    let device = Device::flex();
    // [tokens, batch, d] seen as [batch, tokens, d], the middle of a longer row, and a broadcast over tokens.
    let transposed = tensor::<3>(&numbers(1, 40), [5, 2, 4], DType::F32, &device).swap_dims(0, 1);
    let sliced =
        tensor::<3>(&numbers(2, 140), [2, 7, 10], DType::F32, &device).slice([0..2, 1..6, 3..7]);
    let expanded = tensor::<3>(&numbers(3, 8), [2, 1, 4], DType::F32, &device).expand([2, 5, 4]);
    let query = tensor::<2>(&numbers(4, 12), [4, 3], DType::F32, &device)
        .swap_dims(0, 1)
        .slice([1..2, 0..4])
        .squeeze_dim::<1>(0);
    let gamma = tensor::<1>(&numbers(5, 6), [6], DType::F32, &device).slice(1..5);

    let views = [transposed, sliced, expanded];
    let read = Read {
        sources: views.iter().map(|v| to_f64(v.clone())).collect(),
        query: to_f64(query.clone()),
        gamma: to_f64(gamma.clone()),
        eps: 1e-6,
    };
    let (h, p) = depth_attention_with_weights(&views, query, gamma, 1e-6);
    assert_close("h", &to_f64(h), &read.output(), 1e-5);
    assert_close("p", &to_f64(p), &read.weights(), 1e-5);
}

#[test]
fn weights_are_a_convex_combination() {
    let shape = Shape {
        n: 7,
        batch: 2,
        tokens: 5,
        d: 9,
    };
    let read = inputs(shape, 11, 1e-6);
    let device = Device::flex().autodiff();
    let got = case::run(&read, shape, DType::F64, &cotangents(shape, 11), &device);
    let norm = |v: &[f64]| v.iter().map(|x| x * x).sum::<f64>().sqrt();
    for token in 0..10 {
        let sum: f64 = (0..7).map(|i| got.weights[i * 10 + token]).sum();
        assert!((sum - 1.0).abs() < 1e-14);
        let row = token * 9..(token + 1) * 9;
        let longest = read
            .sources
            .iter()
            .map(|v| norm(&v[row.clone()]))
            .fold(0.0, f64::max);
        assert!(norm(&got.output[row]) <= longest * (1.0 + 1e-14));
    }
    assert!(got.weights.iter().all(|&p| p > 0.0));
}

#[test]
fn without_eps_the_weights_ignore_the_length_of_the_sources() {
    let shape = Shape {
        n: 4,
        batch: 1,
        tokens: 3,
        d: 6,
    };
    let read = inputs(shape, 13, 0.0);
    let mut scaled = read.clone();
    for (i, source) in scaled.sources.iter_mut().enumerate() {
        let factor = 0.01 * 10f64.powi(i as i32);
        source.iter_mut().for_each(|x| *x *= factor);
    }
    let device = Device::flex().autodiff();
    let cotangents = cotangents(shape, 13);
    let a = case::run(&read, shape, DType::F64, &cotangents, &device);
    let b = case::run(&scaled, shape, DType::F64, &cotangents, &device);
    assert_close("p", &b.weights, &a.weights, 1e-12);
}

#[test]
fn reordering_the_sources_reorders_the_weights() {
    let shape = Shape {
        n: 5,
        batch: 1,
        tokens: 3,
        d: 6,
    };
    let read = inputs(shape, 17, 1e-6);
    let order = [3, 0, 4, 1, 2];
    let mut permuted = read.clone();
    permuted.sources = order.iter().map(|&i| read.sources[i].clone()).collect();
    let device = Device::flex().autodiff();
    let cotangents = cotangents(shape, 17);
    let a = case::run(&read, shape, DType::F64, &cotangents, &device);
    let b = case::run(&permuted, shape, DType::F64, &cotangents, &device);
    assert_close("h", &b.output, &a.output, 1e-14);
    for (to, from) in order.into_iter().enumerate() {
        let want = &a.weights[from * 3..(from + 1) * 3];
        assert_close("p", &b.weights[to * 3..(to + 1) * 3], want, 1e-14);
    }
}

/// All keys shifted along the query by the same amount: the softmax only sees differences.
#[test]
fn a_constant_added_to_all_logits_changes_nothing() {
    let device = Device::flex();
    // Vectors of the same length whose first feature is the same: only its logit term is common to all.
    let rows = [
        [1.0, 0.5, -0.5, 0.2],
        [1.0, -0.5, 0.2, 0.5],
        [1.0, 0.2, 0.5, 0.5],
    ];
    let sources: Vec<Tensor<3>> = rows
        .iter()
        .map(|row| tensor(row, [1, 1, 4], DType::F64, &device))
        .collect();
    let weights = |first: f64| {
        let query = tensor(&[first, 1.0, 2.0, -1.0], [4], DType::F64, &device);
        let gamma = Tensor::ones([4], (&device, DType::F64));
        to_f64(depth_attention_with_weights(&sources, query, gamma, 1e-6).1)
    };
    assert_close("p", &weights(500.0), &weights(0.0), 1e-11);
}
