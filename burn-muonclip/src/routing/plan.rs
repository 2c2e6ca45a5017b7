//! The plan: every floating-point parameter of a module with its optimizer, and why.

use core::fmt;
use std::collections::HashMap;

use burn::module::{ParamGroup, ParamId};
use burn::tensor::Device;
use serde::{Deserialize, Serialize};

use super::rule::{Reason, Route};
use crate::column_blocks::ColumnBlocks;

/// A user's decision about the optimizer of a group of parameters.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct RouteOverride {
    /// The parameters, by path, regular expression or id.
    pub group: ParamGroup,
    /// Their optimizer.
    pub route: Route,
}

/// A user's decision about the weight decay of a group of parameters.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct WeightDecayOverride {
    /// The parameters, by path, regular expression or id.
    pub group: ParamGroup,
    /// Their decoupled weight decay, multiplied by the learning rate; 0 for none.
    pub weight_decay: f32,
}

/// A user's decision about the blocks of a group of parameters.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct BlocksOverride {
    /// The parameters, by path, regular expression or id. Those that AdamW trains, biases for instance, have no use for it.
    pub group: ParamGroup,
    /// Their blocks.
    pub blocks: ColumnBlocks,
}

/// One parameter of a [`ParamPlan`].
#[derive(Clone, Debug)]
pub struct ParamEntry {
    /// Path of the parameter in the module, joined by dots: `layers.0.attn.q_proj.weight`.
    pub path: String,
    /// Shape of its value, whether that was initialised already or not: a `Linear` is `[in, out]` in either
    /// layout.
    pub shape: Vec<usize>,
    /// Id at the time of planning. Parameters with the same id share one value.
    pub id: ParamId,
    /// Its optimizer.
    pub route: Route,
    /// Why.
    pub reason: Reason,
    /// Its decoupled weight decay, multiplied by the learning rate.
    pub weight_decay: f32,
    /// The matrices that Muon takes it for, side by side; `None` for one.
    pub blocks: Option<ColumnBlocks>,
    pub(crate) device: Device,
}

impl ParamEntry {
    /// Number of elements.
    pub fn num_elements(&self) -> usize {
        self.shape.iter().product()
    }
}

/// Which optimizer trains which parameter of a module, and with which weight decay; see the
/// [routing rules](super). Made by [`MuonClipConfig::plan`](crate::MuonClipConfig::plan).
///
/// Print it to see every path with its shape, optimizer, weight decay and reason.
#[derive(Clone, Debug, Default)]
pub struct ParamPlan {
    entries: Vec<ParamEntry>,
    by_path: HashMap<String, usize>,
    /// Overrides that matched no parameter, by position.
    unmatched: Vec<usize>,
    /// The same for overrides of the weight decay.
    unmatched_weight_decays: Vec<usize>,
    /// The same for blocks.
    unmatched_blocks: Vec<usize>,
}

/// Parameters that one optimizer with one configuration trains.
pub(crate) struct Alike<'a> {
    pub(crate) weight_decay: f32,
    pub(crate) blocks: Option<&'a ColumnBlocks>,
    pub(crate) paths: Vec<&'a str>,
}

impl ParamPlan {
    pub(super) fn new(
        entries: Vec<ParamEntry>,
        unmatched: Vec<usize>,
        unmatched_weight_decays: Vec<usize>,
        unmatched_blocks: Vec<usize>,
    ) -> Self {
        let by_path = entries
            .iter()
            .enumerate()
            .map(|(i, entry)| (entry.path.clone(), i))
            .collect();
        Self {
            entries,
            by_path,
            unmatched,
            unmatched_weight_decays,
            unmatched_blocks,
        }
    }

    /// Every parameter in the order of the module's fields. Shared parameters appear once for each path.
    pub fn entries(&self) -> &[ParamEntry] {
        &self.entries
    }

