//! Trains the decoder with Burn's own `SupervisedTraining`, and MuonClip in AdamW's place.
//!
//! ```text
//! cargo run --release -p examples --bin supervised -- --optimizer muonclip
//! cargo run --release -p examples --bin supervised -- --optimizer adamw
//! ```

use std::process::ExitCode;

use clap::Parser;
use examples::cli::{EXIT_FAILURE, exit_status, print_error};
use examples::supervised::{SupervisedSettings, train};

/// Trains the decoder of train-lm with Burn's own SupervisedTraining.
#[derive(Parser)]
#[command(name = "supervised", version)]
struct Cli {
    #[command(flatten)]
    settings: SupervisedSettings,
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    match train(&cli.settings) {
        Ok(result) => match result.error {
            None => ExitCode::SUCCESS,
            Some(error) => {
                print_error(&*error);
                EXIT_FAILURE.into()
            }
        },
        Err(error) => {
            print_error(&error);
            exit_status(&error).into()
        }
    }
}
