use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::synthetic::{Arm, Plan, RunId, Settings, TaskKind, json_file};
use crate::train::{RunFolder, TrainError};

/// `config.json`: what a run is.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RunConfig {
    task: TaskKind,
    arm: Arm,
    seed: u64,
    settings: Settings,
    /// Number of trained values.
    pub parameters: usize,
}

impl RunConfig {
    pub(super) fn new(plan: &Plan, run: RunId, parameters: usize) -> Self {
        Self {
            task: run.task,
            arm: run.arm,
            seed: run.seed,
            settings: plan.settings.clone(),
            parameters,
        }
    }

    /// Reads the configuration of a run of `plan` whose experiment is in `folder`; `None` if the run has not begun.
    ///
    /// # Errors
    /// [`TrainError`] if the file is damaged, or of another run or plan.
    pub fn read(plan: &Plan, folder: &Path, run: RunId) -> Result<Option<Self>, TrainError> {
        let Ok(run_folder) = RunFolder::open(&run.folder(folder)) else {
            return Ok(None);
        };
        let path = run_folder.config_file();
        let found: Self = json_file::read(&path)?;
        if found != Self::new(plan, run, found.parameters) {
            return Err(TrainError::malformed(
                &path,
                format!("this is not the run {run} with the settings of synthetic.json"),
            ));
        }
        Ok(Some(found))
    }

    pub(super) fn write(&self, folder: &RunFolder) -> Result<(), TrainError> {
        json_file::write(&folder.config_file(), self)
    }
}
