//! What the optimizer remembers about each parameter.

use std::collections::BTreeMap;

use burn::module::ParamId;
use burn::optim::DynState;
use burn::tensor::Tensor;

/// The states of all parameters that had a gradient so far, by path.
///
/// Paths survive a new process and a reloaded model; ids need not.
#[derive(Clone, Default)]
pub(crate) struct States {
    pub(crate) momenta: Momenta,
    pub(crate) moments: Moments,
}

/// The states of Muon's parameters.
pub(crate) type Momenta = BTreeMap<String, Momentum>;

/// The states of AdamW's parameters.
pub(crate) type Moments = BTreeMap<String, Moment>;

/// The momentum of one parameter that Muon trains.
#[derive(Clone)]
pub(crate) struct Momentum {
    /// The parameter's id in the last step, under which Burn's records file the state.
    pub(crate) id: ParamId,
    /// `[E, n, m]`, in the working dtype.
    pub(crate) value: Tensor<3>,
    /// Rank of the parameter: 2 (then `E` is one) or 3.
    pub(crate) rank: usize,
}

/// Both moments and the time of one parameter that AdamW trains.
#[derive(Clone)]
pub(crate) struct Moment {
    /// The parameter's id in the last step, under which Burn's records file the state.
    pub(crate) id: ParamId,
    /// Shape of the parameter and of both moments.
    pub(crate) shape: Vec<usize>,
    /// An `AuxiliaryState<D>`, with `D` the parameter's rank.
    pub(crate) state: DynState,
    /// Of both moments.
    pub(crate) bytes: usize,
}

impl States {
    pub(crate) fn len(&self) -> usize {
        self.momenta.len() + self.moments.len()
    }

    /// Forgets those whose path is not wanted.
    pub(crate) fn retain(&mut self, wanted: impl Fn(&str) -> bool) {
        self.momenta.retain(|path, _| wanted(path));
        self.moments.retain(|path, _| wanted(path));
    }

    /// Adds those of another, which has other paths.
    pub(crate) fn extend(&mut self, other: Self) {
        self.momenta.extend(other.momenta);
        self.moments.extend(other.moments);
    }

    /// Memory that the states take.
    pub(crate) fn bytes(&self) -> usize {
        let momenta = self
            .momenta
            .values()
            .map(|momentum| momentum.value.shape().num_elements() * momentum.value.dtype().size());
        let moments = self.moments.values().map(|moment| moment.bytes);
        momenta.sum::<usize>() + moments.sum::<usize>()
    }

    /// The shape of the state of the parameter at `path`, if it has one.
    pub(crate) fn shape(&self, path: &str) -> Option<Vec<usize>> {
        if let Some(Momentum { value, rank, .. }) = self.momenta.get(path) {
            return Some(value.dims()[3 - rank..].to_vec());
        }
        self.moments.get(path).map(|moment| moment.shape.clone())
    }
}
