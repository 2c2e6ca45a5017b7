//! Trains a small Kimi-style language model on real text. `train-lm --help` lists flags and examples.

use std::process::ExitCode;

use examples::cli::{self, Cli};

fn main() -> ExitCode {
    match Cli::parse_line(std::env::args_os()) {
        Ok(cli) => cli::run(&cli).into(),
        Err(error) => error.exit(),
    }
}
