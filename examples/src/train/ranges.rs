//! The ranges of settings, shared by the programs.

use super::TrainError;

/// Larger settings are taken for mistakes: they would exhaust the memory instead of giving an error.
pub(super) const MAX_LAYERS: usize = 1024;
pub(super) const MAX_WIDTH: usize = 1 << 16;
const MAX_TOKENS_PER_STEP: usize = 1 << 20;

/// `count` is from 1 to `most`, which is `usize::MAX` where nothing but zero is wrong.
pub(crate) fn check_count(flag: &'static str, count: usize, most: usize) -> Result<(), TrainError> {
    require(flag, (1..=most).contains(&count), || match most {
        usize::MAX => format!("must be at least 1, got {count}"),
        _ => format!("must be from 1 to {most}, got {count}"),
    })
}

/// A batch has windows, a window has tokens, and together they are not too many.
pub(crate) fn check_batch(batch: usize, seq_len: usize) -> Result<(), TrainError> {
    check_count("batch", batch, MAX_TOKENS_PER_STEP)?;
    check_count("seq-len", seq_len, MAX_TOKENS_PER_STEP)?;
    require(
        "batch",
        batch.saturating_mul(seq_len) <= MAX_TOKENS_PER_STEP,
        || format!("--batch times --seq-len must be at most {MAX_TOKENS_PER_STEP} tokens"),
    )
}

/// What Burn's schedulers take as a learning rate.
pub(crate) fn check_learning_rate(lr: f64) -> Result<(), TrainError> {
    require("lr", lr > 0.0 && lr <= 1.0, || {
        format!("must be above 0 and at most 1, got {lr}")
    })
}

/// `value` is from 0 to 1.
pub(crate) fn check_fraction(flag: &'static str, value: f64) -> Result<(), TrainError> {
    require(flag, (0.0..=1.0).contains(&value), || {
        format!("must be from 0 to 1, got {value}")
    })
}

pub(super) fn require(
    flag: &'static str,
    holds: bool,
    reason: impl FnOnce() -> String,
) -> Result<(), TrainError> {
    if holds {
        Ok(())
    } else {
        Err(TrainError::Setting {
            flag,
            reason: reason(),
        })
    }
}
