use burn::lr_scheduler::module_lr_scheduler::ModuleLrScheduler;
use burn::lr_scheduler::{
    LrSchedulerConfig, cosine::CosineAnnealingLrSchedulerConfig, linear::LinearLrSchedulerConfig,
    sequential::SequentialLrSchedulerConfig,
};

use super::{TrainError, TrainSettings};

/// Linear warm-up from `lr / warmup` to `lr`, then a cosine down to `lr * final_lr`.
///
/// Burn's own schedulers in sequence. The position in the schedule is the number of steps taken, so nothing of
/// it needs to be saved: [`LearningRates::after`] walks to it.
pub struct LearningRates(ModuleLrScheduler);

impl LearningRates {
    /// The schedule of a whole run, before its first step. The warm-up takes at most half of the steps.
    ///
    /// # Errors
    /// [`TrainError::Setting`] if Burn refuses the learning rates.
    pub fn new(settings: &TrainSettings) -> Result<Self, TrainError> {
        let warmup = settings.warmup.min(settings.steps / 2);
        let decay_steps = (settings.steps - warmup).saturating_sub(1).max(1);
        let mut parts: Vec<LrSchedulerConfig> = Vec::new();
        if warmup > 1 {
            let first = settings.lr / warmup as f64;
            parts.push(LinearLrSchedulerConfig::new(first, settings.lr, warmup - 1).into());
        } else if warmup == 1 {
            parts.push(settings.lr.into());
        }
        let milestones = vec![warmup; parts.len()];
        parts.push(
            CosineAnnealingLrSchedulerConfig::new(settings.lr, decay_steps)
                .with_min_lr(settings.lr * settings.final_lr)
                .into(),
        );
        SequentialLrSchedulerConfig::new(parts, milestones)
            .init()
            .map(Self)
            .map_err(|reason| TrainError::Setting { flag: "lr", reason })
    }

    /// The same schedule after `steps` steps.
    ///
    /// # Errors
    /// Those of [`LearningRates::new`].
    pub fn after(settings: &TrainSettings, steps: usize) -> Result<Self, TrainError> {
        let mut rates = Self::new(settings)?;
        for _ in 0..steps {
            rates.next_rate();
        }
        Ok(rates)
    }

    /// The learning rate of the next step.
    pub fn next_rate(&mut self) -> f64 {
        self.0.step().base()
    }
}
