use std::panic::resume_unwind;
use std::thread;

use burn::module::Module;
use burn::optim::{GradientsAccumulator, GradientsParams};
use burn::tensor::Device;
use burn_kimi_model::Decoder;
use burn_muonclip::qk_clip::QkClip;
use rayon::{ThreadPool, ThreadPoolBuilder};

use super::{TrainError, batch_loss, watched_batch_loss};
use crate::text::Batch;

/// Computes the parts of a batch at the same time, each on its share of the CPU's threads.
///
/// Most of Burn's element-wise operations on the CPU take one thread whatever there are, so two halves side by side are done in
/// little more than the time of one. The parts, and the order in which their gradients are added, follow from their number
/// alone: the machine's threads decide the speed, not the result.
pub(super) struct Shards {
    pools: Vec<ThreadPool>,
}

impl Shards {
    /// # Errors
    /// [`TrainError::Setting`] if the machine gives no threads.
    pub(super) fn new(count: usize) -> Result<Self, TrainError> {
        let threads = rayon::current_num_threads().div_ceil(count);
        let pool = |_| ThreadPoolBuilder::new().num_threads(threads).build();
        let pools = (0..count).map(pool).collect::<Result<_, _>>();
        let pools = pools.map_err(|error| TrainError::Setting {
            flag: "shards",
            reason: format!("no threads for {count} of them: {error}"),
        })?;
        Ok(Self { pools })
    }

    /// The mean loss over `batch`, and its gradients unless it is NaN or infinite. `device` is the model's; `qk_clip` has the attention logits of all parts.
    pub(super) fn gradients(
        &self,
        model: &Decoder,
        batch: &Batch,
        device: &Device,
        qk_clip: Option<&QkClip>,
    ) -> (f32, Option<GradientsParams>) {
        let windows = batch.windows() as f64;
        let mut sum = GradientsAccumulator::new();
        let (mut loss, mut finite) = (0.0, true);
        thread::scope(|scope| {
            let mut started = Vec::new();
            for (pool, part) in self.pools.iter().zip(batch.split(self.pools.len())) {
                let share = part.windows() as f64 / windows;
                // Leaves of its own in the graph: Burn takes parts with common leaves for one graph, and computes them one after the other.
                let model = model.clone().fork(device);
                let work = move || part_gradients(&model, &part, share, qk_clip);
                started.push(scope.spawn(move || pool.install(work)));
            }
            for part in started {
                let (part_loss, gradients) =
                    part.join().unwrap_or_else(|panic| resume_unwind(panic));
                loss += part_loss;
                match gradients {
                    Some(gradients) => sum.accumulate(model, gradients),
                    None => finite = false,
                }
            }
        });
        (loss, finite.then(|| sum.grads()))
    }
}

/// The part of the batch's loss that falls to `part`, and its gradients.
fn part_gradients(
    model: &Decoder,
    part: &Batch,
    share: f64,
    qk_clip: Option<&QkClip>,
) -> (f32, Option<GradientsParams>) {
    let loss = match qk_clip {
        Some(qk_clip) => watched_batch_loss(model, part, qk_clip),
        None => batch_loss(model, part),
    };
    let loss = loss * share;
    let value = loss.clone().into_scalar::<f32>();
    let gradients = || GradientsParams::from_grads(loss.backward(), model);
    (value, value.is_finite().then(gradients))
}
