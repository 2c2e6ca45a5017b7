//! A bigram table: what is known about the next byte when only the current one is seen.
//!
//! It is the baseline that a language model has to beat. It is fitted on the whole train part, that is on every
//! byte that a training batch can contain, and judged on exactly the tokens that the model's validation loss is
//! an average of.

use crate::text::VOCABULARY;

/// Added to every count, so that a pair never seen keeps a probability.
pub const SMOOTHING: f64 = 0.1;

/// `p(next | current) = (count(current, next) + 0.1) / (count(current) + 0.1 * 256)`.
#[derive(Clone, Debug)]
pub struct BigramTable {
    pairs: Vec<u64>,
    totals: Vec<u64>,
}

impl BigramTable {
    /// Counts every pair of neighbouring bytes in `text`.
    pub fn fit(text: &[u8]) -> Self {
        let mut pairs = vec![0; VOCABULARY * VOCABULARY];
        let mut totals = vec![0; VOCABULARY];
        for pair in text.windows(2) {
            pairs[index(pair[0], pair[1])] += 1;
            totals[usize::from(pair[0])] += 1;
        }
        Self { pairs, totals }
    }

    /// The probability that `next` follows `current`.
    pub fn probability(&self, current: u8, next: u8) -> f64 {
        let count = self.pairs[index(current, next)] as f64;
        let total = self.totals[usize::from(current)] as f64;
        (count + SMOOTHING) / (total + SMOOTHING * VOCABULARY as f64)
    }

    /// Mean of `-ln p` over every byte but the first of each window, in nats per byte; 0 without any.
    pub fn loss(&self, windows: &[&[u8]]) -> f64 {
        let pairs = || windows.iter().flat_map(|window| window.windows(2));
        let total: f64 = pairs()
            .map(|pair| -self.probability(pair[0], pair[1]).ln())
            .sum();
        total / pairs().count().max(1) as f64
    }
}

fn index(current: u8, next: u8) -> usize {
    usize::from(current) * VOCABULARY + usize::from(next)
}
