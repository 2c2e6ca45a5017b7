use std::collections::BTreeMap;

use burn::module::ParamId;

/// The largest logit of every head of the layers that reported: plain numbers.
///
/// Those of several devices or processes are [merged](Self::merge) before the weights are touched, or replicas would part.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LogitMaxima {
    by_layer: BTreeMap<ParamId, Vec<f32>>,
}

impl LogitMaxima {
    /// Nothing was reported.
    pub fn new() -> Self {
        Self::default()
    }

    /// Takes in the logits of a layer; those that it reported before count too.
    ///
    /// # Panics
    /// If the layer had another number of heads before.
    pub fn report(&mut self, layer: ParamId, largest: &[f32]) {
        let known = self
            .by_layer
            .entry(layer)
            .or_insert_with(|| vec![f32::NEG_INFINITY; largest.len()]);
        assert!(
            known.len() == largest.len(),
            "LogitMaxima: a layer reports {} heads, and {} before",
            largest.len(),
            known.len()
        );
        for (known, &new) in known.iter_mut().zip(largest) {
            *known = larger(*known, new);
        }
    }

    /// The larger of both, for every head.
    pub fn merge(&mut self, other: &Self) {
        for (&layer, largest) in &other.by_layer {
            self.report(layer, largest);
        }
    }

    /// What a layer reported.
    pub fn get(&self, layer: ParamId) -> Option<&[f32]> {
        self.by_layer.get(&layer).map(Vec::as_slice)
    }

    /// All layers, in the order of their ids.
    pub fn iter(&self) -> impl Iterator<Item = (ParamId, &[f32])> {
        self.by_layer
            .iter()
            .map(|(&id, heads)| (id, heads.as_slice()))
    }

    /// Whether no layer reported.
    pub fn is_empty(&self) -> bool {
        self.by_layer.is_empty()
    }
}

/// NaN wins, so that it is not lost.
fn larger(a: f32, b: f32) -> f32 {
    if a.is_nan() || b.is_nan() {
        f32::NAN
    } else {
        a.max(b)
    }
}
