use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use burn::module::{Module, ParamId};
use serde::{Deserialize, Serialize};

use super::apply::ScaleColumns;
use super::check::{Parameters, check_layers, check_settings};
use super::factors::{Factors, gamma};
use super::layer::QkLayer;
use super::report::{HeadReport, LayerReport, QkClipReport};
use super::{LogitMaxima, LogitRecorder, QkClipConfig, QkClipError, Unclippable};

/// Rescales the weights that make queries and keys when their logits grow above a threshold.
///
/// Built by [`QkClipConfig::init`]; see [the module](super) for the rules. Clones share what was recorded and what was found, so a model may hold one (as a field
/// `#[module(skip)]`) while a training loop asks another for its report.
#[derive(Clone, Debug)]
pub struct QkClip {
    config: QkClipConfig,
    layers: Vec<QkLayer>,
    skipped: Vec<(String, Unclippable)>,
    recorder: LogitRecorder,
    /// Columns of every parameter.
    columns: HashMap<ParamId, usize>,
    found: Arc<Mutex<Found>>,
}

/// What changes from step to step.
#[derive(Debug, Default)]
struct Found {
    state: QkClipState,
    last_report: Option<QkClipReport>,
}

/// What [`QkClip`] remembers beyond a step: which heads were ever clipped, by the layer's name. It changes nothing about the weights.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct QkClipState {
    ever_clipped: BTreeMap<String, Vec<bool>>,
}

impl QkClip {
    pub(super) fn new<M: Module>(
        config: &QkClipConfig,
        module: &M,
        layers: Vec<QkLayer>,
        recorder: LogitRecorder,
    ) -> Result<Self, QkClipError> {
        check_settings(config)?;
        let mut parameters = Parameters::default();
        module.visit(&mut parameters);
        check_layers(&layers, &parameters)?;
        let shapes = parameters.known.into_iter();
        Ok(Self {
            config: config.clone(),
            layers,
            skipped: Vec::new(),
            recorder,
            columns: shapes
                .filter_map(|(id, known)| Some((id, *known.shape.last()?)))
                .collect(),
            found: Arc::default(),
        })
    }

    /// Names a layer that has nothing to clip, so that reports say why it is not there.
    pub fn skipping(mut self, name: impl Into<String>, reason: Unclippable) -> Self {
        self.skipped.push((name.into(), reason));
        self
    }

    /// Clips by what was recorded since the last time. Call it once an optimizer step, behind the update of the weights.
    pub fn apply<M: Module>(&self, module: M) -> M {
        let maxima = self.recorder.take();
        self.apply_maxima(module, &maxima)
    }

    /// Clips by these logits: where those of several processes were merged.
    ///
    /// A layer that is not among them is left alone.
    ///
    /// # Panics
    /// If a layer reported another number of heads than it was described with. Nothing has moved then.
    pub fn apply_maxima<M: Module>(&self, module: M, maxima: &LogitMaxima) -> M {
        self.check_heads(maxima);
        let mut found = self.found();
        let mut factors = HashMap::new();
        let mut reports = Vec::with_capacity(self.layers.len());
        for layer in &self.layers {
            let Some(largest) = maxima.get(layer.id) else {
                reports.push(LayerReport {
                    name: layer.name.clone(),
                    heads: Vec::new(),
                });
                continue;
            };
            let threshold = self.config.threshold;
            let gammas: Vec<_> = largest.iter().map(|&s| gamma(s, threshold)).collect();
            let ever = found.state.ever_clipped.entry(layer.name.clone());
            let ever = ever.or_insert_with(|| vec![false; layer.heads]);
            let heads = largest.iter().zip(&gammas).zip(ever);
            let heads = heads.map(|((&largest, &factor), ever)| {
                *ever |= factor < 1.0;
                HeadReport {
                    largest,
                    factor,
                    ever_clipped: *ever,
                }
            });
            reports.push(LayerReport {
                name: layer.name.clone(),
                heads: heads.collect(),
            });
            let of_layer = Factors::new(layer, gammas, self.config.balance);
            if !of_layer.is_trivial() {
                self.add_factors(layer, &of_layer, &mut factors);
            }
        }
        let report = QkClipReport {
            threshold: self.config.threshold,
            layers: reports,
            skipped: self.skipped.clone(),
        };
        for (layer, head) in report.broken() {
            log::warn!(
                "QK-Clip: the logits of head {head} of layer `{layer}` are NaN or infinite; it was left alone"
            );
        }
        found.last_report = Some(report);
        if factors.is_empty() {
            return module;
        }
        module.map(&mut ScaleColumns::new(factors))
    }

    fn check_heads(&self, maxima: &LogitMaxima) {
        for layer in &self.layers {
            if let Some(largest) = maxima.get(layer.id) {
                assert!(
                    largest.len() == layer.heads,
                    "QK-Clip: layer `{}` recorded {} heads and has {}",
                    layer.name,
                    largest.len(),
                    layer.heads
                );
            }
        }
    }

    fn add_factors(
        &self,
        layer: &QkLayer,
        of_layer: &Factors,
        factors: &mut HashMap<ParamId, Vec<f32>>,
    ) {
        for part in &layer.parts {
            let columns = self.columns[&part.param];
            let of_parameter = factors
                .entry(part.param)
                .or_insert_with(|| vec![1.0; columns]);
            for head in 0..layer.heads_of(part.side) {
                let factor = of_layer.of(part.side, head) as f32;
                of_parameter[part.columns.of(head)].fill(factor);
            }
        }
    }

    /// Forgets what was recorded since the last time: for a step that is not taken.
    pub fn discard(&self) {
        self.recorder.take();
    }

    /// What the last [`apply`](Self::apply) found; `None` before the first.
    pub fn last_report(&self) -> Option<QkClipReport> {
        self.found().last_report.clone()
    }

    /// What collects the logits.
    pub fn recorder(&self) -> &LogitRecorder {
        &self.recorder
    }

    /// The settings.
    pub fn config(&self) -> &QkClipConfig {
        &self.config
    }

    /// The layers that are clipped.
    pub fn layers(&self) -> &[QkLayer] {
        &self.layers
    }

    /// What to save with a checkpoint.
    pub fn state(&self) -> QkClipState {
        self.found().state.clone()
    }

    /// Goes on from a saved state.
    ///
    /// # Errors
    /// [`QkClipError::State`] if a layer had another number of heads then. Nothing is changed.
    pub fn load_state(&self, state: QkClipState) -> Result<(), QkClipError> {
        for layer in &self.layers {
            let saved = state.ever_clipped.get(&layer.name);
            if let Some(saved) = saved.filter(|saved| saved.len() != layer.heads) {
                return Err(QkClipError::State {
                    layer: layer.name.clone(),
                    saved: saved.len(),
                    now: layer.heads,
                });
            }
        }
        self.found().state = state;
        Ok(())
    }

    fn found(&self) -> MutexGuard<'_, Found> {
        // Nothing panics while it is held but an allocation.
        self.found.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
