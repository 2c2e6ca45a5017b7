//! Gradients against the derivation in f64 and against finite differences of the operator itself.

use burn::tensor::{DType, Device, Tensor};
use burn_attnres::depth_attention;
use proptest::prelude::*;

use crate::case::{self, Shape, cotangents, inputs, rounded};
use crate::formula::{Gradients, Read};
use crate::numbers::{assert_close, numbers, tensor, to_f64};

fn assert_gradients(got: &Gradients, want: &Gradients, tolerance: f64) {
    for (i, (got, want)) in got.sources.iter().zip(&want.sources).enumerate() {
        assert_close(&format!("dv{i}"), got, want, tolerance);
    }
    assert_close("dquery", &got.query, &want.query, tolerance);
    assert_close("dgamma", &got.gamma, &want.gamma, tolerance);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn agrees_with_the_derivation(
        n in 1usize..10, batch in 1usize..4, tokens in 1usize..5, d in 2usize..32,
        seed in 0u64..1000,
    ) {
        let shape = Shape { n, batch, tokens, d };
        let device = Device::flex().autodiff();
        let cotangents = cotangents(shape, seed);
        for (dtype, tolerance) in [(DType::F32, 2e-5), (DType::F64, 1e-12)] {
            let read = rounded(&inputs(shape, seed, 1e-5), dtype);
            let cotangents = (
                to_f64(tensor(&cotangents.0, [cotangents.0.len()], dtype, &device)),
                to_f64(tensor(&cotangents.1, [cotangents.1.len()], dtype, &device)),
            );
            let got = case::run(&read, shape, dtype, &cotangents, &device);
            let want = read.gradients(&cotangents.0, &cotangents.1);
            assert_gradients(&got.gradients, &want, tolerance);
        }
    }
}

/// `sum(h * g) + sum(p * a)` as the operator computes it in f64.
fn loss(read: &Read, shape: Shape, cotangents: &(Vec<f64>, Vec<f64>)) -> f64 {
    let device = Device::flex().autodiff();
    let got = case::run(read, shape, DType::F64, cotangents, &device);
    let dot = |x: &[f64], y: &[f64]| x.iter().zip(y).map(|(x, y)| x * y).sum::<f64>();
    dot(&got.output, &cotangents.0) + dot(&got.weights, &cotangents.1)
}

#[test]
fn agrees_with_finite_differences() {
    let shape = Shape {
        n: 4,
        batch: 2,
        tokens: 2,
        d: 5,
    };
    let read = inputs(shape, 21, 1e-3);
    let cotangents = cotangents(shape, 21);
    let device = Device::flex().autodiff();
    let got = case::run(&read, shape, DType::F64, &cotangents, &device).gradients;

    let difference = |field: fn(&mut Read, usize) -> &mut f64, index: usize| {
        let step = 1e-5;
        let at = |offset: f64| {
            let mut moved = read.clone();
            *field(&mut moved, index) += offset;
            loss(&moved, shape, &cotangents)
        };
        (at(step) - at(-step)) / (2.0 * step)
    };
    let row = shape.batch * shape.tokens * shape.d;
    let want = Gradients {
        sources: (0..shape.n)
            .map(|i| {
                (i * row..(i + 1) * row)
                    .map(|index| difference(|read, index| source_entry(read, index), index))
                    .collect()
            })
            .collect(),
        query: (0..shape.d)
            .map(|index| difference(|read, index| &mut read.query[index], index))
            .collect(),
        gamma: (0..shape.d)
            .map(|index| difference(|read, index| &mut read.gamma[index], index))
            .collect(),
    };
    assert_gradients(&got, &want, 1e-8);
}

fn source_entry(read: &mut Read, index: usize) -> &mut f64 {
    let row = read.sources[0].len();
    &mut read.sources[index / row][index % row]
}

