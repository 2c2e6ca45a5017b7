use std::path::Path;

use super::{ComparePlan, Report, RunId, RunState};
use crate::train::{
    Interrupt, LockedFolder, Outcome, Progress, RunConfig, RunFolder, RunSettings, Task,
    TrainError, newest_checkpoint, resume, start,
};

/// How a session of comparing ended.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum CompareOutcome {
    /// Every run asked for is finished or diverged.
    Done,
    /// Somebody asked to stop; the run in progress was saved.
    Interrupted,
}

/// Runs what is missing of `runs`, continues what was interrupted, and leaves finished runs alone. `announce`
/// is told each run before it starts.
///
/// # Errors
/// [`TrainError`] of a run. A run that diverges is a result, not an error.
pub fn execute(
    plan: &ComparePlan,
    folder: &Path,
    runs: &[RunId],
    task: &Task,
    interrupt: &Interrupt,
    mut announce: impl FnMut(RunId) -> Progress,
) -> Result<CompareOutcome, TrainError> {
    for &run in runs {
        if matches!(
            Report::state(plan, folder, run)?,
            RunState::Finished { .. } | RunState::Diverged { .. }
        ) {
            continue;
        }
        let mut progress = announce(run);
        match execute_one(plan, folder, run, task, interrupt, &mut progress) {
            Ok(Outcome::Finished { .. }) | Err(TrainError::Diverged { .. }) => {}
            Ok(Outcome::Interrupted { .. }) => return Ok(CompareOutcome::Interrupted),
            Err(error) => return Err(error),
        }
    }
    Ok(CompareOutcome::Done)
}

fn execute_one(
    plan: &ComparePlan,
    folder: &Path,
    run: RunId,
    task: &Task,
    interrupt: &Interrupt,
    progress: &mut Progress,
) -> Result<Outcome, TrainError> {
    let path = ComparePlan::run_folder(folder, run);
    if let Ok(begun) = RunFolder::open(&path) {
        let begun = LockedFolder::lock(begun)?;
        if newest_checkpoint(&begun)?.is_some() {
            let config = continued(&begun, plan.settings_of(run))?;
            return resume(&begun, &config, task, interrupt, progress);
        }
    }
    let fresh = RunFolder::create(&path, true)?;
    start(&fresh, plan.settings_of(run), task, interrupt, progress)
}

/// The configuration of a run that was begun, with the `wanted` settings: those that may change when a
/// comparison is continued may differ from the stored ones.
fn continued(begun: &RunFolder, wanted: RunSettings) -> Result<RunConfig, TrainError> {
    let mut config = begun.read_config()?;
    config.settings.text.clone_from(&wanted.text);
    config.settings.train.save_every = wanted.train.save_every;
    config.settings.train.device = wanted.train.device;
    if config.settings != wanted {
        return Err(TrainError::malformed(
            &begun.config_file(),
            "its settings are not those of the comparison's compare.json",
        ));
    }
    Ok(config)
}
