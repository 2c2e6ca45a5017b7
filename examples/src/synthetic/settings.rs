use serde::{Deserialize, Serialize};

use super::TaskKind;
use crate::train::{TrainError, check_count, check_fraction, check_learning_rate};

/// Larger settings are taken for mistakes: they would exhaust the memory instead of giving an error.
const MAX_COUNT: usize = 4096;
const MAX_LAYERS: usize = 64;
const MAX_WIDTH: usize = 4096;
const MAX_TOKENS_PER_BATCH: usize = 1 << 20;

/// Everything that all runs of an experiment have in common. The flags of `synthetic` and the `settings` of its files are this
/// one structure, so a flag and its stored value have the same name.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, clap::Args)]
#[serde(deny_unknown_fields)]
pub struct Settings {
    /// The sizes of the tasks.
    #[command(flatten)]
    pub tasks: TaskSettings,
    /// The sizes of the model.
    #[command(flatten)]
    pub model: ModelSettings,
    /// The training.
    #[command(flatten)]
    pub training: TrainingSettings,
}

/// The sizes of the tasks.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, clap::Args)]
#[serde(deny_unknown_fields)]
#[command(next_help_heading = "Tasks")]
pub struct TaskSettings {
    /// Different tokens that have to be remembered; mqar has as many keys
    #[arg(long, default_value_t = 32, value_name = "N")]
    pub symbols: usize,
    /// palindrome: tokens to reverse
    #[arg(long, default_value_t = 32, value_name = "N")]
    pub reversed: usize,
    /// mqar: pairs of a key and a value, at most --symbols
    #[arg(long, default_value_t = 16, value_name = "N")]
    pub pairs: usize,
    /// stack: number of stacks
    #[arg(long, default_value_t = 8, value_name = "N")]
    pub stacks: usize,
    /// stack: pushes and pops, half of each
    #[arg(long, default_value_t = 32, value_name = "N")]
    pub operations: usize,
}

/// The sizes of the model.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, clap::Args)]
#[serde(deny_unknown_fields)]
#[command(next_help_heading = "Model")]
pub struct ModelSettings {
    /// Blocks, each a token mixer and a feed-forward part
    #[arg(long, default_value_t = 2, value_name = "N")]
    pub layers: usize,
    /// Width of the residual stream
    #[arg(long, default_value_t = 64, value_name = "N")]
    pub hidden: usize,
    /// Heads of the token mixer
    #[arg(long, default_value_t = 2, value_name = "N")]
    pub heads: usize,
    /// Width of a head
    #[arg(long, default_value_t = 32, value_name = "N")]
    pub head_dim: usize,
    /// Inner width of the feed-forward part (SwiGLU)
    #[arg(long, default_value_t = 128, value_name = "N")]
    pub ffn: usize,
}

/// How every model is trained: AdamW, with a linear warm-up and a cosine.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, clap::Args)]
#[serde(deny_unknown_fields)]
#[command(next_help_heading = "Training")]
pub struct TrainingSettings {
    /// Optimizer steps
    #[arg(long, default_value_t = 500, value_name = "STEPS")]
    pub steps: usize,
    /// Sequences in a batch
    #[arg(long, default_value_t = 32, value_name = "N")]
    pub batch: usize,
    /// Peak learning rate
    #[arg(long, default_value_t = 3e-3, value_name = "RATE")]
    pub lr: f64,
    /// Steps of linear warm-up (at most half of --steps), followed by a cosine down to a tenth of --lr
    #[arg(long, default_value_t = 50, value_name = "STEPS")]
    pub warmup: usize,
    /// Decoupled weight decay
    #[arg(long, default_value_t = 0.01, value_name = "DECAY")]
    pub weight_decay: f64,
    /// Steps between two evaluations, each of which also saves; the last step always evaluates
    #[arg(long, default_value_t = 50, value_name = "STEPS")]
    pub eval_every: usize,
    /// Sequences of an evaluation
    #[arg(long, default_value_t = 256, value_name = "N")]
    pub eval_sequences: usize,
}

impl Settings {
    /// Checks every range.
    ///
    /// # Errors
    /// [`TrainError::Setting`] naming the flag, what was given and what is wanted.
    pub fn validate(&self) -> Result<(), TrainError> {
        self.tasks.validate()?;
        self.model.validate()?;
        self.training.validate(&self.tasks)
    }
}

impl TaskSettings {
    fn validate(&self) -> Result<(), TrainError> {
        check_count("symbols", self.symbols, MAX_COUNT)?;
        check_count("reversed", self.reversed, MAX_COUNT)?;
        check_count("pairs", self.pairs, self.symbols)?;
        check_count("stacks", self.stacks, MAX_COUNT)?;
        check_count("operations", self.operations, MAX_COUNT)?;
        require("operations", self.operations >= 2, || {
            "must be at least 2, a push and a pop".to_owned()
        })
    }
}

impl ModelSettings {
    fn validate(&self) -> Result<(), TrainError> {
        check_count("layers", self.layers, MAX_LAYERS)?;
        check_count("hidden", self.hidden, MAX_WIDTH)?;
        check_count("heads", self.heads, MAX_WIDTH)?;
        check_count("head-dim", self.head_dim, MAX_WIDTH)?;
        require("heads", self.heads * self.head_dim <= MAX_WIDTH, || {
            format!("--heads times --head-dim must be at most {MAX_WIDTH}")
        })?;
        check_count("ffn", self.ffn, MAX_WIDTH)
    }
}

impl TrainingSettings {
    fn validate(&self, tasks: &TaskSettings) -> Result<(), TrainError> {
        check_count("steps", self.steps, usize::MAX)?;
        check_count("batch", self.batch, MAX_COUNT)?;
        check_count("eval-every", self.eval_every, usize::MAX)?;
        check_count("eval-sequences", self.eval_sequences, MAX_COUNT)?;
        for task in TaskKind::ALL {
            let tokens = self.batch * task.length(tasks);
            require("batch", tokens <= MAX_TOKENS_PER_BATCH, || {
                format!(
                    "a batch of {} has {tokens} tokens, at most {MAX_TOKENS_PER_BATCH} are taken",
                    task.name()
                )
            })?;
        }
        check_learning_rate("lr", self.lr)?;
        check_fraction("weight-decay", self.weight_decay)
    }

    /// The learning rate of the step that follows `done` steps.
    pub fn learning_rate(&self, done: usize) -> f64 {
        const LAST: f64 = 0.1;
        let warmup = self.warmup.min(self.steps / 2);
        if done < warmup {
            return self.lr * (done + 1) as f64 / warmup as f64;
        }
        let decay_steps = (self.steps - warmup).saturating_sub(1).max(1);
        let progress = (done - warmup) as f64 / decay_steps as f64;
        let cosine = (1.0 + (std::f64::consts::PI * progress).cos()) / 2.0;
        self.lr * (LAST + (1.0 - LAST) * cosine)
    }
}

fn require(
    flag: &'static str,
    holds: bool,
    reason: impl FnOnce() -> String,
) -> Result<(), TrainError> {
    if holds {
        return Ok(());
    }
    Err(TrainError::Setting {
        flag,
        reason: reason(),
    })
}
