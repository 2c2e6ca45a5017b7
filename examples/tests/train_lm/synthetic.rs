//! `synthetic`: its tasks by hand, its models against formulas, and the program as a user runs it.

mod model;
mod operator;
mod program;
mod refusals;
mod stopping;
mod tasks;

use std::process::Command;

use examples::synthetic::{Cli, Settings};

use crate::tiny::Place;

/// Flags of models that train in moments on tasks of a few tokens.
const FLAGS: &str = "--symbols 4 --reversed 3 --pairs 2 --stacks 2 --operations 6 --layers 1 --hidden 8 --heads 2 \
                     --head-dim 4 --ffn 8 --batch 4 --eval-sequences 6 --eval-every 5";

/// `synthetic` in `place` with nothing but `flags`, which spaces separate.
fn synthetic(place: &Place, flags: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_synthetic"));
    command
        .current_dir(place.path(""))
        .args(flags.split_whitespace());
    command
}

/// `synthetic` in `place` with tiny models and tasks, and `flags`.
fn tiny(place: &Place, flags: &str) -> Command {
    synthetic(place, &format!("{FLAGS} {flags}"))
}

fn parse(flags: &str) -> Result<Cli, clap::Error> {
    Cli::parse_line(["synthetic"].into_iter().chain(flags.split_whitespace()))
}

/// The documented sizes.
fn default_settings() -> Settings {
    parse("").expect("no flags").settings
}

/// The sizes of [`FLAGS`].
fn tiny_settings() -> Settings {
    parse(FLAGS).expect("flags").settings
}
