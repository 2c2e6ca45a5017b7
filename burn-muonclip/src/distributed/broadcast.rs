//! The owners' new weights, for everybody.

use std::collections::{HashMap, HashSet};

use burn::module::{Module, ModuleMapper, ModuleVisitor, Param, ParamId};
use burn::tensor::Tensor;
use burn::tensor::container::TensorContainer;

use super::Collective;
use crate::fused::{NewValues, TensorContext};

/// Brings the parameters that moved from their owners' replicas to the others. `owners` has their owners.
pub(super) fn broadcast<M: Module, C: Collective>(
    collective: &C,
    owners: &HashMap<ParamId, usize>,
    replicas: Vec<M>,
) -> Vec<M> {
    let mut sent: Vec<_> = replicas.iter().map(|_| TensorContainer::new()).collect();
    for (rank, replica) in replicas.iter().enumerate() {
        replica.visit(&mut Send {
            collective,
            owners,
            rank,
            done: HashSet::new(),
            sent: &mut sent,
        });
    }
    let ranks = replicas.into_iter().zip(sent);
    ranks
        .map(|(replica, sent)| {
            replica.map(&mut Receive {
                sent,
                written: NewValues::new(),
            })
        })
        .collect()
}

/// Sends what `rank` owns, walking its replica.
struct Send<'a, C> {
    collective: &'a C,
    owners: &'a HashMap<ParamId, usize>,
    rank: usize,
    done: HashSet<ParamId>,
    /// For every rank, by parameter, `Tensor<D>`.
    sent: &'a mut [TensorContainer<ParamId>],
}

impl<C: Collective> ModuleVisitor for Send<'_, C> {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        let id = param.id;
        if self.owners.get(&id) != Some(&self.rank) || !self.done.insert(id) {
            return;
        }
        let weights = self.collective.broadcast(param.base().inner(), self.rank);
        for (rank, (sent, weight)) in self.sent.iter_mut().zip(weights).enumerate() {
            if rank != self.rank {
                sent.register(id, weight);
            }
        }
    }
}

/// Puts what came into a replica.
struct Receive {
    sent: TensorContainer<ParamId>,
    written: NewValues,
}

impl ModuleMapper for Receive {
    fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
        let Some(weight) = self.sent.get::<Tensor<D>>(&param.id) else {
            return param;
        };
        let (id, tensor, mapper) = param.consume();
        let context = TensorContext::of(&tensor);
        let tensor = match self.written.get(id, context) {
            Some(written) => written,
            None => self.written.put(id, context, weight),
        };
        Param::from_mapped_value(id, tensor, mapper)
    }
}
