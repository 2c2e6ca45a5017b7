use std::path::{Path, PathBuf};

use burn::module::Module;

use super::conclusion::{conclude, resume_command};
use super::exit::{EXIT_INTERRUPTED, exit_status, print_error};
use super::flags::check_flags;
use super::print::{print_settings, print_text, say};
use super::{Cli, settings_for_resume};
use crate::compare::{CompareOutcome, ComparePlan, Report, RunId, execute};
use crate::train::{
    Interrupt, LearningRates, LockedFolder, Progress, RunFolder, RunSettings, Task, TrainError,
    decoder_config, resume, start,
};

/// Folder of runs for which no other was named.
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
    check_flags(cli)?;
    match &cli.folder.resume {
        Some(folder) if ComparePlan::file(folder).exists() => resume_comparison(cli, folder),
        Some(_) if cli.compare.report || cli.compare.only.is_some() => Err(TrainError::Setting {
            flag: "resume",
            reason: "--report and --only need the folder of a comparison".to_owned(),
        }),
        Some(folder) => resume_run(cli, folder),
        None if cli.compare.compare => new_comparison(cli),
        None if cli.compare.only.is_some() => Err(TrainError::Setting {
            flag: "only",
            reason: "needs --compare, or --resume with the folder of a comparison".to_owned(),
        }),
        None => new_run(cli),
    }
}

fn new_run(cli: &Cli) -> Result<u8, TrainError> {
    // Everything that can be wrong is found before a folder is made, or an old run replaced.
    let task = checked_task(&cli.settings)?;
    let parameters = parameter_count(&cli.settings)?;
    let interrupt = listen()?;
    let folder = RunFolder::create(&new_folder(cli), cli.folder.overwrite)?;
    print_text(&task.summary);
    print_settings(&cli.settings, parameters, folder.path());
    let mut progress = progress(&cli.settings);
    let outcome = start(
        &folder,
        cli.settings.clone(),
        &task,
        &interrupt,
        &mut progress,
    )?;
    conclude(cli, &folder, outcome, &interrupt)
}

fn resume_run(cli: &Cli, path: &Path) -> Result<u8, TrainError> {
    let folder = LockedFolder::lock(RunFolder::open(path)?)?;
    let mut config = folder.read_config()?;
    config.settings = settings_for_resume(path, &config.settings, &cli.settings, &cli.given)?;
    config.settings.validate()?;
    let task = Task::load(&config.settings)?;
    let interrupt = listen()?;
    print_text(&task.summary);
    print_settings(&config.settings, config.parameters, folder.path());
    let mut progress = progress(&config.settings);
    let outcome = resume(&folder, &config, &task, &interrupt, &mut progress)?;
    conclude(cli, &folder, outcome, &interrupt)
}

fn new_comparison(cli: &Cli) -> Result<u8, TrainError> {
    let flags = &cli.compare;
    let muonclip_lrs = match flags.muonclip_lrs.as_slice() {
        [] => vec![cli.settings.train.lr],
        rates => rates.to_vec(),
    };
    let plan = ComparePlan::new(
        cli.settings.clone(),
        &muonclip_lrs,
        &flags.adamw_lrs,
        &flags.seeds,
    )?;
    let runs = runs_asked_for(cli, &plan)?;
    let task = checked_task(&plan.settings)?;
    let folder = new_folder(cli);
    plan.create(&folder)?;
    run_comparison(&plan, &folder, &runs, &task)
}

fn resume_comparison(cli: &Cli, folder: &Path) -> Result<u8, TrainError> {
    let mut plan = ComparePlan::read(folder)?;
    let stored_steps = plan.settings.train.steps;
    plan.settings = settings_for_resume(folder, &plan.settings, &cli.settings, &cli.given)?;
    if plan.settings.train.steps != stored_steps {
        return Err(TrainError::Contradiction {
            path: folder.to_owned(),
            flag: "steps".to_owned(),
            stored: stored_steps.to_string(),
            given: plan.settings.train.steps.to_string(),
        });
    }
    plan.settings.validate()?;
    if cli.compare.report {
        return print_report(&plan, folder);
    }
    let runs = runs_asked_for(cli, &plan)?;
    let task = Task::load(&plan.settings)?;
    run_comparison(&plan, folder, &runs, &task)
}

fn runs_asked_for(cli: &Cli, plan: &ComparePlan) -> Result<Vec<RunId>, TrainError> {
    match &cli.compare.only {
        Some(name) => Ok(vec![plan.find(name)?]),
        None => Ok(plan.runs()),
    }
}

fn run_comparison(
    plan: &ComparePlan,
    folder: &Path,
    runs: &[RunId],
    task: &Task,
) -> Result<u8, TrainError> {
    let interrupt = listen()?;
    print_text(&task.summary);
    say(format_args!(
        "compare     {} runs of {} steps",
        runs.len(),
        plan.settings.train.steps
    ));
    say(format_args!("results     {}", folder.display()));
    let announce = |run: RunId| {
        say(format_args!("run         {run}"));
        progress(&plan.settings)
    };
    let outcome = execute(plan, folder, runs, task, &interrupt, announce)?;
    let status = print_report(plan, folder)?;
    if outcome == CompareOutcome::Interrupted {
        say(format_args!(
            "stopped; continue with\n  {}",
            resume_command(folder)
        ));
        return Ok(EXIT_INTERRUPTED);
    }
    Ok(status)
}

fn print_report(plan: &ComparePlan, folder: &Path) -> Result<u8, TrainError> {
    let report = Report::read(plan, folder)?;
    report.write(folder)?;
    say(format_args!("\n{}", report.to_markdown()));
    Ok(0)
}

/// The text of `settings`, after everything cheaper has been checked.
fn checked_task(settings: &RunSettings) -> Result<Task, TrainError> {
    settings.validate()?;
    decoder_config(&settings.model)?;
    LearningRates::new(&settings.train)?;
    settings.train.device.open()?;
    Task::load(settings)
}

/// Builds a model only to count. That is cheap: Burn draws most weights when they are first read, and the few
/// that are drawn at once are drawn anew for training.
fn parameter_count(settings: &RunSettings) -> Result<usize, TrainError> {
    let device = settings.train.device.open()?;
    Ok(decoder_config(&settings.model)?.init(&device).num_params())
}

fn new_folder(cli: &Cli) -> PathBuf {
    cli.folder
        .out
        .clone()
        .unwrap_or_else(|| RunFolder::next_free(Path::new(DEFAULT_PARENT)))
}

fn progress(settings: &RunSettings) -> Progress {
    Progress::on_stderr(settings.train.batch * settings.train.seq_len)
}

fn listen() -> Result<Interrupt, TrainError> {
    Interrupt::listen().map_err(|error| TrainError::Signals { source: error })
}
