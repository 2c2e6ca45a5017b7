//! The ranges of settings, shared by the programs.

use super::{ModelSettings, TrainError};
use crate::text::VOCABULARY;

/// Larger settings are taken for mistakes: they would exhaust the memory instead of giving an error.
pub(super) const MAX_LAYERS: usize = 1024;
pub(super) const MAX_WIDTH: usize = 1 << 16;
/// Each shard holds a copy of the gradients and threads of its own.
pub(super) const MAX_SHARDS: usize = 256;
const MAX_TOKENS_PER_STEP: usize = 1 << 20;
const MAX_PARAMETERS: u64 = 1 << 31;

/// A smaller one trains nothing in f32, and its digits would fill the name of a folder.
const MIN_LEARNING_RATE: f64 = 1e-12;

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

/// `lr`, which `flag` gave, is a learning rate that Burn's schedulers take.
pub(crate) fn check_learning_rate(flag: &'static str, lr: f64) -> Result<(), TrainError> {
    require(flag, (MIN_LEARNING_RATE..=1.0).contains(&lr), || {
        format!("must be from {MIN_LEARNING_RATE:?} to 1, got {lr:?}")
    })
}

/// The product of sizes that are each in range still has to fit into a memory. An estimate is enough: the
/// embedding and the output head, and in every layer the larger of the two attentions and the feed-forward part.
pub(super) fn check_parameters(settings: &ModelSettings) -> Result<(), TrainError> {
    let [layers, hidden, heads, ffn, vocabulary] = [
        settings.layers,
        settings.hidden,
        settings.heads,
        settings.ffn,
        VOCABULARY,
    ]
    .map(|size| size as u64);
    let attention = hidden * (4 * hidden + 13 * (hidden / heads));
    let parameters = 2 * vocabulary * hidden + layers * (attention + 3 * hidden * ffn);
    require("hidden", parameters <= MAX_PARAMETERS, || {
        format!(
            "--layers {layers}, --hidden {hidden}, --heads {heads} and --ffn {ffn} make about {parameters} \
             parameters, and at most {MAX_PARAMETERS} are trained"
        )
    })
}

/// `value` is from 0 to 1.
pub(crate) fn check_fraction(flag: &'static str, value: f64) -> Result<(), TrainError> {
    require(flag, (0.0..=1.0).contains(&value), || {
        format!("must be from 0 to 1, got {value:?}")
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
