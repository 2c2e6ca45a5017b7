use std::cmp::Reverse;
use std::collections::BTreeMap;

use crate::fused::MuonClip;
use crate::muon::stack_shape;
use crate::routing::{ParamEntry, Route};

/// Which member owns which parameter.
///
/// The same plan and number of members give the same owners, whatever process asks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Owners {
    /// By the first path of a parameter.
    by_path: BTreeMap<String, usize>,
    shares: Vec<Share>,
}

/// What one member owns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Share {
    /// Parameters, those that several paths share once.
    pub parameters: usize,
    /// Operations of one Newton-Schulz iteration over all of its matrices.
    pub newton_schulz_flops: usize,
    /// Bytes of optimizer state, once each of its parameters had a gradient.
    pub state_bytes: usize,
}

impl Owners {
    /// The costliest matrix first, each to the member with the least to orthogonalise so far; then AdamW's parameters, whose state weighs more
    /// than their arithmetic, the largest first to the member with the least state.
    pub(super) fn new(optimizer: &MuonClip, members: usize) -> Self {
        let plan = &optimizer.plan;
        let mut owners = Self {
            by_path: BTreeMap::new(),
            shares: vec![Share::default(); members],
        };
        let mut matrices: Vec<_> = plan.distinct(Route::Muon).collect();
        // Stable: what costs the same stays in the order of the module.
        matrices.sort_by_key(|entry| Reverse(flops(entry)));
        for entry in matrices {
            let bytes = optimizer.bytes_an_element(entry.route);
            owners.give(entry, bytes, |share| share.newton_schulz_flops);
        }
        let mut others: Vec<_> = plan.distinct(Route::AdamW).collect();
        others.sort_by_key(|entry| Reverse(entry.num_elements()));
        for entry in others {
            let bytes = optimizer.bytes_an_element(entry.route);
            owners.give(entry, bytes, |share| share.state_bytes);
        }
        owners
    }

    /// To the member with the smallest load, the first of them if there are several.
    fn give(&mut self, entry: &ParamEntry, bytes: usize, load: impl Fn(&Share) -> usize) {
        let ranks = 0..self.shares.len();
        let owner = ranks.min_by_key(|&rank| load(&self.shares[rank]));
        let owner = owner.expect("a group has a member");
        let share = &mut self.shares[owner];
        share.parameters += 1;
        share.state_bytes += bytes * entry.num_elements();
        if entry.route == Route::Muon {
            share.newton_schulz_flops += flops(entry);
        }
        self.by_path.insert(entry.path.clone(), owner);
    }

    /// The rank that owns the parameter with this path. A parameter that several paths share goes by its first.
    pub fn of(&self, path: &str) -> Option<usize> {
        self.by_path.get(path).copied()
    }

    /// What each member owns, by rank.
    pub fn shares(&self) -> &[Share] {
        &self.shares
    }
}

/// `4 s^2 l + 2 s^3` for every matrix of sides `s <= l`.
fn flops(entry: &ParamEntry) -> usize {
    let Some([stack, n, m]) = stack_shape(&entry.shape) else {
        return 0;
    };
    let widths = match &entry.blocks {
        Some(blocks) => blocks.widths(m).unwrap_or_else(|| vec![m]),
        None => vec![m],
    };
    let of_width = |width: usize| {
        let (short, long) = (n.min(width), n.max(width));
        4 * short * short * long + 2 * short * short * short
    };
    stack * widths.into_iter().map(of_width).sum::<usize>()
}
