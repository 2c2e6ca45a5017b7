use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};

use burn_muonclip::qk_clip::QkClipReport;
use serde::{Deserialize, Serialize};

use super::{TrainError, write_atomically};

/// What one step measured: one line of `metrics.jsonl`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct MetricsLine {
    /// Steps taken, counted from 1.
    pub step: usize,
    /// Tokens trained on so far.
    pub tokens: usize,
    /// Learning rate of this step.
    pub lr: f64,
    /// Loss of this step's batch before the update, in nats per byte; absent if it is no finite number.
    pub train_loss: Option<f32>,
    /// Loss on the validation windows after the update, in nats per byte, where it was measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub validation_loss: Option<f64>,
    /// Whether the optimizer left the model as it was in this step, because a gradient was not finite.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub skipped: bool,
    /// The attention heads that QK-Clip watches.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub heads: Vec<HeadLogit>,
    /// The share of them that were ever clipped.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ever_clipped: Option<f64>,
    /// Seconds of training so far, without pauses between sessions.
    pub seconds: f64,
}

/// What QK-Clip found of an attention head in a step.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct HeadLogit {
    /// Its layer.
    pub layer: String,
    /// Its place in the layer, counted from 0.
    pub head: usize,
    /// Its largest logit in this step, before the update; absent if it is no finite number.
    pub logit: Option<f32>,
    /// Whether its weights were scaled down for it.
    pub clipped: bool,
}

impl HeadLogit {
    /// Those of a report.
    pub fn of(report: &QkClipReport) -> Vec<Self> {
        let layers = report.layers.iter();
        let heads = layers.flat_map(|layer| {
            let heads = layer.heads.iter().enumerate();
            heads.map(|(index, head)| Self {
                layer: layer.name.clone(),
                head: index,
                logit: Some(head.largest).filter(|logit| logit.is_finite()),
                clipped: head.is_clipped(),
            })
        });
        heads.collect()
    }
}

/// Appends lines to `metrics.jsonl`.
#[derive(Debug)]
pub struct MetricsLog {
    path: PathBuf,
    file: File,
}

impl MetricsLog {
    /// Keeps the lines of the first `steps` steps, which a checkpoint stands for, and drops what came after:
    /// those steps will be taken again.
    ///
    /// # Errors
    /// [`TrainError::Io`], or [`TrainError::Malformed`] if fewer lines are there than are to be kept.
    pub fn open(path: &Path, steps: usize) -> Result<Self, TrainError> {
        let kept = match steps {
            0 => String::new(),
            _ => first_lines(path, steps)?,
        };
        write_atomically(path, kept.as_bytes())?;
        let file = OpenOptions::new()
            .append(true)
            .open(path)
            .map_err(|e| TrainError::io(path, e))?;
        Ok(Self {
            path: path.to_owned(),
            file,
        })
    }

    /// Writes one line. It survives the end of the program from then on, and that of the machine once
    /// [`sync`](Self::sync) has returned.
    ///
    /// # Errors
    /// [`TrainError::Io`] with the path.
    pub fn append(&mut self, line: &MetricsLine) -> Result<(), TrainError> {
        let mut text =
            serde_json::to_string(line).map_err(|e| TrainError::malformed(&self.path, e))?;
        text.push('\n');
        self.file
            .write_all(text.as_bytes())
            .map_err(|e| TrainError::io(&self.path, e))
    }

    /// Waits until all lines are on the disk.
    ///
    /// # Errors
    /// [`TrainError::Io`] with the path.
    pub fn sync(&self) -> Result<(), TrainError> {
        self.file
            .sync_all()
            .map_err(|e| TrainError::io(&self.path, e))
    }
}

/// Reads `metrics.jsonl`. A last line without its end, which an interrupted write leaves, is not counted.
///
/// # Errors
/// [`TrainError::Io`], or [`TrainError::Malformed`] with the line number.
pub fn read_metrics(path: &Path) -> Result<Vec<MetricsLine>, TrainError> {
    let text = std::fs::read_to_string(path).map_err(|e| TrainError::io(path, e))?;
    complete_lines(&text)
        .enumerate()
        .map(|(index, line)| {
            serde_json::from_str(line)
                .map_err(|e| TrainError::malformed(path, format!("line {}: {e}", index + 1)))
        })
        .collect()
}

fn first_lines(path: &Path, steps: usize) -> Result<String, TrainError> {
    let found = read_metrics(path)?;
    let in_order = found
        .iter()
        .take(steps)
        .enumerate()
        .all(|(index, line)| line.step == index + 1);
    if found.len() < steps || !in_order {
        return Err(TrainError::malformed(
            path,
            format!(
                "the checkpoint needs the lines of steps 1 to {steps}, and they are not all here"
            ),
        ));
    }
    let text = std::fs::read_to_string(path).map_err(|e| TrainError::io(path, e))?;
    Ok(complete_lines(&text).take(steps).collect())
}

fn complete_lines(text: &str) -> impl Iterator<Item = &str> {
    text.split_inclusive('\n')
        .filter(|line| line.ends_with('\n'))
}
