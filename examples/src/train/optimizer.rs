use std::path::Path;

use burn::optim::{AdamWConfig, GradientsParams, ModuleOptimizer};
use burn_kimi_model::Decoder;
use burn_muonclip::qk_clip::{QkClip, QkClipConfig, QkClipReport};
use burn_muonclip::{MuonClip, MuonClipConfig};
use serde::{Deserialize, Serialize};

use super::{TrainError, TrainSettings};

/// Which optimizer trains the model.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
#[value(rename_all = "lowercase")]
pub enum OptimizerKind {
    /// Muon on the hidden matrices, AdamW on everything else
    #[default]
    MuonClip,
    /// AdamW on everything
    AdamW,
}

impl OptimizerKind {
    /// The name that `--optimizer` takes.
    pub fn name(self) -> &'static str {
        match self {
            Self::MuonClip => "muonclip",
            Self::AdamW => "adamw",
        }
    }
}

/// QK-Clip for the attention layers of `model` that have logits, with the logits of every step for the metrics.
fn qk_clip(settings: &TrainSettings, model: &Decoder) -> Option<QkClip> {
    if settings.qk_clip == 0.0 {
        return None;
    }
    let config = QkClipConfig::new()
        .with_threshold(settings.qk_clip)
        .with_exact(true);
    let qk_clip = model.qk_clip(&config);
    Some(qk_clip.expect("the settings are checked, and the layers are the model's own"))
}

/// The optimizer of a run, with its state.
pub enum LanguageModelOptimizer {
    /// See [`OptimizerKind::MuonClip`].
    MuonClip(Box<MuonClip>),
    /// See [`OptimizerKind::AdamW`].
    AdamW(Box<ModuleOptimizer>),
}

impl LanguageModelOptimizer {
    /// A fresh optimizer for `model`.
    ///
    /// AdamW has the betas and the epsilon of the AdamW inside MuonClip, so that the two differ in nothing but
    /// Muon. Burn's defaults have a longer memory and a larger epsilon.
    pub fn new(settings: &TrainSettings, model: &Decoder) -> Self {
        let muonclip = MuonClipConfig::new().with_weight_decay(settings.weight_decay as f32);
        match settings.optimizer {
            OptimizerKind::MuonClip => {
                let optimizer = muonclip.init_fused(model);
                Self::MuonClip(Box::new(match qk_clip(settings, model) {
                    Some(qk_clip) => optimizer.with_qk_clip(qk_clip),
                    None => optimizer,
                }))
            }
            OptimizerKind::AdamW => Self::AdamW(Box::new(
                AdamWConfig::new()
                    .with_beta_1(muonclip.beta_1)
                    .with_beta_2(muonclip.beta_2)
                    .with_epsilon(muonclip.epsilon)
                    .with_weight_decay(muonclip.weight_decay)
                    .init(),
            )),
        }
    }

    /// One step at learning rate `lr`.
    pub fn step(&mut self, lr: f64, model: Decoder, gradients: GradientsParams) -> Decoder {
        match self {
            Self::MuonClip(optimizer) => optimizer.step(lr, model, gradients),
            Self::AdamW(optimizer) => optimizer.step(lr, model, gradients),
        }
    }

    /// What clips the attention logits, if anything does.
    pub fn qk_clip(&self) -> Option<&QkClip> {
        match self {
            Self::MuonClip(optimizer) => optimizer.qk_clip(),
            Self::AdamW(_) => None,
        }
    }

    /// What was found of the attention logits in the last step, if it was taken and they are watched.
    pub fn clipping(&self) -> Option<QkClipReport> {
        let report = self.qk_clip()?.last_report()?;
        (!self.skipped()).then_some(report)
    }

    /// Whether the last step left the model as it was, because a gradient was NaN or infinite. AdamW does not
    /// look.
    pub fn skipped(&self) -> bool {
        match self {
            Self::MuonClip(optimizer) => optimizer
                .last_report()
                .is_some_and(|report| !report.is_applied()),
            Self::AdamW(_) => false,
        }
    }

    /// Writes the state to `path`.
    ///
    /// # Errors
    /// [`TrainError::Malformed`] with the path.
    pub fn save(&self, path: &Path) -> Result<(), TrainError> {
        match self {
            Self::MuonClip(optimizer) => optimizer
                .save(path)
                .map_err(|e| TrainError::malformed(path, e)),
            Self::AdamW(optimizer) => optimizer
                .save(path)
                .map_err(|e| TrainError::malformed(path, e)),
        }
    }

    /// Continues from the state in `path`.
    ///
    /// # Errors
    /// [`TrainError::Malformed`] with the path.
    pub fn load(self, path: &Path) -> Result<Self, TrainError> {
        Ok(match self {
            Self::MuonClip(optimizer) => Self::MuonClip(Box::new(
                optimizer
                    .load(path)
                    .map_err(|e| TrainError::malformed(path, e))?,
            )),
            Self::AdamW(optimizer) => Self::AdamW(Box::new(
                optimizer
                    .load(path)
                    .map_err(|e| TrainError::malformed(path, e))?,
            )),
        })
    }
}
