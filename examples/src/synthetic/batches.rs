use burn::tensor::{Device, Int, Tensor, TensorData};
use rand::SeedableRng;
use rand::rngs::StdRng;
use sha2::{Digest, Sha256};

use super::task::{Example, TaskKind};
use super::{TaskSettings, Token};

/// The examples that step `step` of a run trains on. They depend on the arguments alone, so a resumed run draws what the
/// uninterrupted one would have drawn, and every arm of a seed sees the same.
pub fn train_examples(
    task: TaskKind,
    sizes: &TaskSettings,
    seed: u64,
    step: usize,
    count: usize,
) -> Vec<Example> {
    let stream = format!("synthetic {} train {seed} {step}", task.name());
    draw(task, sizes, &stream, count)
}

/// The examples that every run of a task is judged on, whatever its seed.
pub fn held_out_examples(task: TaskKind, sizes: &TaskSettings, count: usize) -> Vec<Example> {
    let stream = format!("synthetic {} held-out", task.name());
    draw(task, sizes, &stream, count)
}

/// `count` examples from the generator that belongs to the name `stream`.
fn draw(task: TaskKind, sizes: &TaskSettings, stream: &str, count: usize) -> Vec<Example> {
    let mut rng = StdRng::from_seed(Sha256::digest(stream).into());
    (0..count).map(|_| task.draw(sizes, &mut rng)).collect()
}

/// Examples as tensors.
#[derive(Clone, Debug)]
pub struct Batch {
    /// What the model reads, `[batch, length - 1]`: every token but the last.
    pub inputs: Tensor<2, Int>,
    /// Which of the `batch * (length - 1)` predictions are those of answers.
    pub places: Tensor<1, Int>,
    /// The answers, in the order of `places`.
    pub answers: Tensor<1, Int>,
}

impl Batch {
    /// Stacks examples of one length.
    ///
    /// # Panics
    /// If there is no example, or if they differ in length.
    pub fn new(examples: &[Example], device: &Device) -> Self {
        let length = examples.first().map_or(0, |example| example.tokens.len());
        assert!(
            length >= 2
                && examples
                    .iter()
                    .all(|example| example.tokens.len() == length),
            "examples must be of one length of at least 2 tokens, the first has {length}"
        );
        let read = length - 1;
        let (mut inputs, mut places, mut answers) = (Vec::new(), Vec::new(), Vec::new());
        for (row, example) in examples.iter().enumerate() {
            inputs.extend(integers(&example.tokens[..read]));
            // The prediction of a token is made where the one before it is read.
            let place = |&answer: &usize| (row * read + answer - 1) as i32;
            places.extend(example.answers.iter().map(place));
            let answer = |&answer: &usize| i32::from(example.tokens[answer]);
            answers.extend(example.answers.iter().map(answer));
        }
        let list = |values: Vec<i32>| {
            let count = values.len();
            Tensor::from_data(TensorData::new(values, [count]), device)
        };
        Self {
            inputs: Tensor::from_data(TensorData::new(inputs, [examples.len(), read]), device),
            places: list(places),
            answers: list(answers),
        }
    }
}

fn integers(tokens: &[Token]) -> impl Iterator<Item = i32> {
    tokens.iter().map(|&token| token.into())
}
