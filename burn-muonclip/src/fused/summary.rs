//! Parameters and memory by optimizer.

use core::fmt;

use super::MuonClip;
use crate::routing::{ParamEntry, Route};

/// The parameters that one optimizer trains.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct GroupSummary {
    /// The optimizer.
    pub route: Route,
    /// Parameters, counting those that several paths share once.
    pub parameters: usize,
    /// Their elements.
    pub elements: usize,
    /// Bytes of optimizer state once each had a gradient: 4 an element for Muon (2 in bf16) and 8 for AdamW. Parameters
    /// in f64 need twice as much.
    pub state_bytes: usize,
}

/// Parameters and state memory of a [`MuonClip`](super::MuonClip). Print it for a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Summary {
    /// One entry an optimizer, Muon first.
    pub groups: Vec<GroupSummary>,
}

impl Summary {
    pub(super) fn of(optimizer: &MuonClip) -> Self {
        let plan = &optimizer.plan;
        let groups = [Route::Muon, Route::AdamW]
            .map(|route| {
                let elements = plan.distinct(route).map(ParamEntry::num_elements).sum();
                GroupSummary {
                    route,
                    parameters: plan.distinct(route).count(),
                    elements,
                    state_bytes: optimizer.bytes_an_element(route) * elements,
                }
            })
            .to_vec();
        Self { groups }
    }
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "optimizer  parameters      elements   state bytes")?;
        for group in &self.groups {
            writeln!(
                f,
                "{:9}  {:10}  {:12}  {:12}",
                group.route, group.parameters, group.elements, group.state_bytes
            )?;
        }
        Ok(())
    }
}
