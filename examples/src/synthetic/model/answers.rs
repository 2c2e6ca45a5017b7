use burn::tensor::{Int, Tensor};

use super::Network;
use crate::synthetic::Batch;
use crate::train::cross_entropy;

/// Mean cross entropy of the answers in nats, `[1]`. Other tokens do not count.
pub fn answer_loss(network: &Network, batch: &Batch) -> Tensor<1> {
    let logits = answer_logits(network, batch);
    cross_entropy(logits.unsqueeze(), batch.answers.clone().unsqueeze())
}

/// The share of answers to which the network gives its largest logit, from 0 to 1. `network` must be without autodiff.
pub fn accuracy(network: &Network, batches: &[Batch]) -> f64 {
    let (mut right, mut asked) = (0, 0);
    for batch in batches {
        let guesses: Tensor<1, Int> = answer_logits(network, batch).argmax(1).squeeze_dim(1);
        asked += guesses.dims()[0];
        let hits = guesses.equal(batch.answers.clone()).int().sum();
        right += hits.into_scalar::<i64>();
    }
    right as f64 / asked as f64
}

/// `[answers, vocabulary]`.
fn answer_logits(network: &Network, batch: &Batch) -> Tensor<2> {
    let logits = network.forward(batch.inputs.clone());
    let [rows, length, vocabulary] = logits.dims();
    logits
        .reshape([rows * length, vocabulary])
        .select(0, batch.places.clone())
}
