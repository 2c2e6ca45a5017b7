use std::collections::BTreeSet;
use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::{Arm, Settings, TaskKind, json_file};
use crate::train::{TrainError, remove_temporary_files, require_vacant};

const FORMAT: u32 = 1;

/// One run of an experiment, written `TASK/ARM/SEED`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RunId {
    /// The task.
    pub task: TaskKind,
    /// The arm.
    pub arm: Arm,
    /// The seed of the weights and of the training examples.
    pub seed: u64,
}

impl RunId {
    /// The folder of the run within that of its experiment.
    pub fn folder(self, experiment: &Path) -> PathBuf {
        experiment
            .join(self.task.name())
            .join(self.arm.name())
            .join(self.seed.to_string())
    }
}

impl fmt::Display for RunId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}/{}", self.task.name(), self.arm.name(), self.seed)
    }
}

/// What is compared: `synthetic.json`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Plan {
    format: u32,
    /// What all runs have in common.
    pub settings: Settings,
    /// The tasks.
    pub tasks: Vec<TaskKind>,
    /// The arms.
    pub arms: Vec<Arm>,
    /// The seeds of every arm on every task.
    pub seeds: Vec<u64>,
}

impl Plan {
    /// A plan of every arm on every task with every seed. Repeated entries count once, and the order of reports is always the same.
    ///
    /// # Errors
    /// [`TrainError::Setting`] if a list is empty or a setting is out of range.
    pub fn new(
        settings: Settings,
        tasks: &[TaskKind],
        arms: &[Arm],
        seeds: &[u64],
    ) -> Result<Self, TrainError> {
        let plan = Self {
            format: FORMAT,
            settings,
            tasks: Vec::from_iter(
                TaskKind::ALL
                    .into_iter()
                    .filter(|task| tasks.contains(task)),
            ),
            arms: Vec::from_iter(Arm::ALL.into_iter().filter(|arm| arms.contains(arm))),
            seeds: Vec::from_iter(BTreeSet::from_iter(seeds.iter().copied())),
        };
        plan.validate()?;
        Ok(plan)
    }

    fn validate(&self) -> Result<(), TrainError> {
        let lists = [
            ("tasks", self.tasks.is_empty()),
            ("arms", self.arms.is_empty()),
            ("seeds", self.seeds.is_empty()),
        ];
        if let Some((flag, _)) = lists.into_iter().find(|(_, is_empty)| *is_empty) {
            return Err(TrainError::Setting {
                flag,
                reason: "needs at least one value".to_owned(),
            });
        }
        self.settings.validate()
    }

    /// Every run, seed by seed, so that an experiment that is stopped early has compared something.
    pub fn runs(&self) -> Vec<RunId> {
        let mut runs = Vec::new();
        for &seed in &self.seeds {
            for &task in &self.tasks {
                runs.extend(self.arms.iter().map(|&arm| RunId { task, arm, seed }));
            }
        }
        runs
    }

    /// The run named `TASK/ARM/SEED`.
    ///
    /// # Errors
    /// [`TrainError::Setting`] with the names there are.
    pub fn find(&self, name: &str) -> Result<RunId, TrainError> {
        let runs = self.runs();
        let found = runs.into_iter().find(|run| run.to_string() == name);
        found.ok_or_else(|| TrainError::Setting {
            flag: "only",
            reason: format!(
                "no run is called {name:?}; a name is TASK/ARM/SEED with a task of {}, an arm of {} and a seed of {}",
                self.tasks.iter().map(|task| task.name()).collect::<Vec<_>>().join(", "),
                self.arms.iter().map(|arm| arm.name()).collect::<Vec<_>>().join(", "),
                self.seeds.iter().map(u64::to_string).collect::<Vec<_>>().join(", "),
            ),
        })
    }

    /// Where the plan of the experiment in `folder` is.
    pub fn file(folder: &Path) -> PathBuf {
        folder.join("synthetic.json")
    }

    /// Starts an experiment in an empty or new folder.
    ///
    /// # Errors
    /// [`TrainError::Setting`] if there is one already, [`TrainError::FolderNotEmpty`] if anything else is there,
    /// [`TrainError::Io`].
    pub fn create(&self, folder: &Path) -> Result<(), TrainError> {
        let path = Self::file(folder);
        if path.exists() {
            let shown = folder.display();
            return Err(TrainError::Setting {
                flag: "out",
                reason: format!(
                    "{shown} holds an experiment already; continue it with --resume {shown}, or choose another folder"
                ),
            });
        }
        require_vacant(folder)?;
        fs::create_dir_all(folder).map_err(|e| TrainError::io(folder, e))?;
        remove_temporary_files(folder)?;
        json_file::write(&path, self)
    }

    /// Reads the plan of the experiment in `folder`.
    ///
    /// # Errors
    /// [`TrainError::Io`] or [`TrainError::Malformed`] with the path.
    pub fn read(folder: &Path) -> Result<Self, TrainError> {
        let path = Self::file(folder);
        let plan: Self = json_file::read(&path)?;
        if plan.format != FORMAT {
            let reason = format!(
                "format is {}, this program reads format {FORMAT}",
                plan.format
            );
            return Err(TrainError::malformed(&path, reason));
        }
        plan.validate()
            .map_err(|e| TrainError::malformed(&path, e))?;
        Ok(plan)
    }
}
