//! Making a plan: one walk over the module, then one decision for all uses of a shared parameter.

use core::cmp::Reverse;
use std::collections::HashMap;

use burn::module::{Module, ModuleVisitor, Param, ParamGroup, ParamId};
use burn::tensor::Tensor;

use super::plan::{BlocksOverride, ParamEntry, ParamPlan, RouteOverride, WeightDecayOverride};
use super::rule::{Level, Reason, Route, classify, is_never_decayed};
use crate::error::PlanError;
use crate::muon::stack_shape;

/// What the user asks for.
pub(crate) struct Wishes<'a> {
    pub(crate) routes: &'a [RouteOverride],
    /// The weight decay of parameters about which no rule and no override says otherwise.
    pub(crate) weight_decay: f32,
    pub(crate) weight_decays: &'a [WeightDecayOverride],
    pub(crate) blocks: &'a [BlocksOverride],
}

/// Classifies every floating-point parameter of `module`, without initialising any.
pub(crate) fn plan<M: Module>(module: &M, wishes: Wishes<'_>) -> Result<ParamPlan, PlanError> {
    let mut planner = Planner {
        wishes,
        levels: Vec::new(),
        entries: Vec::new(),
        chosen: Vec::new(),
    };
    module.visit(&mut planner);
    let Planner {
        wishes,
        mut entries,
        chosen,
        ..
    } = planner;
    unify_shared(&mut entries, &chosen);
    for entry in &entries {
        if entry.route == Route::Muon && stack_shape(&entry.shape).is_none() {
            return Err(PlanError::NotAMatrix {
                path: entry.path.clone(),
                shape: entry.shape.clone(),
            });
        }
    }
    for entry in &mut entries {
        if entry.route == Route::AdamW {
            entry.blocks = None;
        }
        if let Some(blocks) = &entry.blocks {
            let columns = entry.shape[entry.shape.len() - 1];
            if blocks.widths(columns).is_none() {
                return Err(PlanError::Blocks {
                    path: entry.path.clone(),
                    shape: entry.shape.clone(),
                    blocks: blocks.clone(),
                });
            }
        }
    }
    let routes = wishes.routes.iter().map(|wish| &wish.group);
    let weight_decays = wishes.weight_decays.iter().map(|wish| &wish.group);
    let unmatched = empty_groups(routes, &entries);
    let unmatched_weight_decays = empty_groups(weight_decays, &entries);
    let unmatched_blocks = empty_groups(wishes.blocks.iter().map(|wish| &wish.group), &entries);
    Ok(ParamPlan::new(
        entries,
        unmatched,
        unmatched_weight_decays,
        unmatched_blocks,
    ))
}

/// The positions of the groups without any parameter.
fn empty_groups<'a>(
    groups: impl Iterator<Item = &'a ParamGroup>,
    entries: &[ParamEntry],
) -> Vec<usize> {
    groups
        .enumerate()
        .filter(|(_, group)| {
            !entries
                .iter()
                .any(|entry| group.matches(&entry.id, Some(&entry.path)))
        })
        .map(|(i, _)| i)
        .collect()
}

/// Gives all uses of one parameter one route and one weight decay.
fn unify_shared(entries: &mut [ParamEntry], chosen: &[Chosen]) {
    let mut uses: HashMap<ParamId, Vec<usize>> = HashMap::new();
    for (i, entry) in entries.iter().enumerate() {
        uses.entry(entry.id).or_default().push(i);
    }
    for indices in uses.values().filter(|indices| indices.len() > 1) {
        unify_route(entries, chosen, indices);
        unify_weight_decay(entries, chosen, indices);
        unify_blocks(entries, chosen, indices);
    }
}

