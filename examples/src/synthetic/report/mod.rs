//! What the runs of an experiment have shown so far, rebuilt from their own files at any time.

mod chart;
mod markdown;
mod summary;

use std::path::Path;

use super::runs::{RunConfig, RunProgress, RunState};
use super::{Arm, Plan, RunId, TaskKind};
use crate::train::{TrainError, write_atomically};

pub use summary::{Spread, Summary};

/// The runs of a plan, as far as they are.
#[derive(Clone, Debug)]
pub struct Report {
    plan: Plan,
    results: Vec<RunResult>,
}

/// One run, as far as it is.
#[derive(Clone, Debug)]
struct RunResult {
    run: RunId,
    /// Number of trained values, if the run has begun.
    parameters: Option<usize>,
    progress: RunProgress,
}

impl Report {
    /// Reads what there is in `folder`.
    ///
    /// # Errors
    /// [`TrainError`] if a file of a run is damaged.
    pub fn read(plan: &Plan, folder: &Path) -> Result<Self, TrainError> {
        let result = |run: RunId| {
            Ok(RunResult {
                run,
                parameters: RunConfig::read(plan, folder, run)?.map(|config| config.parameters),
                progress: RunProgress::read(plan, folder, run)?,
            })
        };
        let results: Result<Vec<RunResult>, TrainError> =
            plan.runs().into_iter().map(result).collect();
        Ok(Self {
            plan: plan.clone(),
            results: results?,
        })
    }

    /// What the seeds of one arm on one task have shown together.
    pub fn summary(&self, task: TaskKind, arm: Arm) -> Summary {
        let results: Vec<&RunResult> = self.results_of(task, arm).collect();
        let steps = self.plan.settings.training.steps;
        Summary::new(
            results.iter().find_map(|result| result.parameters),
            results.iter().map(|result| &result.progress),
            steps,
        )
    }

    /// The runs that are not over, with how far they are.
    pub fn missing(&self) -> Vec<(RunId, RunState)> {
        let state = |result: &RunResult| (result.run, self.state(result));
        let runs = self.results.iter().map(state);
        runs.filter(|(_, state)| !state.is_over()).collect()
    }

    /// Writes `report.md`, and a chart for every task of which something was measured.
    ///
    /// # Errors
    /// [`TrainError::Io`] with the path.
    pub fn write(&self, folder: &Path) -> Result<(), TrainError> {
        write_atomically(&folder.join("report.md"), self.to_markdown().as_bytes())?;
        for &task in &self.plan.tasks {
            let file = folder.join(format!("{}.svg", task.name()));
            chart::draw(&file, task, &self.curves(task))?;
        }
        Ok(())
    }

    fn curves(&self, task: TaskKind) -> Vec<chart::ArmCurves> {
        let arms = self.plan.arms.iter();
        let curves = arms.map(|&arm| chart::ArmCurves {
            arm,
            seeds: self
                .results_of(task, arm)
                .map(|result| result.progress.curve.clone())
                .filter(|curve| !curve.is_empty())
                .collect(),
        });
        curves.filter(|curves| !curves.seeds.is_empty()).collect()
    }

    fn results_of(&self, task: TaskKind, arm: Arm) -> impl Iterator<Item = &RunResult> {
        self.results
            .iter()
            .filter(move |result| (result.run.task, result.run.arm) == (task, arm))
    }

    fn state(&self, result: &RunResult) -> RunState {
        result.progress.state(self.plan.settings.training.steps)
    }
}
