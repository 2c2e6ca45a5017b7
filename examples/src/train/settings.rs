use std::path::PathBuf;

use burn_kimi_model::{AttentionPlan, DeviceName, ResidualScheme};
use serde::{Deserialize, Serialize};

use super::ranges::{
    MAX_LAYERS, MAX_SHARDS, MAX_WIDTH, check_batch, check_count, check_fraction,
    check_learning_rate, check_parameters, require,
};
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
    /// Peak learning rate, from 1e-12 to 1
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
    /// Largest attention logit that MuonClip leaves alone; 0 never clips. AdamW does not clip
    #[arg(long, default_value_t = 100.0, value_name = "LOGIT")]
    #[serde(default)]
    pub qk_clip: f64,
    /// Optimizer steps
    #[arg(long, default_value_t = 300, value_name = "STEPS")]
    pub steps: usize,
    /// Windows of text in a batch
    #[arg(long, default_value_t = 8, value_name = "N")]
    pub batch: usize,
    /// Tokens (bytes) predicted in a window
    #[arg(long, default_value_t = 256, value_name = "TOKENS")]
    pub seq_len: usize,
    /// Parts of a batch that are computed at the same time by a CPU; 1 is best for a GPU
    #[arg(long, default_value_t = 2, value_name = "N")]
    #[serde(default = "one_shard")]
    pub shards: usize,
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

impl ModelSettings {
    /// Checks the sizes; how they fit together is checked by the model's own configuration.
    ///
    /// # Errors
    /// [`TrainError::Setting`] naming the flag, what was given and what is wanted.
    pub fn validate(&self) -> Result<(), TrainError> {
        let (hidden, heads) = (self.hidden, self.heads);
        check_count("layers", self.layers, MAX_LAYERS)?;
        check_count("hidden", hidden, MAX_WIDTH)?;
        check_count("heads", heads, MAX_WIDTH)?;
        check_count("ffn", self.ffn, MAX_WIDTH)?;
        require("hidden", hidden.is_multiple_of(heads), || {
            format!("must be a multiple of --heads {heads}, got {hidden}")
        })?;
        check_parameters(self)
    }
}

impl TrainSettings {
    /// Checks the settings that are no counts.
    ///
    /// # Errors
    /// [`TrainError::Setting`] naming the flag, what was given and what is wanted.
    pub fn validate_rates(&self) -> Result<(), TrainError> {
        check_learning_rate("lr", self.lr)?;
        check_fraction("final-lr", self.final_lr)?;
        check_fraction("weight-decay", self.weight_decay)?;
        let finite = self.qk_clip >= 0.0 && self.qk_clip.is_finite();
        require("qk-clip", finite, || {
            format!("must be 0 or a positive number, got {}", self.qk_clip)
        })
    }
}

impl RunSettings {
    /// Checks every range.
    ///
    /// # Errors
    /// [`TrainError::Setting`] naming the flag, what was given and what is wanted.
    pub fn validate(&self) -> Result<(), TrainError> {
        self.model.validate()?;
        let train = &self.train;
        check_batch(train.batch, train.seq_len)?;
        check_count("shards", train.shards, MAX_SHARDS)?;
        let counts = [
            ("steps", train.steps),
            ("eval-every", train.eval_every),
            ("eval-tokens", train.eval_tokens),
            ("save-every", train.save_every),
        ];
        for (flag, count) in counts {
            check_count(flag, count, usize::MAX)?;
        }
        train.validate_rates()
    }
}

/// What a run has whose settings were stored before there were shards.
fn one_shard() -> usize {
    1
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