    /// The parameter at `path`.
    pub fn get(&self, path: &str) -> Option<&ParamEntry> {
        self.by_path.get(path).map(|&i| &self.entries[i])
    }

    /// The paths of all parameters with this route, in order.
    pub fn paths(&self, route: Route) -> Vec<&str> {
        self.entries
            .iter()
            .filter(|entry| entry.route == route)
            .map(|entry| entry.path.as_str())
            .collect()
    }

    /// The paths of all parameters with this route that are trained alike, in order: with one weight decay and one kind of blocks.
    pub(crate) fn alike(&self, route: Route) -> Vec<Alike<'_>> {
        let mut groups: Vec<Alike> = Vec::new();
        for entry in self.entries.iter().filter(|entry| entry.route == route) {
            let (weight_decay, blocks) = (entry.weight_decay, entry.blocks.as_ref());
            let same =
                |group: &&mut Alike| group.weight_decay == weight_decay && group.blocks == blocks;
            match groups.iter_mut().find(same) {
                Some(group) => group.paths.push(&entry.path),
                None => groups.push(Alike {
                    weight_decay,
                    blocks,
                    paths: vec![&entry.path],
                }),
            }
        }
        groups
    }

    /// The distinct parameters with this route: those that share an id with an earlier one are left out.
    pub(crate) fn distinct(&self, route: Route) -> impl Iterator<Item = &ParamEntry> {
        self.entries.iter().filter(move |entry| {
            entry.route == route && self.first_with(entry.id).path == entry.path
        })
    }

    /// The first parameter with this id; the id must be in the plan.
    pub(crate) fn first_with(&self, id: ParamId) -> &ParamEntry {
        self.entries
            .iter()
            .find(|entry| entry.id == id)
            .expect("the id was taken from this plan")
    }

    /// Whether any two paths share one parameter.
    pub fn has_shared(&self) -> bool {
        self.entries
            .iter()
            .any(|entry| self.first_with(entry.id).path != entry.path)
    }

    /// The positions of the overrides that matched no parameter, in the order they were added.
    pub fn unmatched_overrides(&self) -> &[usize] {
        &self.unmatched
    }

    /// The positions of the overrides of the weight decay that matched no parameter, in the order they were
    /// added.
    pub fn unmatched_weight_decays(&self) -> &[usize] {
        &self.unmatched_weight_decays
    }

    /// The positions of the column blocks that matched no parameter, in the order they were added.
    pub fn unmatched_blocks(&self) -> &[usize] {
        &self.unmatched_blocks
    }
}

impl fmt::Display for ParamPlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rows: Vec<[String; 3]> = self
            .entries
            .iter()
            .map(|entry| {
                let decay = match entry.weight_decay {
                    0.0 => "no decay".to_owned(),
                    decay => format!("decay {decay}"),
                };
                [entry.path.clone(), format!("{:?}", entry.shape), decay]
            })
            .collect();
        let [path_width, shape_width, decay_width] =
            [0, 1, 2].map(|column| rows.iter().map(|row| row[column].len()).max().unwrap_or(0));
        for (entry, [path, shape, decay]) in self.entries.iter().zip(&rows) {
            writeln!(
                f,
                "{path:path_width$}  {shape:shape_width$}  {:5}  {decay:decay_width$}  {}",
                entry.route, entry.reason
            )?;
            if let Some(blocks) = entry.blocks.as_ref().and_then(|blocks| {
                let columns = entry.shape.last().copied()?;
                blocks.widths(columns)
            }) {
                writeln!(f, "{:path_width$}  columns of {blocks:?}", "")?;
            }
        }
        for i in &self.unmatched {
            writeln!(f, "override {i} matches no parameter")?;
        }
        for i in &self.unmatched_weight_decays {
            writeln!(f, "weight decay override {i} matches no parameter")?;
        }
        for i in &self.unmatched_blocks {
            writeln!(f, "column blocks {i} match no parameter")?;
        }
        Ok(())
    }
}
