use burn::module::{Module, Param};
use burn::tensor::{Device, Distribution, Int, Tensor, TensorData, activation::log_softmax};
use burn_kimi_linear::{KimiDeltaAttention, KimiDeltaAttentionConfig};
use examples::synthetic::{
    Arm, Batch, MemoryGates, ModelSettings, Network, TokenMixer, accuracy, answer_loss, palindrome,
};

use super::{default_settings, tiny_settings};

const VOCABULARY: usize = 11;

fn sizes() -> ModelSettings {
    default_settings().model
}

fn network(arm: Arm, seed: u64) -> Network {
    Network::seeded(
        VOCABULARY,
        arm,
        &tiny_settings().model,
        seed,
        &Device::flex(),
    )
}

fn hidden(tokens: usize) -> Tensor<3> {
    let shape = [2, tokens, sizes().hidden];
    Tensor::random(shape, Distribution::Normal(0.0, 1.0), &Device::flex())
}

fn numbers<const D: usize>(x: Tensor<D>) -> Vec<f64> {
    x.into_data().iter::<f64>().collect()
}

fn assert_near(found: Tensor<3>, wanted: Tensor<3>, tolerance: f64) {
    let (found, wanted) = (numbers(found), numbers(wanted));
    assert_eq!(found.len(), wanted.len());
    let worst = found.iter().zip(&wanted).map(|(a, b)| (a - b).abs());
    let worst = worst.fold(0.0, f64::max);
    assert!(worst <= tolerance, "the largest difference is {worst}");
    assert!(wanted.iter().any(|x| x.abs() > 1e-2), "nothing is tested");
}

fn layer() -> KimiDeltaAttention {
    let sizes = sizes();
    let config = KimiDeltaAttentionConfig::new(sizes.hidden, sizes.heads, sizes.head_dim);
    config.init(&Device::flex())
}

#[test]
fn the_kda_arm_is_the_layer_of_the_library() {
    let layer = layer();
    let x = hidden(37);
    let wanted = layer.forward(x.clone());
    assert_near(
        TokenMixer::from_layer(Arm::Kda, layer).forward(x),
        wanted,
        1e-5,
    );
}

/// The gates of the `scalar-gate` arm with their one decay a head written out for every channel.
fn tied(gates: MemoryGates, key_dim: usize) -> MemoryGates {
    let [heads, _] = gates.dt_bias.dims();
    let repeat = |x: Tensor<2>| {
        let [rows, _] = x.dims();
        let x = x.reshape([rows, heads, 1]).repeat_dim(2, key_dim);
        x.reshape([rows, heads * key_dim])
    };
    let mut tied = gates;
    let offsets = tied.dt_bias.val().reshape([1, heads]);
    tied.dt_bias = Param::from_tensor(repeat(offsets).reshape([heads, key_dim]));
    tied.f_b_proj.weight = Param::from_tensor(repeat(tied.f_b_proj.weight.val()));
    tied
}

#[test]
fn kda_with_tied_channels_is_the_scalar_gate() {
    let layer = layer();
    let scalar = TokenMixer::from_layer(Arm::ScalarGate, layer.clone());
    let mut kda = TokenMixer::from_layer(Arm::Kda, layer);
    let x = hidden(37);
    let wanted = scalar.forward(x.clone());
    let differing = kda.forward(x.clone());
    kda.gates = scalar.gates.map(|gates| tied(gates, sizes().head_dim));
    assert_near(kda.forward(x), wanted.clone(), 1e-6);
    assert_ne!(
        numbers(differing),
        numbers(wanted),
        "the gates make no difference"
    );
}

#[test]
fn arms_have_nearly_as_many_parameters() {
    let counts = Arm::ALL
        .map(|arm| Network::seeded(VOCABULARY, arm, &sizes(), 3, &Device::flex()).num_params());
    let [kda, scalar, no_delta, softmax] = counts;
    assert_eq!(kda, no_delta);
    assert!(kda > scalar && scalar > softmax, "{counts:?}");
    assert!(softmax as f64 > 0.9 * kda as f64, "{counts:?}");
}

#[test]
fn no_arm_looks_ahead_and_every_arm_looks_back() {
    let tokens = |last: i32, first: i32| {
        let tokens: Vec<i32> = (0..19).map(|t| t * 7 % 10).collect();
        let tokens = [&[first], &tokens[..], &[last]].concat();
        let shape = [1, tokens.len()];
        Tensor::<2, Int>::from_data(TensorData::new(tokens, shape), &Device::flex())
    };
    for arm in Arm::ALL {
        let network = network(arm, 0);
        let logits = |last, first| network.forward(tokens(last, first)).narrow(1, 1, 19);
        assert_near(logits(1, 0), logits(9, 0), 1e-6);
        let (before, after) = (numbers(logits(1, 0)), numbers(logits(1, 9)));
        let last = before.len() - VOCABULARY;
        assert_ne!(before[last..], after[last..], "{arm:?}");
    }
}

#[test]
fn loss_and_accuracy_look_at_answers_alone() {
    let network = network(Arm::Kda, 1);
    let batch = Batch::new(&[palindrome(&[3, 1]), palindrome(&[2, 4])], &Device::flex());
    let logits = network.forward(batch.inputs.clone());
    let scores = numbers(log_softmax(logits, 2));
    // Rows of the flattened batch that predict an answer, and the answers.
    let wanted = [(2, 1), (3, 3), (6, 4), (7, 2)];
    let score = |(row, token): (usize, usize)| scores[row * VOCABULARY + token];
    let loss = -wanted.iter().copied().map(score).sum::<f64>() / 4.0;
    let found = f64::from(answer_loss(&network, &batch).into_scalar::<f32>());
    assert!((found - loss).abs() < 1e-5, "{found} instead of {loss}");

    let is_right = |(row, token): (usize, usize)| {
        (0..VOCABULARY).all(|other| score((row, other)) <= score((row, token)))
    };
    let right = wanted.iter().filter(|&&answer| is_right(answer)).count();
    let share = accuracy(&network, &[batch.clone(), batch]);
    assert_eq!(share, right as f64 / 4.0);
}

#[test]
fn the_learning_rate_warms_up_and_falls_to_a_tenth() {
    let mut training = default_settings().training;
    (training.steps, training.warmup, training.lr) = (100, 10, 0.5);
    let rates: Vec<f64> = (0..100).map(|done| training.learning_rate(done)).collect();
    assert!((rates[0] - 0.05).abs() < 1e-12 && (rates[9] - 0.5).abs() < 1e-12);
    assert!((rates[10] - 0.5).abs() < 1e-12 && (rates[99] - 0.05).abs() < 1e-12);
    assert!(rates[10..].is_sorted_by(|a, b| a > b));
    (training.steps, training.warmup) = (1, 10);
    assert!((training.learning_rate(0) - 0.5).abs() < 1e-12);
}
