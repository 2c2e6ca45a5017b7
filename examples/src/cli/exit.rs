use std::error::Error;
use std::io::{self, Write};

use burn_kimi_model::DeviceError;

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
        | TrainError::Device(DeviceError::NotCompiled { .. })
        | TrainError::NeedsCompare { .. }
        | TrainError::Contradiction { .. }
        | TrainError::FolderTaken { .. }
        | TrainError::FolderNotEmpty { .. } => EXIT_USAGE,
        _ => EXIT_FAILURE,
    }
}

/// Prints an error with its causes on standard error. If nobody can read it, the exit status still tells.
pub fn print_error(error: &dyn Error) {
    let mut out = io::stderr();
    let _ = writeln!(out, "error: {error}");
    let mut cause = error.source();
    while let Some(error) = cause {
        let _ = writeln!(out, "  because: {error}");
        cause = error.source();
    }
}
