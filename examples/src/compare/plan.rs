use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::train::{
    OptimizerKind, RunSettings, TrainError, check_learning_rate, decoder_config,
    remove_temporary_files, require_vacant, write_atomically,
};

/// One optimizer at one learning rate.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Arm {
    /// The optimizer.
    pub optimizer: OptimizerKind,
    /// Its peak learning rate.
    pub lr: f64,
}

impl fmt::Display for Arm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-lr{}", self.optimizer.name(), self.lr)
    }
}

/// One run of a comparison, written `ARM/SEED`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RunId {
    /// The arm.
    pub arm: Arm,
    /// The seed.
    pub seed: u64,
}

impl fmt::Display for RunId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.arm, self.seed)
    }
}

/// What is compared: `compare.json`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ComparePlan {
    format: u32,
    /// What all runs have in common; optimizer, learning rate and seed are replaced by each run's own.
    pub settings: RunSettings,
    /// The arms.
    pub arms: Vec<Arm>,
    /// The seeds of every arm.
    pub seeds: Vec<u64>,
}

const FORMAT: u32 = 1;

impl ComparePlan {
    /// A plan of MuonClip at `muonclip_lrs` and AdamW at `adamw_lrs`. Repeated entries count once.
    ///
    /// # Errors
    /// [`TrainError::Setting`] if a list is empty or a setting is out of range, [`TrainError::Model`] if the
    /// sizes make no model.
    pub fn new(
        settings: RunSettings,
        muonclip_lrs: &[f64],
        adamw_lrs: &[f64],
        seeds: &[u64],
    ) -> Result<Self, TrainError> {
        let arms_of = |optimizer, rates: &[f64]| -> Vec<Arm> {
            rates.iter().map(|&lr| Arm { optimizer, lr }).collect()
        };
        let mut arms = arms_of(OptimizerKind::MuonClip, muonclip_lrs);
        arms.extend(arms_of(OptimizerKind::AdamW, adamw_lrs));
        let plan = Self {
            format: FORMAT,
            settings,
            arms: distinct(arms),
            seeds: distinct(seeds.to_vec()),
        };
        plan.validate()?;
        Ok(plan)
    }

    /// Checks what flags and files can get wrong although each value has the right type.
    fn validate(&self) -> Result<(), TrainError> {
        let has_arm = |optimizer| self.arms.iter().any(|arm| arm.optimizer == optimizer);
        let lists = [
            ("muonclip-lrs", has_arm(OptimizerKind::MuonClip)),
            ("adamw-lrs", has_arm(OptimizerKind::AdamW)),
            ("seeds", !self.seeds.is_empty()),
        ];
        if let Some((flag, _)) = lists.into_iter().find(|(_, has_value)| !has_value) {
            return Err(TrainError::Setting {
                flag,
                reason: "needs at least one value".to_owned(),
            });
        }
        self.settings.validate()?;
        for arm in &self.arms {
            let flag = match arm.optimizer {
                OptimizerKind::MuonClip => "muonclip-lrs",
                OptimizerKind::AdamW => "adamw-lrs",
            };
            check_learning_rate(flag, arm.lr)?;
        }
        decoder_config(&self.settings.model)?;
        Ok(())
    }

    /// Every run, seed by seed, so that a comparison that is stopped early has compared something.
    pub fn runs(&self) -> Vec<RunId> {
        self.seeds
            .iter()
            .flat_map(|&seed| self.arms.iter().map(move |&arm| RunId { arm, seed }))
            .collect()
    }

    /// The run named `ARM/SEED`.
    ///
    /// # Errors
    /// [`TrainError::Setting`] with the names there are.
    pub fn find(&self, name: &str) -> Result<RunId, TrainError> {
        let runs = self.runs();
        runs.iter()
            .copied()
            .find(|run| run.to_string() == name)
            .ok_or_else(|| TrainError::Setting {
                flag: "only",
                reason: format!(
                    "no run is called {name:?}; there are {}",
                    runs.iter()
                        .map(RunId::to_string)
                        .collect::<Vec<_>>()
                        .join(", ")
                ),
            })
    }

    /// The settings of one run.
    pub fn settings_of(&self, run: RunId) -> RunSettings {
        let mut settings = self.settings.clone();
        settings.train.optimizer = run.arm.optimizer;
        settings.train.lr = run.arm.lr;
        settings.train.seed = run.seed;
        settings
    }

    /// Where the plan of the comparison in `folder` is.
    pub fn file(folder: &Path) -> PathBuf {
        folder.join("compare.json")
    }

    /// The folder of one run.
    pub fn run_folder(folder: &Path, run: RunId) -> PathBuf {
        folder.join(run.arm.to_string()).join(run.seed.to_string())
    }

    /// Starts a comparison in an empty or new folder.
    ///
    /// # Errors
    /// [`TrainError::FolderTaken`] or [`TrainError::FolderNotEmpty`] if something is there, [`TrainError::Io`].
    pub fn create(&self, folder: &Path) -> Result<(), TrainError> {
        if Self::file(folder).exists() {
            return Err(TrainError::FolderTaken {
                path: folder.to_owned(),
            });
        }
        require_vacant(folder)?;
        fs::create_dir_all(folder).map_err(|e| TrainError::io(folder, e))?;
        remove_temporary_files(folder)?;
        let path = Self::file(folder);
        let text =
            serde_json::to_string_pretty(self).map_err(|e| TrainError::malformed(&path, e))?;
        write_atomically(&path, (text + "\n").as_bytes())
    }

    /// Reads the plan of the comparison in `folder`.
    ///
    /// # Errors
    /// [`TrainError::Io`] or [`TrainError::Malformed`] with the path.
    pub fn read(folder: &Path) -> Result<Self, TrainError> {
        let path = Self::file(folder);
        let text = fs::read_to_string(&path).map_err(|e| TrainError::io(&path, e))?;
        let plan: Self =
            serde_json::from_str(&text).map_err(|e| TrainError::malformed(&path, e))?;
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

fn distinct<T: PartialEq>(values: Vec<T>) -> Vec<T> {
    let mut kept: Vec<T> = Vec::new();
    for value in values {
        if !kept.contains(&value) {
            kept.push(value);
        }
    }
    kept
}
