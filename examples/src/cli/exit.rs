use std::error::Error;

use crate::train::TrainError;

/// Exit status when something failed.
pub const EXIT_FAILURE: u8 = 1;
/// Exit status when the command line asks for something that cannot be.
pub const EXIT_USAGE: u8 = 2;
/// Exit status when somebody asked to stop, after saving.
pub const EXIT_INTERRUPTED: u8 = crate::train::EXIT_INTERRUPTED;

/// The exit status that an error asks for.
pub fn exit_status(error: &TrainError) -> u8 {
    match error {
        TrainError::Setting { .. }
        | TrainError::Model(_)
        | TrainError::Contradiction { .. }
        | TrainError::FolderTaken { .. }
        | TrainError::FolderNotEmpty { .. } => EXIT_USAGE,
        _ => EXIT_FAILURE,
    }
}

/// Prints an error with its causes on standard error.
pub fn print_error(error: &dyn Error) {
    eprintln!("error: {error}");
    let mut cause = error.source();
    while let Some(error) = cause {
        eprintln!("  because: {error}");
        cause = error.source();
    }
}
