use std::fs;
use std::path::{Path, PathBuf};

use super::atomic_file::is_temporary;
use super::{LockedFolder, RunConfig, TrainError, write_atomically};

/// The folder of one run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunFolder(PathBuf);

impl RunFolder {
    /// Makes the folder of a new run and locks it.
    ///
    /// # Errors
    /// [`TrainError::FolderTaken`] if it holds a run and `overwrite` is not set, [`TrainError::FolderNotEmpty`]
    /// if it holds anything else: only what a run wrote is ever removed. [`TrainError::FolderBusy`] if another
    /// process trains in it.
    pub fn create(path: &Path, overwrite: bool) -> Result<LockedFolder, TrainError> {
        let folder = Self(path.to_owned());
        folder.require_free(overwrite)?;
        fs::create_dir_all(path).map_err(|e| TrainError::io(path, e))?;
        let folder = LockedFolder::lock(folder)?;
        // Another process may have come and gone between the look and the lock.
        folder.require_free(overwrite)?;
        folder.remove_run()?;
        Ok(folder)
    }

    /// Opens the folder of an existing run for reading; [`LockedFolder::lock`] is for continuing it.
    ///
    /// # Errors
    /// [`TrainError::NoRun`] if there is none.
    pub fn open(path: &Path) -> Result<Self, TrainError> {
        let folder = Self(path.to_owned());
        match folder.config_file().is_file() {
            true => Ok(folder),
            false => Err(TrainError::NoRun {
                path: path.to_owned(),
            }),
        }
    }

    /// The first of `parent/001`, `parent/002`, ... that does not exist.
    pub fn next_free(parent: &Path) -> PathBuf {
        (1..)
            .map(|number| parent.join(format!("{number:03}")))
            .find(|path| !path.exists())
            .unwrap_or_default()
    }

    /// The folder itself.
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// `config.json`.
    pub fn config_file(&self) -> PathBuf {
        self.0.join("config.json")
    }

    /// `metrics.jsonl`.
    pub fn metrics_file(&self) -> PathBuf {
        self.0.join("metrics.jsonl")
    }

    /// `checkpoint`, the folder of checkpoints.
    pub fn checkpoints(&self) -> PathBuf {
        self.0.join("checkpoint")
    }

    /// `logits.svg`.
    pub fn logits_file(&self) -> PathBuf {
        self.0.join("logits.svg")
    }

    /// `loss.svg`.
    pub fn chart_file(&self) -> PathBuf {
        self.0.join("loss.svg")
    }

    /// Reads `config.json`.
    ///
    /// # Errors
    /// [`TrainError::Io`] or [`TrainError::Malformed`] with the path and field.
    pub fn read_config(&self) -> Result<RunConfig, TrainError> {
        let path = self.config_file();
        let text = fs::read_to_string(&path).map_err(|e| TrainError::io(&path, e))?;
        let config: RunConfig =
            serde_json::from_str(&text).map_err(|e| TrainError::malformed(&path, e))?;
        config
            .validate()
            .map_err(|reason| TrainError::malformed(&path, reason))?;
        Ok(config)
    }

    /// Writes `config.json`.
    ///
    /// # Errors
    /// [`TrainError::Io`] with the path.
    pub fn write_config(&self, config: &RunConfig) -> Result<(), TrainError> {
        let path = self.config_file();
        let text =
            serde_json::to_string_pretty(config).map_err(|e| TrainError::malformed(&path, e))?;
        write_atomically(&path, (text + "\n").as_bytes())
    }

    /// A new run may take this folder.
    fn require_free(&self, overwrite: bool) -> Result<(), TrainError> {
        match self.config_file().exists() {
            true if overwrite => Ok(()),
            true => Err(TrainError::FolderTaken {
                path: self.0.clone(),
            }),
            false => require_vacant(&self.0),
        }
    }

    /// `config.json` goes last: while it is there, the folder is known as a run's.
    fn remove_run(&self) -> Result<(), TrainError> {
        let checkpoints = self.checkpoints();
        if checkpoints.exists() {
            fs::remove_dir_all(&checkpoints).map_err(|e| TrainError::io(&checkpoints, e))?;
        }
        for file in [
            self.metrics_file(),
            self.chart_file(),
            self.logits_file(),
            self.config_file(),
        ] {
            if file.exists() {
                fs::remove_file(&file).map_err(|e| TrainError::io(&file, e))?;
            }
        }
        Ok(())
    }
}

/// `path` is nothing yet, or a folder with nothing in it but what a program that was killed before its first
/// file left.
pub(crate) fn require_vacant(path: &Path) -> Result<(), TrainError> {
    let is_vacant = !path.exists()
        || fs::read_dir(path)
            .map_err(|e| TrainError::io(path, e))?
            .all(|entry| {
                entry.is_ok_and(|entry| is_temporary(&entry) || LockedFolder::is_lock(&entry))
            });
    match is_vacant {
        true => Ok(()),
        false => Err(TrainError::FolderNotEmpty {
            path: path.to_owned(),
        }),
    }
}
