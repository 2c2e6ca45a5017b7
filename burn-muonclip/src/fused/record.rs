//! Saving and loading the state, in the layout of Burn's optimizer records.
//!
//! A parameter with id `I` has tensors `I.momentum_buffer` (Muon) or `I.momentum.moment_1` and
//! `I.momentum.moment_2` (AdamW), scalars `I.__rank` and, for AdamW, `I.momentum.time`, and its path as
//! metadata `I`. A [`ModuleOptimizer`](burn::optim::ModuleOptimizer) built by
//! [`MuonClipConfig::init`](crate::MuonClipConfig::init) reads and writes the same.

use std::path::Path;

use burn::optim::{DynOptimizer, OptimizerRecord, RecordState, StateSink};
use burn::tensor::{Bytes, Tensor};
use burn_pack::{Reader, Scalar, Writer};

use super::optimizer::MuonClip;
use super::saved::{Saved, split_name};
use super::state::{Moment, Momentum, States};
use crate::error::StateError;
use crate::muon::MuonState;
use crate::routing::Route;

const RANK: &str = "__rank";

impl MuonClip {
    /// The state as Burn's record.
    ///
    /// # Errors
    /// [`StateError::Encode`] if the state does not fit the format's limits.
    pub fn to_record(&self) -> Result<OptimizerRecord, StateError> {
        OptimizerRecord::from_bytes(self.into_bytes()?).map_err(|error| StateError::Encode {
            message: error.to_string(),
        })
    }

    /// Loads a state saved from this optimizer, or from the one of
    /// [`MuonClipConfig::init`](crate::MuonClipConfig::init).
    ///
    /// States are matched by path, so neither the model's ids nor the order of loading model and optimizer
    /// matter.
    ///
    /// # Errors
    /// [`StateError`] if the record does not fit the model, naming the parameter. Nothing is loaded then.
    pub fn load_record(self, record: OptimizerRecord) -> Result<Self, StateError> {
        let bytes = record.into_bytes().map_err(|error| StateError::Decode {
            message: error.to_string(),
        })?;
        self.from_bytes(bytes)
    }

    /// The state in the burnpack format.
    ///
    /// # Errors
    /// [`StateError::Encode`] if the state does not fit the format's limits.
    #[allow(clippy::wrong_self_convention)] // the name that Burn's optimizers have
    pub fn into_bytes(&self) -> Result<Bytes, StateError> {
        self.writer()
            .into_bytes()
            .map_err(|error| StateError::Encode {
                message: error.to_string(),
            })
    }

    /// Loads a state from bytes; see [`load_record`](Self::load_record).
    ///
    /// # Errors
    /// [`StateError`] if the bytes are no optimizer state or do not fit the model.
    #[allow(clippy::wrong_self_convention)] // the name that Burn's optimizers have
    pub fn from_bytes(self, bytes: Bytes) -> Result<Self, StateError> {
        let decode = |error: burn_pack::Error| StateError::Decode {
            message: error.to_string(),
        };
        let saved = Saved::read(Reader::from_bytes(bytes).map_err(decode)?).map_err(decode)?;
        self.load_saved(saved)
    }

    /// Writes the state to `path`, with the extension `.bpk` if it has none. The file is complete or
    /// not there: it is written beside its place and renamed.
    ///
    /// # Errors
    /// [`StateError::Write`] if the file cannot be written.
    pub fn save<P: AsRef<Path>>(&self, path: P) -> Result<(), StateError> {
        let path = path.as_ref();
        self.writer()
            .write_to_file(path)
            .map_err(|error| StateError::Write {
                file: path.to_owned(),
                message: error.to_string(),
            })
    }

    /// Loads a state from `path`; see [`load_record`](Self::load_record).
    ///
    /// # Errors
    /// [`StateError::Read`] if the file is no optimizer state, other variants if it does not fit the model.
    pub fn load<P: AsRef<Path>>(self, path: P) -> Result<Self, StateError> {
        let path = path.as_ref();
        let read = |error: burn_pack::Error| StateError::Read {
            file: path.to_owned(),
            message: error.to_string(),
        };
        let saved = Saved::read(Reader::from_file(path).map_err(read)?).map_err(read)?;
        self.load_saved(saved)
    }

    fn writer(&self) -> Writer {
        let mut sink = StateSink::default();
        let mut paths = Vec::new();
        for (path, Momentum { id, value, rank }) in &self.states.momenta {
            let prefix = id.val().to_string();
            flatten_momentum(value.clone(), *rank, &prefix, &mut sink);
            sink.push_scalar(&prefix, RANK, Scalar::from(*rank));
            paths.push((prefix, path));
        }
        for (path, Moment { id, state, .. }) in &self.states.moments {
            let prefix = id.val().to_string();
            self.adamw.state_flatten(&prefix, state, &mut sink);
            sink.push_scalar(&prefix, RANK, Scalar::from(state.rank()));
            paths.push((prefix, path));
        }
        let tensors = sink.tensors.into_iter().map(|(name, data)| {
            let id = split_name(&name).map(|(id, _)| id);
            let (bytes, shape, dtype) = data.into_parts();
            burn_pack::Tensor::new(name, dtype, shape, id, bytes)
        });
        let mut writer = Writer::new(tensors.collect());
        for (id, path) in paths {
            writer = writer.with_metadata(&id, path);
        }
        for (name, value) in sink.scalars {
            writer = writer.with_scalar(&name, value);
        }
        writer
    }

    fn load_saved(mut self, mut saved: Saved) -> Result<Self, StateError> {
        let mut states = States::default();
        for id in saved.ids() {
            let entry = saved.entry(id, &self.plan)?;
            let path = entry.path.clone();
            let replaced = match saved.route(id, entry)? {
                Route::Muon => {
                    let momentum = saved.momentum(id, entry)?;
                    states.momenta.insert(path, momentum).is_some()
                }
                Route::AdamW => {
                    let moment = saved.moment(id, entry, &self.adamw)?;
                    states.moments.insert(path, moment).is_some()
                }
            };
            if replaced {
                return Err(StateError::Duplicate {
                    path: entry.path.clone(),
                });
            }
        }
        self.states = states;
        Ok(self)
    }
}

fn flatten_momentum(momentum: Tensor<3>, rank: usize, prefix: &str, sink: &mut StateSink) {
    if rank == 2 {
        let momentum_buffer = momentum.squeeze_dim::<2>(0);
        MuonState { momentum_buffer }.state_flatten(prefix, sink);
    } else {
        MuonState {
            momentum_buffer: momentum,
        }
        .state_flatten(prefix, sink);
    }
}
