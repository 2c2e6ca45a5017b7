use std::fs::{self, File};
use std::io;
use std::path::Path;

use burn_muonclip::qk_clip::QkClipState;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::{OptimizerKind, TrainError, TrainSettings};

const FORMAT: u32 = 2;

/// Where a run stands. The learning rate and the batch of the next step follow from the step number.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Position {
    /// Steps taken.
    pub(super) step: usize,
    /// Seconds of training so far.
    pub(super) seconds: f64,
    /// Which attention heads were ever clipped, if they are watched.
    pub(super) qk_clip: Option<QkClipState>,
}

/// `position.json`: the position, and what it is the position of.
///
/// Burn starts a parameter afresh when a file holds no state that it knows for it, so a wrong file would lose
/// the momentum without a word. The digests say that the files are those that were saved together.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct PositionFile {
    format: u32,
    step: usize,
    seconds: f64,
    optimizer: OptimizerKind,
    seed: u64,
    model_sha256: String,
    optimizer_sha256: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    qk_clip: Option<QkClipState>,
}

impl PositionFile {
    /// The position of a run with `train` settings whose files have been written.
    pub(super) fn new(
        position: Position,
        train: &TrainSettings,
        model: &Path,
        optimizer: &Path,
    ) -> Result<Self, TrainError> {
        Ok(Self {
            format: FORMAT,
            step: position.step,
            seconds: position.seconds,
            optimizer: train.optimizer,
            seed: train.seed,
            model_sha256: sha256(model)?,
            optimizer_sha256: sha256(optimizer)?,
            qk_clip: position.qk_clip,
        })
    }

    /// Writes it to `path`.
    pub(super) fn write(&self, path: &Path) -> Result<(), TrainError> {
        let text = serde_json::to_string(self).map_err(|e| TrainError::malformed(path, e))?;
        fs::write(path, text).map_err(|e| TrainError::io(path, e))
    }

    /// Reads it from `path`.
    pub(super) fn read(path: &Path) -> Result<Self, TrainError> {
        let text = fs::read_to_string(path).map_err(|e| TrainError::io(path, e))?;
        let file: Self = serde_json::from_str(&text).map_err(|e| TrainError::malformed(path, e))?;
        match file.format {
            FORMAT => Ok(file),
            other => Err(TrainError::malformed(
                path,
                format!("format is {other}, this program reads format {FORMAT}"),
            )),
        }
    }

    /// The optimizer and the seed, which decide what comes next, are those of `train`; `path` is the file's own.
    pub(super) fn check_settings(
        &self,
        path: &Path,
        train: &TrainSettings,
    ) -> Result<(), TrainError> {
        let found = (self.optimizer, self.seed);
        let wanted = (train.optimizer, train.seed);
        if found == wanted {
            return Ok(());
        }
        let describe = |(optimizer, seed): (OptimizerKind, u64)| {
            format!("optimizer {} and seed {seed}", optimizer.name())
        };
        Err(TrainError::malformed(
            path,
            format!(
                "this is a checkpoint of {}, but config.json has {}",
                describe(found),
                describe(wanted)
            ),
        ))
    }

    /// The files are those that were saved with this position.
    pub(super) fn check_files(&self, model: &Path, optimizer: &Path) -> Result<(), TrainError> {
        for (path, wanted) in [
            (model, &self.model_sha256),
            (optimizer, &self.optimizer_sha256),
        ] {
            let found = sha256(path)?;
            if found != *wanted {
                return Err(TrainError::malformed(
                    path,
                    format!(
                        "this is not the file that was saved with position.json: its sha256 is {found}, not {wanted}"
                    ),
                ));
            }
        }
        Ok(())
    }

    pub(super) fn position(&self) -> Position {
        Position {
            step: self.step,
            seconds: self.seconds,
            qk_clip: self.qk_clip.clone(),
        }
    }
}

fn sha256(path: &Path) -> Result<String, TrainError> {
    let mut hash = Sha256::new();
    File::open(path)
        .and_then(|mut file| io::copy(&mut file, &mut hash))
        .map_err(|e| TrainError::io(path, e))?;
    Ok(format!("{:x}", hash.finalize()))
}
