//! The plan: every floating-point parameter of a module with its optimizer, and why.

use core::fmt;
use std::collections::HashMap;

use burn::module::{Module, ModuleVisitor, Param, ParamGroup, ParamId};
use burn::tensor::{Device, Tensor};
use serde::{Deserialize, Serialize};

use super::rule::{Level, Reason, Route, classify};
use crate::error::PlanError;
use crate::muon::stack_shape;

/// A user's decision about a group of parameters.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct RouteOverride {
    /// The parameters, by path, regular expression or id.
    pub group: ParamGroup,
    /// Their optimizer.
    pub route: Route,
}

/// One parameter of a [`ParamPlan`].
#[derive(Clone, Debug)]
pub struct ParamEntry {
    /// Path of the parameter in the module, joined by dots: `layers.0.attn.q_proj.weight`.
    pub path: String,
    /// Shape as the parameter reports it. A `Linear` of `LinearLayout::Col` that was not initialised yet
    /// reports `[out, in]`; the rules treat both sides alike.
    pub shape: Vec<usize>,
    /// Id at the time of planning. Parameters with the same id share one value.
    pub id: ParamId,
    /// Its optimizer.
    pub route: Route,
    /// Why.
    pub reason: Reason,
    pub(crate) device: Device,
    pub(crate) initialized: bool,
}

impl ParamEntry {
    /// Number of elements.
    pub fn num_elements(&self) -> usize {
        self.shape.iter().product()
    }
}

/// Which optimizer trains which parameter of a module; see the [routing rules](super).
///
/// Print it to see every path with its shape, optimizer and reason.
#[derive(Clone, Debug, Default)]
pub struct ParamPlan {
    entries: Vec<ParamEntry>,
    by_path: HashMap<String, usize>,
    /// Overrides that matched no parameter, by position.
    unmatched: Vec<usize>,
}

impl ParamPlan {
    /// Classifies every floating-point parameter of `module`, without initialising any.
    ///
    /// # Errors
    /// [`PlanError::NotAMatrix`] if an override sends a parameter to Muon whose rank is neither 2 nor 3.
    pub fn new<M: Module>(module: &M, overrides: &[RouteOverride]) -> Result<Self, PlanError> {
        let mut planner = Planner {
            levels: Vec::new(),
            overrides,
            entries: Vec::new(),
            chosen: Vec::new(),
        };
        module.visit(&mut planner);
        let Planner {
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
        let unmatched = (0..overrides.len())
            .filter(|&i| {
                !entries
                    .iter()
                    .any(|e| overrides[i].group.matches(&e.id, Some(&e.path)))
            })
            .collect();
        let by_path = entries
            .iter()
            .enumerate()
            .map(|(i, entry)| (entry.path.clone(), i))
            .collect();
        Ok(Self {
            entries,
            by_path,
            unmatched,
        })
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
}

/// Gives all parameters of one id one route.
fn unify_shared(entries: &mut [ParamEntry], chosen: &[Option<usize>]) {
    let mut uses: HashMap<ParamId, Vec<usize>> = HashMap::new();
    for (i, entry) in entries.iter().enumerate() {
        uses.entry(entry.id).or_default().push(i);
    }
    for indices in uses.values().filter(|indices| indices.len() > 1) {
        let decider = match indices
            .iter()
            .copied()
            .max_by_key(|&i| (chosen[i], core::cmp::Reverse(i)))
        {
            Some(i) if chosen[i].is_some() => i,
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
}

struct Planner<'a> {
    levels: Vec<Level>,
    overrides: &'a [RouteOverride],
    entries: Vec<ParamEntry>,
    /// The override that decided each entry, by position.
    chosen: Vec<Option<usize>>,
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
        // Reading the value would initialise it, and change the order of random numbers.
        let shape = param.lazy_shape().to_vec();
        let chosen = self
            .overrides
            .iter()
            .rposition(|choice| choice.group.matches(&param.id, Some(&path)));
        let (route, reason) = match chosen {
            Some(i) => (self.overrides[i].route, Reason::Override),
            None => classify(&self.levels, &shape),
        };
        self.chosen.push(chosen);
        self.entries.push(ParamEntry {
            path,
            shape,
            id: param.id,
            route,
            reason,
            device: param.lazy_device().inner(),
            initialized: param.is_initialized(),
        });
    }
}

impl fmt::Display for ParamPlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shapes: Vec<String> = self
            .entries
            .iter()
            .map(|e| format!("{:?}", e.shape))
            .collect();
        let path_width = self.entries.iter().map(|e| e.path.len()).max().unwrap_or(0);
        let shape_width = shapes.iter().map(String::len).max().unwrap_or(0);
        for (entry, shape) in self.entries.iter().zip(&shapes) {
            writeln!(
                f,
                "{:path_width$}  {shape:shape_width$}  {:5}  {}",
                entry.path, entry.route, entry.reason
            )?;
        }
        for i in &self.unmatched {
            writeln!(f, "override {i} matches no parameter")?;
        }
        Ok(())
    }
}
