//! Both forms of the optimizer behind one face, so that the contract is written once.

use burn::lr_scheduler::module_lr_scheduler::ModuleLearningRate;
use burn::module::Module;
use burn::optim::{GradientsParams, ModuleOptimizer};
use burn::tensor::Bytes;
use burn_muonclip::{MuonClip, MuonClipConfig};

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Form {
    Module,
    Fused,
}

pub(crate) const FORMS: [Form; 2] = [Form::Module, Form::Fused];

#[derive(Clone)]
pub(crate) enum Optimizer {
    Module(ModuleOptimizer),
    Fused(Box<MuonClip>),
}

impl Form {
    pub(crate) fn init<M: Module>(self, config: &MuonClipConfig, model: &M) -> Optimizer {
        match self {
            Form::Module => Optimizer::Module(config.init(model)),
            Form::Fused => Optimizer::Fused(Box::new(config.init_fused(model))),
        }
    }
}

impl Optimizer {
    pub(crate) fn step<M: Module>(
        &mut self,
        lr: impl Into<ModuleLearningRate>,
        module: M,
        grads: GradientsParams,
    ) -> M {
        match self {
            Optimizer::Module(optimizer) => optimizer.step(lr, module, grads),
            Optimizer::Fused(optimizer) => optimizer.step(lr, module, grads),
        }
    }

    pub(crate) fn to_bytes(&self) -> Bytes {
        match self {
            Optimizer::Module(optimizer) => optimizer.into_bytes().unwrap(),
            Optimizer::Fused(optimizer) => optimizer.into_bytes().unwrap(),
        }
    }

    pub(crate) fn load_bytes(self, bytes: Bytes) -> Self {
        match self {
            Optimizer::Module(optimizer) => Optimizer::Module(optimizer.from_bytes(bytes).unwrap()),
            Optimizer::Fused(optimizer) => {
                Optimizer::Fused(Box::new(optimizer.from_bytes(bytes).unwrap()))
            }
        }
    }
}
