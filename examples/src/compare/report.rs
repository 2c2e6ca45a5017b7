use std::path::Path;

use super::{Arm, ComparePlan, RunId};
use crate::chart::{self, Curve};
use crate::train::{
    MetricsLine, OptimizerKind, RunFolder, TextSummary, TrainError, read_metrics, write_atomically,
};

/// How far a run of a comparison is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum RunState {
    /// It has not begun.
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
        /// Final validation loss in nats per byte.
        validation_loss: f64,
    },
}

/// What the runs of a comparison have shown so far. It is rebuilt from the runs' own files at any time.
#[derive(Clone, Debug)]
pub struct Report {
    pub(super) plan: ComparePlan,
    pub(super) text: Option<TextSummary>,
    pub(super) results: Vec<(RunId, RunState, Vec<MetricsLine>)>,
}

impl Report {
    /// Reads what there is in `folder`.
    ///
    /// # Errors
    /// [`TrainError`] if a file of a run is damaged.
    pub fn read(plan: &ComparePlan, folder: &Path) -> Result<Self, TrainError> {
        let mut text = None;
        let mut results = Vec::new();
        for run in plan.runs() {
            let (state, lines) = read_run(plan, folder, run)?;
            if text.is_none() && !lines.is_empty() {
                text = Some(
                    RunFolder::open(&ComparePlan::run_folder(folder, run))?
                        .read_config()?
                        .text,
                );
            }
            results.push((run, state, lines));
        }
        Ok(Self {
            plan: plan.clone(),
            text,
            results,
        })
    }

    /// How far one run is.
    ///
    /// # Errors
    /// [`TrainError`] if a file of the run is damaged.
    pub fn state(plan: &ComparePlan, folder: &Path, run: RunId) -> Result<RunState, TrainError> {
        Ok(read_run(plan, folder, run)?.0)
    }

    /// The arm of `optimizer` with the lowest mean validation loss, and that mean. Only arms whose every seed
    /// is finished are compared.
    pub fn best_arm(&self, optimizer: OptimizerKind) -> Option<(Arm, f64)> {
        let arms = self
            .plan
            .arms
            .iter()
            .filter(|arm| arm.optimizer == optimizer);
        arms.filter_map(|&arm| Some((arm, mean(&self.losses(arm)?))))
            .min_by(|a, b| a.1.total_cmp(&b.1))
    }

    /// How much lower the best MuonClip arm ends than the best AdamW arm, seed by seed, in nats per byte.
    pub fn gaps(&self) -> Option<Vec<f64>> {
        let muonclip = self.losses(self.best_arm(OptimizerKind::MuonClip)?.0)?;
        let adamw = self.losses(self.best_arm(OptimizerKind::AdamW)?.0)?;
        Some(
            adamw
                .iter()
                .zip(muonclip)
                .map(|(adamw, muonclip)| adamw - muonclip)
                .collect(),
        )
    }

    /// Writes `report.md`, and `loss.svg` with the mean curves of each optimizer's best arm.
    ///
    /// # Errors
    /// [`TrainError::Io`] with the path.
    pub fn write(&self, folder: &Path) -> Result<(), TrainError> {
        write_atomically(&folder.join("report.md"), self.to_markdown().as_bytes())?;
        let best = [OptimizerKind::MuonClip, OptimizerKind::AdamW]
            .map(|optimizer| self.best_arm(optimizer));
        let curves: Vec<Curve> = best
            .into_iter()
            .flatten()
            .map(|(arm, _)| self.mean_curve(arm))
            .collect();
        match &self.text {
            Some(text) if !curves.is_empty() => {
                let title = format!(
                    "MuonClip against AdamW, mean of {} seed(s), best learning rate of each",
                    self.plan.seeds.len()
                );
                chart::draw(&folder.join("loss.svg"), &title, &curves, text.bigram_loss)
            }
            _ => Ok(()),
        }
    }

    /// Final losses of an arm in the order of the seeds, if all of its runs are finished.
    pub(super) fn losses(&self, arm: Arm) -> Option<Vec<f64>> {
        self.results
            .iter()
            .filter(|(run, ..)| run.arm == arm)
            .map(|(_, state, _)| match state {
                RunState::Finished { validation_loss } => Some(*validation_loss),
                _ => None,
            })
            .collect()
    }

    fn mean_curve(&self, arm: Arm) -> Curve {
        let curves: Vec<Curve> = self
            .results
            .iter()
            .filter(|(run, ..)| run.arm == arm)
            .map(|(_, _, lines)| Curve::from_metrics("", lines))
            .collect();
        let mean_of = |points: fn(&Curve) -> &Vec<(usize, f64)>| -> Vec<(usize, f64)> {
            let shortest = curves
                .iter()
                .map(|curve| points(curve).len())
                .min()
                .unwrap_or(0);
            (0..shortest)
                .map(|index| {
                    let losses: Vec<f64> =
                        curves.iter().map(|curve| points(curve)[index].1).collect();
                    (points(&curves[0])[index].0, mean(&losses))
                })
                .collect()
        };
        Curve {
            label: format!("{} lr {}", arm.optimizer.name(), arm.lr),
            train: mean_of(|curve| &curve.train),
            validation: mean_of(|curve| &curve.validation),
        }
    }
}

fn read_run(
    plan: &ComparePlan,
    folder: &Path,
    run: RunId,
) -> Result<(RunState, Vec<MetricsLine>), TrainError> {
    let Ok(run_folder) = RunFolder::open(&ComparePlan::run_folder(folder, run)) else {
        return Ok((RunState::Missing, Vec::new()));
    };
    let path = run_folder.metrics_file();
    let lines = if path.exists() {
        read_metrics(&path)?
    } else {
        Vec::new()
    };
    let state = match lines.last() {
        None => RunState::Missing,
        Some(line) if line.train_loss.is_none() => RunState::Diverged { step: line.step },
        Some(MetricsLine {
            step,
            validation_loss: Some(loss),
            ..
        }) if *step == plan.settings.train.steps => RunState::Finished {
            validation_loss: *loss,
        },
        Some(line) => RunState::Unfinished { step: line.step },
    };
    Ok((state, lines))
}

pub(super) fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}
