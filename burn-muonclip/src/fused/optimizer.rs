//! [`MuonClip`], the optimizer a training loop owns.

use burn::lr_scheduler::module_lr_scheduler::ModuleLearningRate;
use burn::module::Module;
use burn::optim::{GradAdaptor, GradientsParams, MultiGradientsParams};

use super::gather::{Gather, Gradients};
use super::health::{Health, assess, read};
use super::new_values::NewValues;
use super::orthogonalize::orthogonalize;
use super::report::{StepOutcome, StepReport};
use super::state::States;
use super::summary::Summary;
use super::write_back::WriteBack;
use crate::adamw::AuxiliaryAdamW;
use crate::muon::Muon;
use crate::qk_clip::QkClip;
use crate::routing::{ParamPlan, Route};

/// Muon for the hidden matrices of a module and AdamW for the rest of it, in one step.
///
/// Built by [`MuonClipConfig::init_fused`](crate::MuonClipConfig::init_fused). It steps, saves and loads
/// like Burn's [`ModuleOptimizer`](burn::optim::ModuleOptimizer) and makes the same updates as
/// [`MuonClipConfig::init`](crate::MuonClipConfig::init). Because it sees the whole module it also
///
/// * orthogonalises all matrices of one shape, in either orientation, in one batch;
/// * updates a parameter that several paths share once, and keeps it shared;
/// * skips the whole step if any gradient is NaN or infinite, without touching momentum or time;
/// * clips by the norm of all gradients together;
/// * refuses a saved state that does not fit its parameters;
/// * clips attention logits behind the update, if it was given a [`QkClip`] ([`with_qk_clip`](Self::with_qk_clip)).
///
/// Parameters without a gradient in a step keep their value and state.
#[derive(Clone)]
pub struct MuonClip {
    pub(crate) plan: ParamPlan,
    pub(super) muon: Muon,
    pub(super) adamw: AuxiliaryAdamW,
    pub(crate) states: States,
    max_grad_norm: Option<f64>,
    pub(crate) last_report: Option<StepReport>,
    skipped_steps: usize,
    pub(crate) qk_clip: Option<QkClip>,
}

impl MuonClip {
    pub(crate) fn new(
        plan: ParamPlan,
        muon: Muon,
        adamw: AuxiliaryAdamW,
        max_grad_norm: Option<f64>,
    ) -> Self {
        Self {
            plan,
            muon,
            adamw,
            states: States::default(),
            max_grad_norm,
            last_report: None,
            skipped_steps: 0,
            qk_clip: None,
        }
    }

    /// Clips attention logits as the last part of every step, by what the attention layers recorded since the step before. A step that is skipped clips
    /// nothing and forgets what was recorded for it.
    pub fn with_qk_clip(self, qk_clip: QkClip) -> Self {
        Self {
            qk_clip: Some(qk_clip),
            ..self
        }
    }

    /// The clipping of attention logits, with its last report.
    pub fn qk_clip(&self) -> Option<&QkClip> {
        self.qk_clip.as_ref()
    }

    /// Updates the parameters of `module` that have a gradient in `grads`.
    ///
    /// `lr` is one learning rate, or one for each group as a
    /// [`ModuleLrScheduler`](burn::lr_scheduler::module_lr_scheduler::ModuleLrScheduler) gives.
    /// [`last_report`](Self::last_report) tells what happened.
    ///
    /// # Panics
    /// Panics if a parameter with a gradient was not in the model this optimizer was built for, if a gradient
    /// or the state has another shape than the parameter, or if a learning rate is not finite. Nothing has moved
    /// then.
    pub fn step<M: Module>(
        &mut self,
        lr: impl Into<ModuleLearningRate>,
        module: M,
        grads: GradientsParams,
    ) -> M {
        self.step_any(lr.into(), module, grads.into())
    }

    /// Like [`step`](Self::step), with the gradients of several devices added up.
    pub fn step_multi<M: Module>(
        &mut self,
        lr: impl Into<ModuleLearningRate>,
        module: M,
        grads: MultiGradientsParams,
    ) -> M {
        self.step_any(lr.into(), module, grads.into())
    }

