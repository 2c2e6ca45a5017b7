//! A saved state, compared with the model before any of it is used.

use std::collections::{BTreeMap, BTreeSet};

use burn::module::ParamId;
use burn::optim::{DynOptimizer, StateSource};
use burn::tensor::{Tensor, TensorData};
use burn_pack::{Reader, Scalar};

use super::state::{Moment, Momentum};
use crate::adamw::{MOMENT_1, MOMENT_2, TIME};
use crate::error::StateError;
use crate::muon::{MOMENTUM_BUFFER, stack_shape};
use crate::routing::{ParamEntry, ParamPlan, Route};

/// A record as read, before it is compared with the model.
pub(super) struct Saved {
    /// By parameter id and field.
    tensors: BTreeMap<(u64, String), TensorData>,
    scalars: BTreeMap<String, Scalar>,
    paths: BTreeMap<String, String>,
}

impl Saved {
    pub(super) fn read(reader: Reader) -> Result<Self, burn_pack::Error> {
        let scalars = reader.scalars().clone();
        let paths = reader.metadata().clone();
        let mut tensors = BTreeMap::new();
        for tensor in reader.into_tensors()? {
            let (name, dtype, shape, _, bytes) = tensor.into_parts()?;
            let (id, field) = split_name(&name).ok_or_else(|| {
                burn_pack::Error::ValidationError(format!(
                    "tensor `{name}` is not named by parameter id and field"
                ))
            })?;
            tensors.insert(
                (id, field.to_owned()),
                TensorData::from_bytes(bytes, shape, dtype),
            );
        }
        Ok(Self {
            tensors,
            scalars,
            paths,
        })
    }

    /// The ids of all parameters with a state.
    pub(super) fn ids(&self) -> BTreeSet<u64> {
        let named = self.scalars.keys().filter_map(|name| split_name(name));
        self.tensors
            .keys()
            .map(|(id, _)| *id)
            .chain(named.map(|(id, _)| id))
            .collect()
    }

    /// The model's parameter that the saved `id` stands for: by path, or by id where no path was saved.
    pub(super) fn entry<'p>(
        &self,
        id: u64,
        plan: &'p ParamPlan,
    ) -> Result<&'p ParamEntry, StateError> {
        let path = self.paths.get(&id.to_string());
        let entry = match path {
            Some(path) => plan.get(path),
            None => plan
                .entries()
                .iter()
                .find(|entry| entry.id == ParamId::from(id)),
        };
        // A shared parameter keeps its state under its first path.
        entry
            .map(|entry| plan.first_with(entry.id))
            .ok_or_else(|| StateError::UnknownParameter {
                path: path.cloned().unwrap_or_else(|| format!("id {id}")),
            })
    }

    /// Which optimizer wrote the state: the one that trains the parameter now.
    pub(super) fn route(&self, id: u64, entry: &ParamEntry) -> Result<Route, StateError> {
        let has = |field: &str| self.tensors.contains_key(&(id, field.to_owned()));
        let problem = match (has(MOMENTUM_BUFFER), has(MOMENT_1)) {
            (true, true) => "stands beside a state of AdamW",
            (false, false) => "is missing, and so is a state of AdamW",
            (muon, _) => {
                let saved = if muon { Route::Muon } else { Route::AdamW };
                if saved == entry.route {
                    return Ok(saved);
                }
                return Err(StateError::Regrouped {
                    path: entry.path.clone(),
                    saved,
                    now: entry.route,
                });
            }
        };
        Err(bad_field(entry, MOMENTUM_BUFFER, problem))
    }

    pub(super) fn momentum(&mut self, id: u64, entry: &ParamEntry) -> Result<Momentum, StateError> {
        let (bytes, shape, dtype) = self.take(id, MOMENTUM_BUFFER, entry)?.into_parts();
        let stack =
            stack_shape(&shape).ok_or_else(|| shape_changed(entry, MOMENTUM_BUFFER, &shape))?;
        let data = TensorData::from_bytes(bytes, stack, dtype);
        Ok(Momentum {
            id: entry.id,
            value: Tensor::from_data(data, (&entry.device, dtype)),
            rank: shape.len(),
        })
    }

    pub(super) fn moment(
        &mut self,
        id: u64,
        entry: &ParamEntry,
        adamw: &impl DynOptimizer,
    ) -> Result<Moment, StateError> {
        let prefix = id.to_string();
        let time = self.scalars.remove_entry(&format!("{prefix}.{TIME}"));
        let mut source = StateSource::new(time.into_iter().collect());
        let mut bytes = 0;
        for field in [MOMENT_1, MOMENT_2] {
            let data = self.take(id, field, entry)?;
            bytes += data.as_bytes().len();
            source.insert_tensor(format!("{prefix}.{field}"), data);
        }
        let rank = entry.shape.len();
        let state = adamw
            .state_unflatten(rank, &prefix, &mut source, &entry.device)
            .ok_or_else(|| bad_field(entry, TIME, "is missing or no count"))?;
        Ok(Moment {
            id: entry.id,
            shape: entry.shape.clone(),
            state,
            bytes,
        })
    }

    /// Takes the tensor of a field, which has the parameter's shape.
    fn take(&mut self, id: u64, field: &str, entry: &ParamEntry) -> Result<TensorData, StateError> {
        let data = self
            .tensors
            .remove(&(id, field.to_owned()))
            .ok_or_else(|| bad_field(entry, field, "is missing"))?;
        if !data.dtype().is_float() {
            return Err(bad_field(entry, field, "is not floating point"));
        }
        let saved = data.shape().to_vec();
        if saved == entry.shape {
            Ok(data)
        } else {
            Err(shape_changed(entry, field, &saved))
        }
    }
}

/// `"42.momentum.time"` as `(42, "momentum.time")`.
pub(super) fn split_name(name: &str) -> Option<(u64, &str)> {
    let (id, field) = name.split_once('.')?;
    Some((id.parse().ok()?, field))
}

fn shape_changed(entry: &ParamEntry, field: &str, saved: &[usize]) -> StateError {
    StateError::ShapeChanged {
        path: entry.path.clone(),
        field: field.to_owned(),
        saved: saved.to_vec(),
        now: entry.shape.clone(),
    }
}

fn bad_field(entry: &ParamEntry, field: &str, problem: &'static str) -> StateError {
    StateError::BadField {
        path: entry.path.clone(),
        field: field.to_owned(),
        problem,
    }
}
