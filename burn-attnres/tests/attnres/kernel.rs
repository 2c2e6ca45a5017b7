//! What the kernel does beyond one read of tracked sources: many tokens, threads, and parts of its graph that nobody uses.

use burn::tensor::{DType, Device, Tensor};
use burn_attnres::depth_attention_with_weights;

use crate::case::{Outcome, Shape, cotangents, inputs, rounded, run};
use crate::numbers::{assert_close, numbers, tensor, to_f64};

fn outcome(shape: Shape) -> Outcome {
    let read = rounded(&inputs(shape, 3, 1e-5), DType::F32);
    let cotangents = cotangents(shape, 3);
    let device = Device::flex().autodiff();
    run(&read, shape, DType::F32, &cotangents, &device)
}

/// More tokens than a task has and than are read together, and none of the numbers a multiple of anything.
#[test]
fn many_tokens() {
    for (n, tokens, d) in [(9, 101, 150), (2, 333, 7), (3, 37, 5000)] {
        let shape = Shape {
            n,
            batch: 2,
            tokens,
            d,
        };
        let read = rounded(&inputs(shape, 3, 1e-5), DType::F32);
        let cotangents = cotangents(shape, 3);
        let got = outcome(shape);
        assert_close("h", &got.output, &read.output(), 1e-5);
        assert_close("weights", &got.weights, &read.weights(), 1e-5);
        let want = read.gradients(&cotangents.0, &cotangents.1);
        for (i, (got, want)) in got.gradients.sources.iter().zip(&want.sources).enumerate() {
            assert_close(&format!("dv{i}"), got, want, 2e-5);
        }
        assert_close("dquery", &got.gradients.query, &want.query, 1e-4);
        assert_close("dgamma", &got.gradients.gamma, &want.gamma, 1e-4);
    }
}

#[test]
fn results_do_not_depend_on_the_number_of_threads() {
    let shape = Shape {
        n: 5,
        batch: 2,
        tokens: 150,
        d: 33,
    };
    let with_threads = |threads: usize| {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build();
        pool.expect("threads").install(|| outcome(shape))
    };
    let one = with_threads(1);
    for threads in [2, 3, 8] {
        let got = with_threads(threads);
        assert!(got.output == one.output, "h with {threads} threads");
        assert!(got.weights == one.weights, "weights with {threads} threads");
        let (got, one) = (got.gradients, &one.gradients);
        assert!(got.sources == one.sources, "dv with {threads} threads");
        assert!(got.query == one.query, "dquery with {threads} threads");
        assert!(got.gamma == one.gamma, "dgamma with {threads} threads");
    }
}

/// Each output is a node of its own: the gradient of a loss of both is the sum of those of a loss of either.
#[test]
fn either_output_alone_has_its_gradient() {
    let device = Device::flex().autodiff();
    let make = |seed, shape| tensor::<3>(&numbers(seed, 24), shape, DType::F32, &device);
    let sources: Vec<_> = (0..3).map(|i| make(i, [1, 4, 6]).require_grad()).collect();
    let query = tensor::<1>(&numbers(7, 6), [6], DType::F32, &device);
    let gamma = Tensor::ones([6], &device);
    let gradient = |of_h: bool, of_weights: bool| {
        let (h, p) = depth_attention_with_weights(&sources, query.clone(), gamma.clone(), 1e-5);
        let (h, p) = (h.square().sum(), p.square().sum());
        let loss = match (of_h, of_weights) {
            (true, false) => h,
            (false, true) => p,
            _ => h + p,
        };
        to_f64(sources[1].grad(&loss.backward()).expect("gradient"))
    };
    let (h, weights) = (gradient(true, false), gradient(false, true));
    let sum: Vec<f64> = h.iter().zip(&weights).map(|(x, y)| x + y).collect();
    assert_close("dv1", &gradient(true, true), &sum, 1e-5);
    assert!(weights.iter().any(|x| x.abs() > 1e-3));
}

/// A source that is a constant changes nothing for the others, wherever it stands in the list; nor does a constant query.
#[test]
fn constants_among_the_sources() {
    let device = Device::flex().autodiff();
    let make = |seed| tensor::<3>(&numbers(seed, 24), [1, 4, 6], DType::F32, &device);
    let query = || tensor::<1>(&numbers(7, 6), [6], DType::F32, &device);
    let gradients = |tracked: [bool; 4]| {
        let sources: Vec<_> = (0..3)
            .map(|i| match tracked[i as usize] {
                true => make(i).require_grad(),
                false => make(i),
            })
            .collect();
        let query = match tracked[3] {
            true => query().require_grad(),
            false => query(),
        };
        let gamma = Tensor::ones([6], &device);
        let (h, _) = depth_attention_with_weights(&sources, query.clone(), gamma, 1e-5);
        let grads = h.square().sum().backward();
        let of_source = |v: &Tensor<3>| v.grad(&grads).map(to_f64);
        let mut all: Vec<_> = sources.iter().map(of_source).collect();
        all.push(query.grad(&grads).map(to_f64));
        all
    };
    let all = gradients([true; 4]);
    for tracked in 1..16u32 {
        let tracked = [0, 1, 2, 3].map(|i| tracked >> i & 1 == 1);
        for (i, (got, want)) in gradients(tracked).iter().zip(&all).enumerate() {
            let want = if tracked[i] { want } else { &None };
            assert!(got == want, "{i} of {tracked:?}");
        }
    }
}
