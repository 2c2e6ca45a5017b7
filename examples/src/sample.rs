//! Text from a trained model, one byte after the other.

use burn::tensor::{Device, Int, Tensor, TensorData};
use burn_kimi_model::Decoder;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use crate::train::Interrupt;

/// How the next byte is chosen.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sampling {
    /// Bytes to add to the prompt.
    pub length: usize,
    /// Divides the logits: below 1 is bolder, above 1 more varied; 0 always takes the likeliest byte.
    pub temperature: f64,
    /// Seed of the choice.
    pub seed: u64,
}

/// Continues `prompt` and returns the added bytes: fewer than asked for if `interrupt` is requested meanwhile.
///
/// The prompt is read in one pass, then every byte in one step from the model's state, so the cost of a step
/// does not grow with a quadratic of the text so far. `model` must be without autodiff and on `device`.
///
/// # Panics
/// If `prompt` is empty.
pub fn sample(
    model: &Decoder,
    prompt: &[u8],
    sampling: &Sampling,
    device: &Device,
    interrupt: &Interrupt,
) -> Vec<u8> {
    assert!(!prompt.is_empty(), "prompt must hold at least one byte");
    let mut rng = StdRng::seed_from_u64(sampling.seed);
    let mut state = model.init_state();
    let mut input = prompt.to_vec();
    let mut text = Vec::new();
    while text.len() < sampling.length && !interrupt.requested() {
        let (logits, next_state) = model.forward_with_state(tokens(&input, device), state);
        state = next_state;
        let [_, length, vocabulary] = logits.dims();
        let last = logits.slice([0..1, length - 1..length, 0..vocabulary]);
        let logits: Vec<f64> = last.into_data().iter::<f64>().collect();
        let next = choose(&logits, sampling.temperature, rng.random());
        text.push(next);
        input = vec![next];
    }
    text
}

fn tokens(bytes: &[u8], device: &Device) -> Tensor<2, Int> {
    let values: Vec<i32> = bytes.iter().map(|&byte| byte.into()).collect();
    Tensor::from_data(TensorData::new(values, [1, bytes.len()]), device)
}

/// The byte at which the cumulated probability passes `point`, which is in `[0, 1)`.
fn choose(logits: &[f64], temperature: f64, point: f64) -> u8 {
    let (likeliest, &top) = logits
        .iter()
        .enumerate()
        .max_by(|a, b| a.1.total_cmp(b.1))
        .expect("a vocabulary is never empty");
    let byte = |index: usize| u8::try_from(index).expect("a byte vocabulary has 256 entries");
    if temperature == 0.0 {
        return byte(likeliest);
    }
    let weights: Vec<f64> = logits
        .iter()
        .map(|logit| ((logit - top) / temperature).exp())
        .collect();
    let mut left = point * weights.iter().sum::<f64>();
    for (index, weight) in weights.iter().enumerate() {
        left -= weight;
        if left < 0.0 {
            return byte(index);
        }
    }
    byte(likeliest)
}
