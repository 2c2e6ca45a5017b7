//! `muon`: the weights `out.w` `[steps,n,m]` after each of several steps on one matrix `w0` `[n,m]`
//! with the gradients `grads` `[steps,n,m]`.
//!
//! Both ways to use Muon are run: the optimizer of one parameter group, and the fused optimizer of a
//! whole module.

use burn::module::{Module, Param, ParamGroup};
use burn::optim::{GradientsParams, Optimizer};
use burn::tensor::Tensor;
use burn_muonclip::{MuonClipConfig, MuonConfig, NewtonSchulzConfig};

use crate::parity::case::Case;
use crate::parity::error::CaseError;
use crate::parity::session::Session;

/// The only scale of an update that the crate has.
const SCALE: &str = "0.2*sqrt(max(n,m))";
const UPDATE_RMS: f64 = 0.2;

/// More steps than anyone takes: a bound on the time that a case can ask for.
const MOST_STEPS: usize = 1000;

pub(super) fn compute(case: &Case, session: &mut Session<'_>) -> Result<(), CaseError> {
    let settings = Settings::read(case)?;

    let start = session.input("w0", [None; 2])?;
    let [rows, columns] = start.dims();
    if rows == 0 || columns == 0 {
        return Err(session.bad_input("w0", &start.dims(), "at least one row and column"));
    }
    let grads = session.input("grads", [None, Some(rows), Some(columns)])?;
    if grads.dims()[0] == 0 {
        return Err(session.bad_input("grads", &grads.dims(), "at least one step"));
    }
    let grads: Vec<Tensor<2>> = grads.iter_dim(0).map(|grad| grad.squeeze_dim(0)).collect();

    session.output("w", settings.by_group(start.clone(), &grads))?;
    session.output("w", settings.by_module(start, &grads))
}

struct Settings {
    lr: f64,
    weight_decay: f32,
    momentum: f64,
    nesterov: bool,
    newton_schulz: NewtonSchulzConfig,
}

impl Settings {
    fn read(case: &Case) -> Result<Self, CaseError> {
        let scale: String = case.field("scale")?;
        if scale != SCALE {
            return Err(case.bad_field("scale", format!("`{scale}`, wanted `{SCALE}`")));
        }
        let steps: usize = case.field("ns_steps")?;
        if steps > MOST_STEPS {
            return Err(case.bad_field("ns_steps", format!("{steps}, wanted at most {MOST_STEPS}")));
        }
        Ok(Self {
            lr: case.field("lr")?,
            weight_decay: case.field("weight_decay")?,
            momentum: case.field("momentum")?,
            nesterov: case.field("nesterov")?,
            newton_schulz: NewtonSchulzConfig::new()
                .with_steps(steps)
                .with_coefficients(vec![case.field("ns")?]),
        })
    }

    /// The weights after each step of the optimizer that Burn's `ModuleOptimizer` gives a group.
    fn by_group(&self, start: Tensor<2>, grads: &[Tensor<2>]) -> Tensor<3> {
        let muon = MuonConfig::new()
            .with_weight_decay(self.weight_decay)
            .with_momentum(self.momentum)
            .with_nesterov(self.nesterov)
            .with_newton_schulz(self.newton_schulz.clone())
            .with_update_rms(UPDATE_RMS)
            .build();
        let mut weight = start;
        let mut state = None;
        let after_each = grads.iter().map(|grad| {
            let step = muon.step(self.lr, weight.clone(), grad.clone(), state.take());
            (weight, state) = step;
            weight.clone()
        });
        Tensor::stack(after_each.collect(), 0)
    }

    /// The weights after each step of the optimizer that sees the whole module.
    fn by_module(&self, start: Tensor<2>, grads: &[Tensor<2>]) -> Tensor<3> {
        let mut module = Matrix {
            weight: Param::from_tensor(start.autodiff()),
        };
        let mut optimizer = MuonClipConfig::new()
            .with_weight_decay(self.weight_decay)
            .with_momentum(self.momentum)
            .with_nesterov(self.nesterov)
            .with_newton_schulz(self.newton_schulz.clone())
            .with_update_rms(UPDATE_RMS)
            .with_muon(ParamGroup::from_path("weight"))
            .init_fused(&module);
        let after_each = grads.iter().map(|grad| {
            let mut gradients = GradientsParams::new();
            gradients.register(module.weight.id, grad.clone());
            module = optimizer.step(self.lr, module.clone(), gradients);
            module.weight.val().inner()
        });
        Tensor::stack(after_each.collect(), 0)
    }
}

/// A module that is one matrix.
#[derive(Module, Debug)]
struct Matrix {
    weight: Param<Tensor<2>>,
}
