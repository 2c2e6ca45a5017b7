//! The gradients of all members, added up at each parameter's owner.

use std::collections::HashSet;

use burn::module::{ModuleVisitor, Param, ParamId};
use burn::optim::GradientsParams;
use burn::tensor::Tensor;

use super::{Collective, Owners};

/// Takes the gradients out of their containers while walking one of the replicas.
pub(super) struct Reduce<'a, C> {
    collective: &'a C,
    owners: &'a Owners,
    /// By rank.
    grads: Vec<GradientsParams>,
    path: Vec<String>,
    seen: HashSet<ParamId>,
    /// What each rank has to work with.
    owned: Vec<GradientsParams>,
}

impl<'a, C: Collective> Reduce<'a, C> {
    pub(super) fn new(collective: &'a C, owners: &'a Owners, grads: Vec<GradientsParams>) -> Self {
        Self {
            collective,
            owners,
            owned: grads.iter().map(|_| GradientsParams::new()).collect(),
            grads,
            path: Vec::new(),
            seen: HashSet::new(),
        }
    }

    /// The gradients of what each rank owns, on its device.
    pub(super) fn finish(self) -> Vec<GradientsParams> {
        self.owned
    }
}

impl<C: Collective> ModuleVisitor for Reduce<'_, C> {
    fn enter_module(&mut self, name: &str, _container_type: &str) {
        self.path.push(name.to_owned());
    }

    fn exit_module(&mut self, _name: &str, _container_type: &str) {
        self.path.pop();
    }

    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        if !self.seen.insert(param.id) {
            return;
        }
        let members = self.grads.iter_mut();
        let tensors: Vec<_> = members
            .map(|grads| grads.remove::<D>(param.id).map(Tensor::inner))
            .collect();
        if tensors.iter().all(Option::is_none) {
            return;
        }
        let path = self.path.join(".");
        let owner = self.owners.of(&path).unwrap_or_else(|| {
            panic!(
                "MuonClip: parameter `{path}` of shape {:?} was not in the model this optimizer was built for; build it again",
                param.base().dims()
            )
        });
        let sum = self.collective.reduce(tensors, owner);
        self.owned[owner].register(param.id, sum);
    }
}
