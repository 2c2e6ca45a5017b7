//! Whole stacks through the state machine.

use burn::tensor::{DType, Device, Tensor};
use burn_attnres::{AttnRes, BlockPlan, depth_attention};

use crate::network::{D, Network, attn_res, rms_norm, trained_attn_res};
use crate::numbers::{assert_close, numbers, tensor, to_f64};

const PLANS: [BlockPlan; 5] = [
    BlockPlan::Full,
    BlockPlan::SublayersPerBlock(2),
    BlockPlan::SublayersPerBlock(3),
    BlockPlan::LayersPerBlock(2),
    BlockPlan::NumBlocks(1),
];

/// Written from equations 5 and 6: every output of the stack is kept, and each read sums them anew.
fn by_the_equations(network: &Network, reads: &AttnRes, size: usize) -> Tensor<3> {
    let sum = |outputs: &[Tensor<3>]| outputs.iter().cloned().reduce(|a, b| a + b).unwrap();
    let read = |l: usize, outputs: &[Tensor<3>]| {
        let mut sources = vec![network.embedding.clone()];
        sources.extend(outputs.chunks(size).map(sum));
        let read = &reads.reads[l];
        depth_attention(&sources, read.query.val(), read.gamma.val(), 1e-6)
    };
    let mut outputs = Vec::new();
    for l in 0..network.weights.len() {
        outputs.push(network.sublayer(l, read(l, &outputs)));
    }
    read(outputs.len(), &outputs)
}

#[test]
fn agrees_with_the_equations_written_out() {
    let device = Device::flex().autodiff();
    for (size, layers) in [(1, 6), (2, 8), (6, 6), (3, 7), (9, 4)] {
        let network = Network::new(layers, 1e-6, &device);
        let reads = trained_attn_res(layers, BlockPlan::SublayersPerBlock(size), &device);
        let got = network.with_attn_res(&reads);
        let want = by_the_equations(&network, &reads, size);
        assert_close("h", &to_f64(got.clone()), &to_f64(want.clone()), 1e-13);

        let (got, want) = (network.gradients(got), network.gradients(want));
        assert_close("dx", &got.embedding, &want.embedding, 1e-12);
        for (got, want) in got.weights.iter().zip(&want.weights) {
            assert_close("dW", got, want, 1e-12);
        }
    }
}

#[test]
fn at_initialisation_equals_prenorm() {
    let device = Device::flex().autodiff();
    for plan in PLANS {
        // Norms without eps ignore the factor 1/n of the mean, so outputs and gradients agree to rounding.
        let network = Network::new(8, 0.0, &device);
        let reads = attn_res(8, plan, &device);
        let got = rms_norm(network.with_attn_res(&reads), 0.0);
        let want = rms_norm(network.with_residual_sums(), 0.0);
        assert_close("output", &to_f64(got.clone()), &to_f64(want.clone()), 1e-12);

        let (got, want) = (network.gradients(got), network.gradients(want));
        assert_close("dx", &got.embedding, &want.embedding, 1e-11);
        for (got, want) in got.weights.iter().zip(&want.weights) {
            assert_close("dW", got, want, 1e-11);
        }
    }
}

/// The limit of the identity above: the mean is `n` times smaller than the sum, so the `eps` of the sub-layers'
/// norms weighs more, and sources that are zero (zero-initialised output projections) make it smaller still.
#[test]
fn the_mean_shrinks_the_stream_towards_the_eps_of_the_norms() {
    let device = Device::flex().autodiff();
    let embedding = tensor::<3>(&numbers(1, 2 * D), [1, 2, D], DType::F64, &device);
    let reads = attn_res(32, BlockPlan::Full, &device);
    let mut stream = reads.start(embedding.clone());
    for _ in 0..32 {
        let h = stream.read(&reads);
        stream.write(h.zeros_like());
    }
    let h = stream.finish(&reads);
    assert_close("h", &to_f64(h * 33.0), &to_f64(embedding.clone()), 1e-12);

    let difference = |norm_eps: f64| {
        let mut network = Network::new(8, norm_eps, &device);
        network.embedding = network.embedding * 0.02;
        let got = rms_norm(
            network.with_attn_res(&attn_res(8, BlockPlan::Full, &device)),
            0.0,
        );
        let want = rms_norm(network.with_residual_sums(), 0.0);
        let difference: Vec<f64> = to_f64((got - want).abs());
        difference.into_iter().fold(0.0, f64::max)
    };
    assert!(difference(1e-12) < 1e-6);
    assert!(difference(1e-2) > 1e-2);
}

