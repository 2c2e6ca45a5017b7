//! What a step did.

/// The result of one [`MuonClip::step`](super::MuonClip::step).
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct StepReport {
    /// Whether the weights moved.
    pub outcome: StepOutcome,
    /// Norm of all gradients together before clipping. Measured only with
    /// [`max_grad_norm`](crate::MuonClipConfig::max_grad_norm), and absent from a skipped step.
    pub grad_norm: Option<f64>,
    /// Factor that all gradients were multiplied by: one unless they were clipped.
    pub grad_scale: f64,
    /// Matrices orthogonalised, counting every matrix of a stack.
    pub muon_matrices: usize,
    /// Newton-Schulz calls made for them.
    pub newton_schulz_calls: usize,
    /// Parameters updated by AdamW.
    pub adamw_parameters: usize,
}

/// Whether a step was taken.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum StepOutcome {
    /// Weights, momenta and times advanced.
    Applied,
    /// Nothing changed, because of gradients with NaN or infinite elements.
    SkippedNonFinite {
        /// Paths of the parameters with such gradients.
        paths: Vec<String>,
    },
}

impl StepReport {
    /// Whether the step was taken.
    pub fn is_applied(&self) -> bool {
        self.outcome == StepOutcome::Applied
    }

    /// What two optimizers did of one step.
    pub(crate) fn joined(self, other: Self) -> Self {
        Self {
            muon_matrices: self.muon_matrices + other.muon_matrices,
            newton_schulz_calls: self.newton_schulz_calls + other.newton_schulz_calls,
            adamw_parameters: self.adamw_parameters + other.adamw_parameters,
            ..self
        }
    }

    pub(crate) fn skipped(paths: Vec<String>) -> Self {
        Self {
            outcome: StepOutcome::SkippedNonFinite { paths },
            grad_norm: None,
            grad_scale: 1.0,
            muon_matrices: 0,
            newton_schulz_calls: 0,
            adamw_parameters: 0,
        }
    }
}
