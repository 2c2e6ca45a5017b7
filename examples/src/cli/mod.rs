//! The command line of `train-lm`: the only place that prints results or decides how a program exits.

mod args;
mod command;
mod conclusion;
mod exit;
mod flags;
mod print;
mod stored;

pub use args::{Cli, CompareFlags, FolderFlags, SampleFlags};
pub use command::run;
pub use exit::{EXIT_FAILURE, EXIT_INTERRUPTED, EXIT_USAGE, exit_status, print_error};
pub use stored::settings_for_resume;
