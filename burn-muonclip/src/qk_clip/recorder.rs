use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use burn::module::ParamId;
use burn::nn::Linear;
use burn::tensor::Tensor;

use super::LogitMaxima;
use crate::max_logit::{MaxLogitOptions, max_logit, max_logit_bound};

/// Collects the largest logits of attention layers over one optimizer step.
///
/// Clones share what they collect, so a layer, its copies on other devices and the optimizer each have one. It is no parameter and is not saved with a model: in a
/// module, a field `#[module(skip)]`.
#[derive(Clone, Debug, Default)]
pub struct LogitRecorder {
    shared: Arc<Mutex<Recorded>>,
}

#[derive(Debug, Default)]
struct Recorded {
    /// Read from the device already.
    maxima: LogitMaxima,
    /// Not read yet: reading waits for the device.
    waiting: Vec<(ParamId, Tensor<1>)>,
}

/// Reports that wait to be read, at most; a training loop that never reads them must not grow.
const WAITING: usize = 1024;

impl LogitRecorder {
    /// Nothing recorded.
    pub fn new() -> Self {
        Self::default()
    }

    /// Takes in the largest logit of every head, `[H]`, of the layer whose queries `query` makes. Does not wait for the device.
    pub fn record(&self, query: &Linear, largest: Tensor<1>) {
        let mut recorded = self.lock();
        recorded.waiting.push((query.weight.id, largest.inner()));
        if recorded.waiting.len() > WAITING {
            recorded.read();
        }
    }

    /// Computes and takes in the largest logits of queries `[B, H, T, D]` and keys `[B, G, S, D]`, if they are for training: without autodiff
    /// this does nothing.
    ///
    /// First come the lengths of queries and keys ([`max_logit_bound`]): where they alone show that nothing is above `threshold`, their product is recorded
    /// instead. Pass [`QkClipConfig::bound`](super::QkClipConfig::bound), or `None` for the exact value always. With a threshold this waits for the device.
    ///
    /// # Panics
    /// As [`max_logit`].
    pub fn observe(
        &self,
        query: &Linear,
        q: Tensor<4>,
        k: Tensor<4>,
        options: &MaxLogitOptions,
        threshold: Option<f64>,
    ) {
        if q.is_autodiff() {
            self.observe_plain(query, q.inner(), k.inner(), options, threshold);
        }
    }

    /// The same, of tensors without autodiff.
    pub(super) fn observe_plain(
        &self,
        query: &Linear,
        q: Tensor<4>,
        k: Tensor<4>,
        options: &MaxLogitOptions,
        threshold: Option<f64>,
    ) {
        if let Some(threshold) = threshold {
            let bound = max_logit_bound(q.clone(), k.clone(), options);
            if read(bound.clone())
                .iter()
                .all(|&s| f64::from(s) <= threshold)
            {
                return self.record(query, bound);
            }
        }
        self.record(query, max_logit(q, k, options));
    }

    /// What was recorded since the last time.
    pub fn take(&self) -> LogitMaxima {
        let mut recorded = self.lock();
        recorded.read();
        std::mem::take(&mut recorded.maxima)
    }

    fn lock(&self) -> MutexGuard<'_, Recorded> {
        // A thread that panicked while it held the lock left nothing half done: each change is one call.
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Recorded {
    fn read(&mut self) {
        for (layer, largest) in std::mem::take(&mut self.waiting) {
            self.maxima.report(layer, &read(largest));
        }
    }
}

fn read(largest: Tensor<1>) -> Vec<f32> {
    largest.into_data().iter::<f32>().collect()
}
