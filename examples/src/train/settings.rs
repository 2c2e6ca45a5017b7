use std::path::PathBuf;

use burn_kimi_model::{AttentionPlan, DeviceName, ResidualScheme};
use serde::{Deserialize, Serialize};

use super::{OptimizerKind, TrainError};

/// Everything that decides the numbers of a run. The flags of `train-lm` and the `settings` of `config.json`
/// are this one structure, so a flag and its stored value have the same name.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, clap::Args)]
#[serde(deny_unknown_fields)]
#[command(next_help_heading = "Text")]
pub struct RunSettings {
    /// A text file or folder of your own [default: the Rust sources of Burn 0.22.1, found in cargo's folder]
    #[arg(long, value_name = "PATH")]
    pub text: Option<PathBuf>,
    /// The model.
    #[command(flatten)]
    pub model: ModelSettings,
    /// The training.
    #[command(flatten)]
    pub train: TrainSettings,
}

/// The shape of the model; [`decoder_config`](super::decoder_config) says what follows from it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, clap::Args)]
#[serde(deny_unknown_fields)]
#[command(next_help_heading = "Model")]
pub struct ModelSettings {
    /// Attention of the layers: hybrid (three KDA, one MLA), hybrid:N, kda, or mla
    #[arg(long, default_value_t = AttentionPlan::KIMI_LINEAR, value_name = "PLAN")]
    #[serde(with = "as_text")]
    pub attention: AttentionPlan,
    /// Residual connections: prenorm, full (Attention Residuals), or block:N (N blocks of them)
    #[arg(
        long,
        default_value_t = ResidualScheme::AttnResBlock { blocks: 2 },
        value_name = "SCHEME"
    )]
    #[serde(with = "as_text")]
    pub residual: ResidualScheme,
    /// Layers, each an attention and a feed-forward part
    #[arg(long, default_value_t = 4, value_name = "N")]
    pub layers: usize,
    /// Width of the residual stream; a multiple of --heads
    #[arg(long, default_value_t = 128, value_name = "N")]
    pub hidden: usize,
    /// Attention heads, each of width hidden / heads
    #[arg(long, default_value_t = 2, value_name = "N")]
    pub heads: usize,
    /// Inner width of the feed-forward part (SwiGLU)
    #[arg(long, default_value_t = 384, value_name = "N")]
    pub ffn: usize,
}

/// How the model is trained.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, clap::Args)]
#[serde(deny_unknown_fields)]
#[command(next_help_heading = "Training")]
pub struct TrainSettings {
    /// Optimizer; both get the same learning rate schedule and weight decay
    #[arg(long, value_enum, default_value_t, value_name = "NAME")]
    pub optimizer: OptimizerKind,
    /// Peak learning rate, above 0 and at most 1
    #[arg(long, default_value_t = 0.02, value_name = "RATE")]
    pub lr: f64,
    /// Steps of linear warm-up (at most half of --steps), followed by a cosine
    #[arg(long, default_value_t = 50, value_name = "STEPS")]
    pub warmup: usize,
    /// Learning rate at the last step, as a fraction of --lr
    #[arg(long, default_value_t = 0.1, value_name = "FRACTION")]
    pub final_lr: f64,
    /// Decoupled weight decay
    #[arg(long, default_value_t = 0.1, value_name = "DECAY")]
    pub weight_decay: f64,
    /// Optimizer steps
    #[arg(long, default_value_t = 300, value_name = "STEPS")]
    pub steps: usize,
    /// Windows of text in a batch
    #[arg(long, default_value_t = 8, value_name = "N")]
    pub batch: usize,
    /// Tokens (bytes) predicted in a window
    #[arg(long, default_value_t = 256, value_name = "TOKENS")]
    pub seq_len: usize,
    /// Seed of the weights and of the batches
    #[arg(long, default_value_t = 0, value_name = "SEED")]
    pub seed: u64,
    /// Steps between two validations; the last step always validates
    #[arg(long, default_value_t = 50, value_name = "STEPS")]
    pub eval_every: usize,
    /// Tokens of a validation, in windows spread evenly over the validation text
    #[arg(long, default_value_t = 32_768, value_name = "TOKENS")]
    pub eval_tokens: usize,
    /// Steps between two checkpoints; the last step always saves
    #[arg(long, default_value_t = 100, value_name = "STEPS")]
    pub save_every: usize,
    /// Device: flex, wgpu, vulkan, metal, webgpu, cuda or rocm, if compiled in by the feature of that name
    #[arg(long, default_value_t, value_name = "NAME")]
    #[serde(with = "as_text")]
    pub device: DeviceName,
}

/// Larger settings are taken for mistakes: they would exhaust the memory instead of giving an error.
const MAX_LAYERS: usize = 1024;
const MAX_WIDTH: usize = 1 << 16;
const MAX_TOKENS_PER_STEP: usize = 1 << 20;

impl RunSettings {
    /// Checks every range; what concerns the model's shape is checked by the model's own configuration.
    ///
    /// # Errors
    /// [`TrainError::Setting`] naming the flag, what was given and what is wanted.
    pub fn validate(&self) -> Result<(), TrainError> {
        let ModelSettings {
            layers,
            hidden,
            heads,
            ffn,
            ..
        } = self.model;
        let train = &self.train;
        let counts = [
            ("layers", layers, MAX_LAYERS),
            ("hidden", hidden, MAX_WIDTH),
            ("heads", heads, MAX_WIDTH),
            ("ffn", ffn, MAX_WIDTH),
            ("steps", train.steps, usize::MAX),
            ("batch", train.batch, MAX_TOKENS_PER_STEP),
            ("seq-len", train.seq_len, MAX_TOKENS_PER_STEP),
            ("eval-every", train.eval_every, usize::MAX),
            ("eval-tokens", train.eval_tokens, usize::MAX),
            ("save-every", train.save_every, usize::MAX),
        ];
        for (flag, count, most) in counts {
            require(flag, (1..=most).contains(&count), || match most {
                usize::MAX => format!("must be at least 1, got {count}"),
                _ => format!("must be from 1 to {most}, got {count}"),
            })?;
        }
        require(
            "batch",
            train.batch.saturating_mul(train.seq_len) <= MAX_TOKENS_PER_STEP,
            || format!("--batch times --seq-len must be at most {MAX_TOKENS_PER_STEP} tokens"),
        )?;
        require("hidden", hidden.is_multiple_of(heads), || {
            format!("must be a multiple of --heads {heads}, got {hidden}")
        })?;
        require("lr", train.lr > 0.0 && train.lr <= 1.0, || {
            format!("must be above 0 and at most 1, got {}", train.lr)
        })?;
        require("final-lr", (0.0..=1.0).contains(&train.final_lr), || {
            format!("must be from 0 to 1, got {}", train.final_lr)
        })?;
        require(
            "weight-decay",
            (0.0..=1.0).contains(&train.weight_decay),
            || format!("must be from 0 to 1, got {}", train.weight_decay),
        )
    }
}

fn require(
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

/// Stores a value as the text that its flag takes.
mod as_text {
    use std::fmt::Display;
    use std::str::FromStr;

    use serde::{Deserialize, Deserializer, Serializer, de::Error};

    pub(super) fn serialize<T: Display, S: Serializer>(
        value: &T,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        serializer.collect_str(value)
    }

    pub(super) fn deserialize<'de, T, D>(deserializer: D) -> Result<T, D::Error>
    where
        T: FromStr<Err: Display>,
        D: Deserializer<'de>,
    {
        String::deserialize(deserializer)?
            .parse()
            .map_err(D::Error::custom)
    }
}
