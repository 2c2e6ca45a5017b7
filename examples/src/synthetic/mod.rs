//! Small models on synthetic tasks, to see what the parts of Kimi Delta Attention are for: a list of runs, each kept when it
//! is over, and a report of them.
//!
//! ```text
//! DIR/synthetic.json             the plan: tasks, arms, seeds and settings
//! DIR/mqar/kda/0/                one run: TASK/ARM/SEED
//!     config.json                what it is
//!     progress.json              how far it is, and what it measured
//!     checkpoint/                model and optimizer, while it is not over
//!     .lock                      locked while a process trains the run
//! DIR/report.md                  a table for every task
//! DIR/mqar.svg                   accuracy over steps, a file for every task
//! ```
//!
//! Everything random is a function of the seed and of the step number, and everything else that a step depends on is in the
//! checkpoint. A resumed run therefore gives the numbers of the uninterrupted one, bit for bit on one machine.
//!
//! The tasks are those of Kimi Linear, arXiv 2510.26692, section 5.1, in a size that a CPU trains in minutes.

mod arm;
mod batches;
mod cli;
mod command;
mod json_file;
mod model;
mod plan;
mod report;
mod runs;
mod settings;
mod task;

pub use arm::Arm;
pub use batches::{Batch, held_out_examples, train_examples};
pub use cli::{ChoiceFlags, Cli, ExecutionFlags};
pub use command::run;
pub use model::{
    Block, MemoryGates, Network, TokenMixer, accuracy, answer_loss, gated_linear_attention,
};
pub use plan::{Plan, RunId};
pub use report::{Report, Spread, Summary};
pub use runs::{ExecuteOutcome, Point, RunConfig, RunDisplay, RunProgress, RunState, execute};
pub use settings::{ModelSettings, Settings, TaskSettings, TrainingSettings};
pub use task::{Example, Operation, TaskKind, Token, mqar, palindrome, stack};
