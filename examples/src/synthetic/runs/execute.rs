use std::path::Path;

use burn_kimi_model::DeviceName;

use super::session::{Outcome, Session};
use super::{RunConfig, RunDisplay, RunProgress};
use crate::synthetic::{Plan, RunId};
use crate::train::{Interrupt, LockedFolder, RunFolder, TrainError};

/// How a session of an experiment ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExecuteOutcome {
    /// Every run asked for is over.
    Done,
    /// Somebody asked to stop; the run in progress was saved.
    Interrupted,
}

/// Runs what is missing of `runs`, continues what was interrupted, and leaves runs that are over alone. `announce` is told each
/// run before it starts.
///
/// # Errors
/// [`TrainError`] of a run. A run that diverges is a result, not an error.
pub fn execute(
    plan: &Plan,
    folder: &Path,
    runs: &[RunId],
    device: DeviceName,
    interrupt: &Interrupt,
    mut announce: impl FnMut(RunId) -> RunDisplay,
) -> Result<ExecuteOutcome, TrainError> {
    for run in pending(plan, folder, runs)? {
        let mut display = announce(run);
        let path = run.folder(folder);
        let locked = match RunFolder::open(&path) {
            Ok(begun) => LockedFolder::lock(begun)?,
            Err(_) => RunFolder::create(&path, false)?,
        };
        let session = Session::open(plan, run, folder, locked, device)?;
        if session.run(interrupt, &mut display)? == Outcome::Interrupted {
            return Ok(ExecuteOutcome::Interrupted);
        }
    }
    Ok(ExecuteOutcome::Done)
}

/// Those of `runs` that are not over. A damaged file of any is found before the first one takes its time.
fn pending(plan: &Plan, folder: &Path, runs: &[RunId]) -> Result<Vec<RunId>, TrainError> {
    let mut pending = Vec::new();
    for &run in runs {
        RunConfig::read(plan, folder, run)?;
        let progress = RunProgress::read(plan, folder, run)?;
        if !progress.state(plan.settings.training.steps).is_over() {
            pending.push(run);
        }
    }
    Ok(pending)
}
