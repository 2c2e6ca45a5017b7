use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::checkpoint::Digests;
use crate::synthetic::{Plan, RunId, json_file};
use crate::train::TrainError;

/// What an evaluation measured.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Point {
    /// Steps taken.
    pub step: usize,
    /// Loss of the last step's batch before the update, in nats per answer.
    pub loss: f64,
    /// Share of the held-out answers that are right, from 0 to 1.
    pub accuracy: f64,
}

/// `progress.json`: how far a run is, and what it measured on the way.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RunProgress {
    /// Steps taken.
    pub step: usize,
    /// Seconds of training so far, without pauses between sessions.
    pub seconds: f64,
    /// Whether the loss stopped being finite at `step`.
    pub diverged: bool,
    /// The evaluations, in order.
    pub curve: Vec<Point>,
    /// The files to continue from; none if the run is over.
    pub(super) checkpoint: Option<Digests>,
}

/// How far a run of an experiment is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum RunState {
    /// It has not begun, or was stopped before anything was saved.
    Missing,
    /// It was stopped after this many steps.
    Unfinished {
        /// Steps taken.
        step: usize,
    },
    /// Its loss stopped being finite at this step.
    Diverged {
        /// The step, counted from 1.
        step: usize,
    },
    /// It took all its steps.
    Finished {
        /// The last accuracy, from 0 to 1.
        accuracy: f64,
    },
}

impl RunState {
    /// Whether nothing is left to do.
    pub fn is_over(self) -> bool {
        matches!(self, Self::Diverged { .. } | Self::Finished { .. })
    }
}

impl RunProgress {
    /// Reads how far a run of `plan` is whose experiment is in `folder`. A run without the file is at its start.
    ///
    /// # Errors
    /// [`TrainError::Io`] or [`TrainError::Malformed`] with the path.
    pub fn read(plan: &Plan, folder: &Path, run: RunId) -> Result<Self, TrainError> {
        let path = file(&run.folder(folder));
        if !path.exists() {
            return Ok(Self::default());
        }
        let progress: Self = json_file::read(&path)?;
        match progress.contradiction(plan.settings.training.steps) {
            Some(reason) => Err(TrainError::malformed(&path, reason)),
            None => Ok(progress),
        }
    }

    pub(super) fn write(&self, run_folder: &Path) -> Result<(), TrainError> {
        json_file::write(&file(run_folder), self)
    }

    /// How far that is in a run of `steps` steps.
    pub fn state(&self, steps: usize) -> RunState {
        match self.curve.last() {
            _ if self.diverged => RunState::Diverged { step: self.step },
            Some(&Point { step, accuracy, .. }) if step == steps => RunState::Finished { accuracy },
            _ if self.step == 0 => RunState::Missing,
            _ => RunState::Unfinished { step: self.step },
        }
    }

    /// What a file can get wrong although each field has the right type.
    fn contradiction(&self, steps: usize) -> Option<String> {
        let last = self.curve.last().map_or(0, |point| point.step);
        if self.step > steps || last > self.step {
            return Some(format!(
                "an evaluation at step {last}, {} steps taken and {steps} steps in all do not fit together",
                self.step
            ));
        }
        if !self.curve.is_sorted_by(|a, b| a.step < b.step) {
            return Some("the evaluations are not in order".to_owned());
        }
        let outside = self
            .curve
            .iter()
            .find(|point| !(0.0..=1.0).contains(&point.accuracy));
        if let Some(point) = outside {
            return Some(format!(
                "the accuracy at step {} must be from 0 to 1, it is {}",
                point.step, point.accuracy
            ));
        }
        if self.checkpoint.is_none() && !self.state(steps).is_over() && self.step > 0 {
            return Some(
                "the run is not over, and there is no checkpoint to continue from".to_owned(),
            );
        }
        None
    }
}

fn file(run_folder: &Path) -> PathBuf {
    run_folder.join("progress.json")
}
