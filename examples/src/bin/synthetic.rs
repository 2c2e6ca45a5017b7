//! Compares what mixes the tokens of small models on synthetic tasks. `synthetic --help` lists flags and examples.

use std::process::ExitCode;

use examples::synthetic::{Cli, run};

fn main() -> ExitCode {
    match Cli::parse_line(std::env::args_os()) {
        Ok(cli) => run(&cli).into(),
        Err(error) => error.exit(),
    }
}