    fn step_any<M: Module>(&mut self, lr: ModuleLearningRate, module: M, grads: GradAdaptor) -> M {
        let mut gradients = self.gather(&lr, &module, grads);
        let sizes = std::mem::take(&mut gradients.sizes);
        let module = match assess(&read(sizes)) {
            Health::Finite { norm } => self.update(module, gradients, norm),
            Health::NonFinite { paths } => {
                self.skip(paths);
                return module;
            }
        };
        match &self.qk_clip {
            Some(qk_clip) => qk_clip.apply(module),
            None => module,
        }
    }

    /// Stage 1, and what stage 2 has to read.
    pub(crate) fn gather<M: Module>(
        &self,
        lr: &ModuleLearningRate,
        module: &M,
        grads: GradAdaptor,
    ) -> Gradients {
        let with_norms = self.max_grad_norm.is_some();
        let mut gather = Gather::new(&self.plan, &self.states, grads, lr, with_norms);
        module.visit(&mut gather);
        gather.gathered
    }

    /// Stages 3 and 4. `norm` is that of all gradients together, where it was measured.
    pub(crate) fn update<M: Module>(
        &mut self,
        module: M,
        gradients: Gradients,
        norm: Option<f64>,
    ) -> M {
        let norm = self.max_grad_norm.and(norm);
        let grad_scale = match (self.max_grad_norm, norm) {
            (Some(max), Some(norm)) if norm > max => max / norm,
            _ => 1.0,
        };
        let parameters = gradients.matrices.iter().map(|m| m.parameter.clone());
        let matrices = parameters
            .map(|parameter| (parameter.id, parameter))
            .collect();
        let updates = orthogonalize(
            &self.muon,
            &mut self.states.momenta,
            gradients.matrices,
            grad_scale,
        );
        self.last_report = Some(StepReport {
            outcome: StepOutcome::Applied,
            grad_norm: norm,
            grad_scale,
            muon_matrices: updates.matrices,
            newton_schulz_calls: updates.calls,
            adamw_parameters: gradients.others.len(),
        });
        module.map(&mut WriteBack {
            muon: &self.muon,
            adamw: &self.adamw,
            moments: &mut self.states.moments,
            matrices,
            directions: updates.directions,
            others: gradients
                .others
                .into_iter()
                .map(|parameter| (parameter.id, parameter))
                .collect(),
            grads: gradients.other_grads,
            grad_scale,
            uses: gradients.uses,
            written: NewValues::new(),
        })
    }

    /// Takes note of a step that is not taken.
    pub(crate) fn skip(&mut self, paths: Vec<String>) {
        log::warn!(
            "MuonClip skipped a step: NaN or infinite gradients in {} parameters, first `{}`",
            paths.len(),
            paths[0]
        );
        self.skipped_steps += 1;
        if let Some(qk_clip) = &self.qk_clip {
            qk_clip.discard();
        }
        self.last_report = Some(StepReport::skipped(paths));
    }

    /// What the last step did; `None` before the first.
    pub fn last_report(&self) -> Option<&StepReport> {
        self.last_report.as_ref()
    }

    /// Steps skipped because of NaN or infinite gradients since this optimizer was built.
    pub fn skipped_steps(&self) -> usize {
        self.skipped_steps
    }

    /// Bytes of state that it holds now.
    pub fn state_bytes(&self) -> usize {
        self.states.bytes()
    }

    /// Bytes of state for an element of an `f32` parameter.
    pub(crate) fn bytes_an_element(&self, route: Route) -> usize {
        match route {
            Route::Muon => self.muon.momentum_bytes(),
            Route::AdamW => 8,
        }
    }

    /// Which optimizer trains which parameter, and why.
    pub fn plan(&self) -> &ParamPlan {
        &self.plan
    }

    /// Parameters and state memory by optimizer.
    pub fn summary(&self) -> Summary {
        Summary::of(self)
    }
}

impl core::fmt::Debug for MuonClip {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("MuonClip")
            .field("muon", &self.muon)
            .field("max_grad_norm", &self.max_grad_norm)
            .field("parameters_with_state", &self.states.len())
            .field("last_report", &self.last_report)
            .finish_non_exhaustive()
    }
}