fn unify_route(entries: &mut [ParamEntry], chosen: &[Chosen], indices: &[usize]) {
    let decider = match indices
        .iter()
        .copied()
        .max_by_key(|&i| (chosen[i].route, Reverse(i)))
    {
        Some(i) if chosen[i].route.is_some() => i,
        _ => indices
            .iter()
            .copied()
            .find(|&i| entries[i].route == Route::AdamW)
            .unwrap_or(indices[0]),
    };
    let route = entries[decider].route;
    let path = entries[decider].path.clone();
    for &i in indices {
        if i != decider && entries[i].route != route {
            entries[i].route = route;
            entries[i].reason = Reason::SharedWith(path.clone());
        }
    }
}

fn unify_weight_decay(entries: &mut [ParamEntry], chosen: &[Chosen], indices: &[usize]) {
    let decider = indices
        .iter()
        .copied()
        .max_by_key(|&i| {
            let undecayed = entries[i].weight_decay == 0.0;
            (chosen[i].weight_decay, undecayed, Reverse(i))
        })
        .expect("a shared parameter has uses");
    let weight_decay = entries[decider].weight_decay;
    for &i in indices {
        entries[i].weight_decay = weight_decay;
    }
}

fn unify_blocks(entries: &mut [ParamEntry], chosen: &[Chosen], indices: &[usize]) {
    let decider = indices.iter().copied().max_by_key(|&i| chosen[i].blocks);
    let blocks = decider.and_then(|i| entries[i].blocks.clone());
    for &i in indices {
        entries[i].blocks = blocks.clone();
    }
}

/// The overrides that decided an entry, by position.
struct Chosen {
    route: Option<usize>,
    blocks: Option<usize>,
    weight_decay: Option<usize>,
}

struct Planner<'a> {
    wishes: Wishes<'a>,
    levels: Vec<Level>,
    entries: Vec<ParamEntry>,
    /// One for each entry.
    chosen: Vec<Chosen>,
}

impl ModuleVisitor for Planner<'_> {
    fn enter_module(&mut self, name: &str, container_type: &str) {
        self.levels.push(Level {
            name: name.to_owned(),
            container: container_type.to_owned(),
        });
    }

    fn exit_module(&mut self, _name: &str, _container_type: &str) {
        self.levels.pop();
    }

    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        let names: Vec<&str> = self
            .levels
            .iter()
            .map(|level| level.name.as_str())
            .collect();
        let path = names.join(".");
        let shape = shape_of(param);
        let asks_for = |group: &ParamGroup| group.matches(&param.id, Some(&path));
        let Wishes {
            routes,
            weight_decay,
            weight_decays,
            blocks,
        } = self.wishes;
        let chosen = Chosen {
            route: routes.iter().rposition(|wish| asks_for(&wish.group)),
            weight_decay: weight_decays.iter().rposition(|wish| asks_for(&wish.group)),
            blocks: blocks.iter().rposition(|wish| asks_for(&wish.group)),
        };
        let blocks = chosen.blocks.map(|i| blocks[i].blocks.clone());
        let (route, reason) = match chosen.route {
            Some(i) => (routes[i].route, Reason::Override),
            None => classify(&self.levels, &shape),
        };
        let weight_decay = match chosen.weight_decay {
            Some(i) => weight_decays[i].weight_decay,
            None if is_never_decayed(&self.levels) => 0.0,
            None => weight_decay,
        };
        self.chosen.push(chosen);
        self.entries.push(ParamEntry {
            path,
            shape,
            id: param.id,
            route,
            reason,
            weight_decay,
            blocks,
            device: param.lazy_device().inner(),
        });
    }
}

/// The shape of the parameter's value.
///
/// Reading the value would initialise it, and change the order of random numbers. A parameter that is not
/// initialised yet reports the shape in which it is stored, which for `LinearLayout::Col` is the value's
/// transposed; what loading makes of a tensor of that shape tells the value's.
fn shape_of<const D: usize>(param: &Param<Tensor<D>>) -> Vec<usize> {
    let stored = param.lazy_shape();
    if D < 2 || param.is_initialized() {
        return stored.to_vec();
    }
    let probe = Tensor::<D>::empty(stored, &param.lazy_device());
    let loaded = param.clone().transform_for_load(probe, param.id);
    loaded.lazy_shape().to_vec()
}
