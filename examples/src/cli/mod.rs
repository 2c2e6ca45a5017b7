//! The command line of `train-lm`: the only place that prints results or decides how the program exits.

mod args;
mod command;
mod print;
mod stored;

pub use args::{Cli, CompareFlags, FolderFlags, SampleFlags};
pub use command::{EXIT_FAILURE, EXIT_USAGE, run};
pub use stored::settings_for_resume;