/// Sub-layer `l` writes the `l`-th unit vector, so with zero queries each read shows what it sums, and how often.
#[test]
fn every_source_is_mixed_exactly_once() {
    let device = Device::flex();
    let sublayers = D - 1;
    let unit = |i: usize| {
        let mut values = [0.0; D];
        values[i] = 1.0;
        tensor::<3>(&values, [1, 1, D], DType::F64, &device)
    };
    for plan in PLANS {
        let reads = attn_res(sublayers, plan, &device);
        let mut stream = reads.start(unit(0));
        let counts = reads.schedule().sources_per_read();
        let expected = |read: usize| -> Vec<f64> {
            let share = 1.0 / counts[read] as f64;
            (0..D)
                .map(|i| if i <= read { share } else { 0.0 })
                .collect()
        };
        for l in 0..sublayers {
            let h = stream.read(&reads);
            assert_close(
                &format!("{plan}, read {l}"),
                &to_f64(h),
                &expected(l),
                1e-15,
            );
            stream.write(unit(l + 1));
        }
        let h = stream.finish(&reads);
        assert_close(
            &format!("{plan}, output"),
            &to_f64(h),
            &expected(sublayers),
            1e-15,
        );
    }
}

#[test]
fn the_output_read_reaches_the_embedding_and_every_block() {
    let device = Device::flex().autodiff();
    for plan in PLANS {
        let reads = trained_attn_res(4, plan, &device);
        let leaf = |seed| {
            tensor::<3>(&numbers(seed, 2 * D), [1, 2, D], DType::F64, &device).require_grad()
        };
        // Outputs that depend on no read: every gradient below passes through the output read alone.
        let leaves: Vec<_> = (0..5).map(leaf).collect();
        let mut stream = reads.start(leaves[0].clone());
        for output in &leaves[1..] {
            stream.read(&reads);
            stream.write(output.clone());
        }
        let h = stream.finish(&reads);
        let g = tensor::<3>(&numbers(9, 2 * D), [1, 2, D], DType::F64, &device);
        let gradients = (h * g).sum().backward();
        for leaf in &leaves {
            let gradient = to_f64(leaf.grad(&gradients).expect("gradient at a source"));
            assert!(gradient.iter().any(|x| x.abs() > 1e-4), "{plan}");
        }
    }
}

#[test]
fn blocks_of_one_sublayer_are_full_bit_for_bit() {
    let device = Device::flex().autodiff();
    let network = Network::new(6, 1e-6, &device);
    let full = trained_attn_res(6, BlockPlan::Full, &device);
    let ones = trained_attn_res(6, BlockPlan::SublayersPerBlock(1), &device);
    assert_eq!(
        to_f64(network.with_attn_res(&full)),
        to_f64(network.with_attn_res(&ones))
    );
}

#[test]
fn the_first_sublayer_reads_the_embedding_itself() {
    let device = Device::flex();
    let reads = trained_attn_res(4, BlockPlan::Full, &device);
    let embedding = tensor::<3>(&numbers(2, 2 * D), [1, 2, D], DType::F64, &device);
    let h = reads.start(embedding.clone()).read(&reads);
    assert_eq!(to_f64(h), to_f64(embedding));
}

#[test]
fn gradient_checkpointing_gives_the_same_bits() {
    let plain = Device::flex().autodiff();
    let run = |device: &Device| {
        let network = Network::new(7, 1e-6, device);
        let reads = trained_attn_res(7, BlockPlan::SublayersPerBlock(3), device);
        let output = network.with_attn_res(&reads);
        (to_f64(output.clone()), network.gradients(output))
    };
    let (output, gradients) = run(&plain);
    let (recomputed_output, recomputed) = run(&plain.clone().gradient_checkpointing());
    assert_eq!(output, recomputed_output);
    assert_eq!(gradients.embedding, recomputed.embedding);
    assert_eq!(gradients.weights, recomputed.weights);
}

#[test]
fn tokens_do_not_see_each_other() {
    let device = Device::flex();
    let reads = trained_attn_res(3, BlockPlan::SublayersPerBlock(2), &device);
    let run = |tokens: std::ops::Range<usize>| {
        let cut = |seed| {
            tensor::<3>(&numbers(seed, 5 * D), [1, 5, D], DType::F32, &device).slice([
                0..1,
                tokens.clone(),
                0..D,
            ])
        };
        let mut stream = reads.start(cut(1));
        for seed in 2..5 {
            stream.read(&reads);
            stream.write(cut(seed));
        }
        to_f64(stream.finish(&reads))
    };
    assert_eq!(run(0..5)[2 * D..4 * D], run(2..4));
}
