//! From logits to factors: numbers only.

use super::layer::{QkLayer, QkSide};

/// What each head's logits are multiplied by, `gamma`.
///
/// Logits at or below the threshold, negative ones too, are left alone, and so is a head whose largest logit is not finite or that has no visible pair (`-inf`).
pub(super) fn gamma(largest: f32, threshold: f64) -> f64 {
    if largest.is_finite() && f64::from(largest) > threshold {
        threshold / f64::from(largest)
    } else {
        1.0
    }
}

/// The factors of a layer's heads.
pub(super) struct Factors {
    gammas: Vec<f64>,
    /// By key head.
    keys: Vec<f64>,
}

impl Factors {
    pub(super) fn new(layer: &QkLayer, gammas: Vec<f64>, balance: f64) -> Self {
        let group = layer.heads / layer.key_heads;
        let keys = gammas
            .chunks_exact(group)
            .map(|gammas| {
                gammas
                    .iter()
                    .copied()
                    .fold(1.0, f64::min)
                    .powf(1.0 - balance)
            })
            .collect();
        Self { gammas, keys }
    }

    pub(super) fn is_trivial(&self) -> bool {
        self.gammas.iter().all(|&gamma| gamma == 1.0)
    }

    /// What the columns of a head are multiplied by; `head` counts key heads for keys.
    pub(super) fn of(&self, side: QkSide, head: usize) -> f64 {
        match side {
            QkSide::Key => self.keys[head],
            QkSide::QueryOfSharedKey => self.gammas[head],
            QkSide::Query => {
                let group = self.gammas.len() / self.keys.len();
                self.gammas[head] / self.keys[head / group]
            }
        }
    }
}
