use std::sync::Arc;

use burn::tensor::{Device, Int, Tensor, TensorData};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

/// Inputs and the tokens that follow them, both `[batch, seq_len]`.
#[derive(Clone, Debug)]
pub struct Batch {
    /// Tokens that the model reads.
    pub inputs: Tensor<2, Int>,
    /// For every input the token that comes next.
    pub targets: Tensor<2, Int>,
}

impl Batch {
    /// Stacks windows of `seq_len + 1` bytes.
    ///
    /// # Panics
    /// If there is no window, or if windows differ in length or are shorter than two bytes.
    pub fn from_windows(windows: &[&[u8]], device: &Device) -> Self {
        let length = windows.first().map_or(0, |window| window.len());
        assert!(
            length >= 2 && windows.iter().all(|window| window.len() == length),
            "windows must be of one length of at least 2 bytes, the first has {length}"
        );
        let tokens = |skip: usize| {
            let values: Vec<i32> = windows
                .iter()
                .flat_map(|w| &w[skip..skip + length - 1])
                .map(|&byte| byte.into())
                .collect();
            Tensor::from_data(TensorData::new(values, [windows.len(), length - 1]), device)
        };
        Self {
            inputs: tokens(0),
            targets: tokens(1),
        }
    }
}

impl Batch {
    /// Windows in it.
    pub fn windows(&self) -> usize {
        self.inputs.dims()[0]
    }

    /// The batch in at most `parts` parts, whose windows differ in number by one at most.
    ///
    /// # Panics
    /// If `parts` is 0.
    pub fn split(&self, parts: usize) -> Vec<Self> {
        let windows = self.windows();
        let parts = parts.min(windows);
        let start = |part: usize| part * windows / parts;
        let part = |tokens: &Tensor<2, Int>, part: usize| {
            tokens.clone().slice_dim(0, start(part)..start(part + 1))
        };
        (0..parts)
            .map(|index| Self {
                inputs: part(&self.inputs, index),
                targets: part(&self.targets, index),
            })
            .collect()
    }
}

/// Windows drawn from the train part with replacement, each start equally likely.
///
/// What step `n` draws depends on the seed and on `n` alone, so the position in the data is one integer and a
/// resumed run draws what the uninterrupted one would have drawn.
#[derive(Clone, Debug)]
pub struct TrainBatches {
    text: Arc<[u8]>,
    batch_size: usize,
    seq_len: usize,
    seed: u64,
}

impl TrainBatches {
    /// # Panics
    /// If `text` is shorter than `seq_len + 1` bytes; [`Split::check_length`](super::Split::check_length)
    /// reports that as an error beforehand.
    pub fn new(text: Arc<[u8]>, batch_size: usize, seq_len: usize, seed: u64) -> Self {
        assert!(
            text.len() > seq_len,
            "text of {} bytes has no window of {} bytes",
            text.len(),
            seq_len + 1
        );
        Self {
            text,
            batch_size,
            seq_len,
            seed,
        }
    }

    /// Where the windows of step `step` start.
    pub fn starts(&self, step: usize) -> Vec<usize> {
        let mut rng = StdRng::from_seed(generator_key(self.seed, step as u64));
        let last = self.text.len() - self.seq_len - 1;
        (0..self.batch_size)
            .map(|_| rng.random_range(0..=last))
            .collect()
    }

    /// The batch of step `step`.
    pub fn batch(&self, step: usize, device: &Device) -> Batch {
        let windows: Vec<&[u8]> = self
            .starts(step)
            .into_iter()
            .map(|start| &self.text[start..=start + self.seq_len])
            .collect();
        Batch::from_windows(&windows, device)
    }
}

/// Windows of `seq_len + 1` bytes that together predict at most about `tokens` tokens: evenly spaced, without
/// overlap, the same at every evaluation. At least one window is returned if `text` has room for it.
pub fn evaluation_windows(text: &[u8], seq_len: usize, tokens: usize) -> Vec<&[u8]> {
    let available = text.len().saturating_sub(1) / seq_len;
    let wanted = (tokens / seq_len).clamp(1, available.max(1)).min(available);
    (0..wanted)
        .map(|index| index * available / wanted * seq_len)
        .map(|start| &text[start..=start + seq_len])
        .collect()
}

/// The key of a generator that belongs to one step of one seed.
fn generator_key(seed: u64, step: u64) -> [u8; 32] {
    let mut key = *b"train-lm batches................";
    key[16..24].copy_from_slice(&seed.to_le_bytes());
    key[24..].copy_from_slice(&step.to_le_bytes());
    key
}
