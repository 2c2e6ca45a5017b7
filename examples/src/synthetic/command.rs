use std::fmt::Display;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use super::runs::{ExecuteOutcome, RunDisplay, execute};
use super::{Cli, Plan, Report, RunId};
use crate::cli::{EXIT_INTERRUPTED, exit_status, print_error};
use crate::train::{Interrupt, RunFolder, TrainError};

/// Folder of experiments for which no other was named.
const DEFAULT_PARENT: &str = "runs";

/// Runs the program and returns its exit status. Errors are printed with their causes.
pub fn run(cli: &Cli) -> u8 {
    match dispatch(cli) {
        Ok(status) => status,
        Err(error) => {
            print_error(&error);
            exit_status(&error)
        }
    }
}

fn dispatch(cli: &Cli) -> Result<u8, TrainError> {
    match &cli.execution.resume {
        Some(folder) => {
            let plan = Plan::read(folder)?;
            if cli.execution.report {
                print_report(&plan, folder)?;
                return Ok(0);
            }
            let runs = runs_asked_for(cli, &plan)?;
            take(cli, &plan, folder, &runs)
        }
        // clap lets a `requires` pass in some combinations with conflicts, so it is checked here.
        None if cli.execution.report => Err(TrainError::Setting {
            flag: "report",
            reason: "needs --resume with the folder of an experiment".to_owned(),
        }),
        None => {
            let choice = &cli.choice;
            let settings = cli.settings.clone();
            let plan = Plan::new(settings, &choice.tasks, &choice.arms, &choice.seeds)?;
            let runs = runs_asked_for(cli, &plan)?;
            // Everything that can be wrong is found before a folder is made.
            cli.execution.device.open()?;
            let folder = new_folder(cli);
            plan.create(&folder)?;
            take(cli, &plan, &folder, &runs)
        }
    }
}

fn runs_asked_for(cli: &Cli, plan: &Plan) -> Result<Vec<RunId>, TrainError> {
    match &cli.execution.only {
        Some(name) => Ok(vec![plan.find(name)?]),
        None => Ok(plan.runs()),
    }
}

fn new_folder(cli: &Cli) -> PathBuf {
    let next_free = || RunFolder::next_free(Path::new(DEFAULT_PARENT));
    cli.execution.out.clone().unwrap_or_else(next_free)
}

fn take(cli: &Cli, plan: &Plan, folder: &Path, runs: &[RunId]) -> Result<u8, TrainError> {
    let interrupt = Interrupt::listen().map_err(|source| TrainError::Signals { source })?;
    say(format_args!(
        "experiment  {} runs of {} steps on {}",
        runs.len(),
        plan.settings.training.steps,
        cli.execution.device
    ));
    say(format_args!("results     {}", folder.display()));
    let announce = |run: RunId| {
        say(format_args!("run         {run}"));
        RunDisplay::on_stderr()
    };
    let outcome = execute(
        plan,
        folder,
        runs,
        cli.execution.device,
        &interrupt,
        announce,
    )?;
    print_report(plan, folder)?;
    match outcome {
        ExecuteOutcome::Done => Ok(0),
        ExecuteOutcome::Interrupted => {
            say(format_args!(
                "stopped; continue with\n  cargo run --release -p examples --bin synthetic -- --resume {}",
                folder.display()
            ));
            Ok(EXIT_INTERRUPTED)
        }
    }
}

fn print_report(plan: &Plan, folder: &Path) -> Result<(), TrainError> {
    let report = Report::read(plan, folder)?;
    report.write(folder)?;
    say(format_args!("\n{}", report.to_markdown()));
    Ok(())
}

/// Prints a line. A reader that has gone away (`synthetic | head`) is no reason to lose a run.
fn say(line: impl Display) {
    let _ = writeln!(io::stdout(), "{line}");
}
