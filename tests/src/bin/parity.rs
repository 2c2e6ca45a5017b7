//! Checks the crates against reference cases.
//!
//! Exit status: 0 if every check passed, 1 if one failed, 2 if a case could not be read, nothing
//! was checked, or the arguments make no sense.

use std::io;
use std::path::PathBuf;
use std::process::ExitCode;

use burn_kimi_model::DeviceName;
use clap::Parser;
use regex::Regex;
use tests::parity::{Outcome, Parity};

/// Check the crates against reference cases: one line a tensor, then the counts.
#[derive(Parser)]
struct Arguments {
    /// Where to compute: flex, wgpu, vulkan, metal, webgpu, cuda or rocm.
    #[arg(long, value_name = "NAME", default_value_t)]
    device: DeviceName,

    /// Keep only the checks whose tensor name (`out.o`, `grad.q`) matches.
    #[arg(long, value_name = "REGEX")]
    tensor: Option<Regex>,

    /// Folders with a case.json, or with such folders below them.
    #[arg(required = true, value_name = "CASE_DIR")]
    folders: Vec<PathBuf>,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let device = match arguments.device.open() {
        Ok(device) => device,
        Err(error) => return unusable(&error),
    };
    let parity = Parity {
        device,
        tensor: arguments.tensor,
        folders: arguments.folders,
    };
    match parity.run(&mut io::stdout(), &mut io::stderr()) {
        Ok(outcome) => ExitCode::from(outcome.exit_code()),
        Err(error) => unusable(&error),
    }
}

fn unusable(error: &dyn std::error::Error) -> ExitCode {
    eprintln!("error: {error}");
    ExitCode::from(Outcome::Unreadable.exit_code())
}
