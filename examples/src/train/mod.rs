//! Training a language model on bytes: settings, the loop, and what a run leaves in its folder.
//!
//! ```text
//! DIR/config.json                      settings, the model they expand to, the text and its bigram baseline
//! DIR/metrics.jsonl                    one line per step
//! DIR/checkpoint/step-00000100/        model, optimizer and position; complete or absent, never half-written
//! DIR/loss.svg                         the curves
//! DIR/logits.svg                       the largest attention logits, where MuonClip watches them
//! DIR/.lock                            locked while a process trains the run
//! ```
//!
//! Everything random is a function of the seed and of the step number, and everything else that a step depends
//! on is in the checkpoint. A resumed run therefore gives the numbers of the uninterrupted one, bit for bit on
//! one machine.

mod atomic_file;
mod checkpoint;
mod config;
mod error;
mod evaluate;
mod folder;
mod interrupt;
mod locked_folder;
mod metrics;
mod model;
mod optimizer;
mod position;
mod progress;
mod ranges;
mod run;
mod schedule;
mod session;
mod settings;
mod shards;
mod task;

pub(crate) use atomic_file::remove_temporary_files;
pub use atomic_file::write_atomically;
pub use checkpoint::{load_model, newest_checkpoint};
pub use config::RunConfig;
pub use error::TrainError;
pub use evaluate::{batch_loss, cross_entropy, evaluate, watched_batch_loss};
pub use folder::RunFolder;
pub(crate) use folder::require_vacant;
pub(crate) use interrupt::EXIT_INTERRUPTED;
pub use interrupt::Interrupt;
pub use locked_folder::LockedFolder;
pub use metrics::{HeadLogit, MetricsLine, MetricsLog, read_metrics};
pub use model::decoder_config;
pub use optimizer::{LanguageModelOptimizer, OptimizerKind};
pub use progress::Progress;
pub(crate) use ranges::{check_batch, check_count, check_fraction, check_learning_rate};
pub use run::{resume, start};
pub use schedule::LearningRates;
pub use session::Outcome;
pub use settings::{ModelSettings, RunSettings, TrainSettings};
pub use task::{Task, TextSummary};