#[test]
fn many_sources_and_odd_widths() {
    let device = Device::flex().autodiff();
    for (n, d) in [(17, 33), (33, 150), (65, 3), (2, 1000)] {
        let shape = Shape {
            n,
            batch: 1,
            tokens: 3,
            d,
        };
        let read = inputs(shape, 23, 1e-6);
        let cotangents = cotangents(shape, 23);
        let got = case::run(&read, shape, DType::F64, &cotangents, &device);
        let want = read.gradients(&cotangents.0, &cotangents.1);
        assert_gradients(&got.gradients, &want, 1e-11);
    }
}

#[test]
fn zero_query_splits_the_gradient_evenly() {
    let shape = Shape {
        n: 4,
        batch: 1,
        tokens: 3,
        d: 6,
    };
    let mut read = inputs(shape, 29, 1e-6);
    read.query.fill(0.0);
    let (g, mut a) = cotangents(shape, 29);
    a.fill(0.0);
    let device = Device::flex().autodiff();
    let got = case::run(&read, shape, DType::F64, &(g.clone(), a), &device).gradients;
    let quarter: Vec<f64> = g.iter().map(|x| x / 4.0).collect();
    for source in &got.sources {
        assert_close("dv", source, &quarter, 1e-15);
    }
    assert!(got.gamma.iter().all(|&x| x == 0.0));
    assert!(
        got.query.iter().any(|&x| x.abs() > 1e-3),
        "a zero query must learn"
    );
}

/// A source passed as a view carries its gradient back to the tensor it is a view of.
#[test]
fn views_are_not_detached() {
    let device = Device::flex().autodiff();
    let values: Vec<_> = (0..3).map(|i| numbers(40 + i, 30)).collect();
    let query = tensor::<1>(&numbers(43, 3), [3], DType::F64, &device);
    let gamma = Tensor::<1>::ones([3], (&device, DType::F64));
    let g = tensor::<3>(&numbers(44, 30), [2, 5, 3], DType::F64, &device);

    let leaves = |shape: [usize; 3]| -> Vec<Tensor<3>> {
        values
            .iter()
            .map(|v| tensor(v, shape, DType::F64, &device).require_grad())
            .collect()
    };
    let run = |leaves: &[Tensor<3>], view: fn(Tensor<3>) -> Tensor<3>| -> Vec<Vec<f64>> {
        let sources: Vec<_> = leaves.iter().cloned().map(view).collect();
        let h = depth_attention(&sources, query.clone(), gamma.clone(), 1e-6);
        let gradients = (h * g.clone()).sum().backward();
        leaves
            .iter()
            .map(|leaf| to_f64(leaf.grad(&gradients).expect("gradient through the view")))
            .collect()
    };

    // The same numbers as [5, 2, 3], and read through a transposition after a transposing copy.
    let stored = leaves([5, 2, 3]);
    let viewed = run(&stored, |v| v.swap_dims(0, 1));
    let copied: Vec<Tensor<3>> = stored
        .iter()
        .map(|v| Tensor::from_data(v.clone().swap_dims(0, 1).into_data(), (&device, DType::F64)))
        .map(|v: Tensor<3>| v.require_grad())
        .collect();
    let direct = run(&copied, |v| v);
    for (viewed, direct) in viewed.iter().zip(&direct) {
        let back: Tensor<3> = tensor(direct, [2, 5, 3], DType::F64, &device).swap_dims(0, 1);
        assert_close("dv", viewed, &to_f64(back), 1e-14);
        assert!(viewed.iter().any(|x| x.abs() > 1e-3));
    }
}

#[test]
fn two_runs_give_the_same_bits() {
    let shape = Shape {
        n: 9,
        batch: 2,
        tokens: 64,
        d: 96,
    };
    let read = inputs(shape, 31, 1e-6);
    let cotangents = cotangents(shape, 31);
    let device = Device::flex().autodiff();
    let run = || case::run(&read, shape, DType::F32, &cotangents, &device);
    let (a, b) = (run(), run());
    assert_eq!(a.output, b.output);
    assert_eq!(a.gradients.query, b.gradients.query);
    assert_eq!(a.gradients.gamma, b.gradients.gamma);
    assert_eq!(a.gradients.sources, b.gradients.sources);
}
