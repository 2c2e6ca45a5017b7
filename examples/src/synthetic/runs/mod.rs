//! One run after the other, each kept in a folder of its own.
//!
//! A run's `progress.json` is the one file that says how far it is. It names the files of its checkpoint by their digests and is
//! written when they are on the disk, so whoever stops the program or the machine finds the evaluation before or the new one.
//! A run that is over keeps its numbers and drops its checkpoint.

mod checkpoint;
mod config;
mod display;
mod execute;
mod progress;
mod session;

pub use config::RunConfig;
pub use display::RunDisplay;
pub use execute::{ExecuteOutcome, execute};
pub use progress::{Point, RunProgress, RunState};
