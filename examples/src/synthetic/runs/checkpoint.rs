use std::fs;
use std::path::{Path, PathBuf};

use burn::module::Module;
use burn::optim::ModuleOptimizer;
use burn::store::ModuleRecord;
use burn::tensor::Bytes;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::synthetic::Network;
use crate::train::{RunFolder, TrainError, write_atomically};

/// SHA-256 of the files of a checkpoint.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Digests {
    model: String,
    optimizer: String,
}

/// Writes model and optimizer after `step` steps. They count from when `progress.json` holds their digests.
pub(super) fn save(
    folder: &RunFolder,
    step: usize,
    network: &Network,
    optimizer: &ModuleOptimizer,
) -> Result<Digests, TrainError> {
    let parent = folder.checkpoints();
    fs::create_dir_all(&parent).map_err(|e| TrainError::io(&parent, e))?;
    let [model_file, optimizer_file] = files(folder, step);
    let model = network.clone().into_record().into_bytes();
    let model = model.map_err(|e| TrainError::malformed(&model_file, e))?;
    let optimizer = optimizer.into_bytes();
    let optimizer = optimizer.map_err(|e| TrainError::malformed(&optimizer_file, e))?;
    write_atomically(&model_file, &model)?;
    write_atomically(&optimizer_file, &optimizer)?;
    Ok(Digests {
        model: sha256(&model),
        optimizer: sha256(&optimizer),
    })
}

/// Model and optimizer after `step` steps, into fresh ones of the same shape.
pub(super) fn load(
    folder: &RunFolder,
    step: usize,
    digests: &Digests,
    network: Network,
    optimizer: ModuleOptimizer,
) -> Result<(Network, ModuleOptimizer), TrainError> {
    let [model_file, optimizer_file] = files(folder, step);
    let model = ModuleRecord::from_bytes(read(&model_file, &digests.model)?)
        .and_then(|record| network.try_load_record(record))
        .map_err(|e| TrainError::malformed(&model_file, e))?;
    let optimizer = optimizer
        .from_bytes(read(&optimizer_file, &digests.optimizer)?)
        .map_err(|e| TrainError::malformed(&optimizer_file, e))?;
    Ok((model, optimizer))
}

/// Removes every checkpoint but that of `step`: the older ones, and what an interrupted save left.
pub(super) fn keep_only(folder: &RunFolder, step: usize) -> Result<(), TrainError> {
    let parent = folder.checkpoints();
    let kept = files(folder, step);
    let entries = fs::read_dir(&parent).map_err(|e| TrainError::io(&parent, e))?;
    for path in entries.flatten().map(|entry| entry.path()) {
        if !kept.contains(&path) {
            fs::remove_file(&path).map_err(|e| TrainError::io(&path, e))?;
        }
    }
    Ok(())
}

/// Removes all checkpoints of a run that is over.
pub(super) fn remove(folder: &RunFolder) -> Result<(), TrainError> {
    let parent = folder.checkpoints();
    match parent.exists() {
        true => fs::remove_dir_all(&parent).map_err(|e| TrainError::io(&parent, e)),
        false => Ok(()),
    }
}

/// Where model and optimizer are.
fn files(folder: &RunFolder, step: usize) -> [PathBuf; 2] {
    ["model", "optimizer"].map(|part| folder.checkpoints().join(format!("{part}-{step}.bpk")))
}

/// Burn starts a parameter afresh when a file holds no state that it knows for it, so a wrong file would lose the momentum
/// without a word; hence the digests.
fn read(path: &Path, wanted: &str) -> Result<Bytes, TrainError> {
    let bytes = fs::read(path).map_err(|e| TrainError::io(path, e))?;
    let found = sha256(&bytes);
    if found != wanted {
        return Err(TrainError::malformed(
            path,
            format!(
                "this is not the file that was saved with progress.json: its sha256 is {found}, not {wanted}"
            ),
        ));
    }
    Ok(Bytes::from_bytes_vec(bytes))
}

fn sha256(bytes: &[u8]) -> String {
    format!("{:x}", Sha256::digest(bytes))
}
