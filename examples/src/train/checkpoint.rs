use std::fs::{self, File};
use std::path::{Path, PathBuf};

use burn::module::Module;
use burn::tensor::Device;
use burn_kimi_model::{Decoder, DecoderConfig};

use super::atomic_file::sync_folder;
use super::position::{Position, PositionFile};
use super::{LanguageModelOptimizer, RunFolder, TrainError, TrainSettings};

const MODEL_FILE: &str = "model.bpk";
const OPTIMIZER_FILE: &str = "optimizer.bpk";
const POSITION_FILE: &str = "position.json";

/// Writes a checkpoint and then removes older ones.
///
/// The files go into a temporary folder that takes its name when all of them are on the disk, and older
/// checkpoints go when that name is. Whoever stops the program or the machine at any moment finds the previous
/// checkpoint or the new one, complete. The metrics that lead up to it must be on the disk before
/// ([`MetricsLog::sync`](super::MetricsLog::sync)).
pub(super) fn save(
    folder: &RunFolder,
    position: Position,
    train: &TrainSettings,
    model: &Decoder,
    optimizer: &LanguageModelOptimizer,
) -> Result<(), TrainError> {
    let parent = folder.checkpoints();
    fs::create_dir_all(&parent).map_err(|e| TrainError::io(&parent, e))?;
    remove_leftovers(&parent)?;
    let target = parent.join(format!("step-{:08}", position.step));
    if target.exists() {
        return Ok(());
    }
    let unfinished = parent.join(format!("step-{:08}.unfinished", position.step));
    fs::create_dir(&unfinished).map_err(|e| TrainError::io(&unfinished, e))?;

    let model_file = unfinished.join(MODEL_FILE);
    model
        .clone()
        .save_file(&model_file)
        .map_err(|e| TrainError::malformed(&model_file, e))?;
    let optimizer_file = unfinished.join(OPTIMIZER_FILE);
    optimizer.save(&optimizer_file)?;
    PositionFile::new(position, train, &model_file, &optimizer_file)?
        .write(&unfinished.join(POSITION_FILE))?;

    sync_files(&unfinished)?;
    fs::rename(&unfinished, &target).map_err(|e| TrainError::io(&target, e))?;
    for holder in [parent.as_path(), folder.path()] {
        sync_folder(holder).map_err(|e| TrainError::io(holder, e))?;
    }
    for (_, older) in complete_checkpoints(&parent)?
        .into_iter()
        .filter(|(_, path)| *path != target)
    {
        fs::remove_dir_all(&older).map_err(|e| TrainError::io(&older, e))?;
    }
    Ok(())
}

/// The checkpoint of the latest step, if there is one.
///
/// # Errors
/// [`TrainError::Io`] if the folder cannot be read.
pub fn newest_checkpoint(folder: &RunFolder) -> Result<Option<PathBuf>, TrainError> {
    let parent = folder.checkpoints();
    if !parent.exists() {
        return Ok(None);
    }
    Ok(complete_checkpoints(&parent)?.pop().map(|(_, path)| path))
}

/// The model of a checkpoint.
///
/// # Errors
/// [`TrainError::Malformed`] with the file, if it is damaged or belongs to another model.
pub fn load_model(
    checkpoint: &Path,
    config: &DecoderConfig,
    device: &Device,
) -> Result<Decoder, TrainError> {
    let file = checkpoint.join(MODEL_FILE);
    config
        .init(device)
        .try_load_file(&file)
        .map_err(|e| TrainError::malformed(&file, e))
}

pub(super) fn load_optimizer(
    checkpoint: &Path,
    fresh: LanguageModelOptimizer,
) -> Result<LanguageModelOptimizer, TrainError> {
    fresh.load(&checkpoint.join(OPTIMIZER_FILE))
}

/// The position of a checkpoint, after a check that its files belong together and to `train`.
pub(super) fn load_position(
    checkpoint: &Path,
    train: &TrainSettings,
) -> Result<Position, TrainError> {
    let path = checkpoint.join(POSITION_FILE);
    let file = PositionFile::read(&path)?;
    file.check_settings(&path, train)?;
    file.check_files(
        &checkpoint.join(MODEL_FILE),
        &checkpoint.join(OPTIMIZER_FILE),
    )?;
    Ok(file.position())
}

/// Complete checkpoints by step, oldest first.
fn complete_checkpoints(parent: &Path) -> Result<Vec<(usize, PathBuf)>, TrainError> {
    let entries = fs::read_dir(parent).map_err(|e| TrainError::io(parent, e))?;
    let mut found: Vec<(usize, PathBuf)> = entries
        .flatten()
        .filter_map(|entry| {
            let step = entry
                .file_name()
                .to_str()?
                .strip_prefix("step-")?
                .parse()
                .ok()?;
            Some((step, entry.path()))
        })
        .collect();
    found.sort();
    Ok(found)
}

/// Removes what an interrupted save left.
fn remove_leftovers(parent: &Path) -> Result<(), TrainError> {
    for entry in fs::read_dir(parent)
        .map_err(|e| TrainError::io(parent, e))?
        .flatten()
    {
        if entry
            .path()
            .extension()
            .is_some_and(|extension| extension == "unfinished")
        {
            fs::remove_dir_all(entry.path()).map_err(|e| TrainError::io(&entry.path(), e))?;
        }
    }
    Ok(())
}

/// A renamed folder must not appear before its files and their content, also after a power failure.
fn sync_files(folder: &Path) -> Result<(), TrainError> {
    for entry in fs::read_dir(folder).map_err(|e| TrainError::io(folder, e))? {
        let path = entry.map_err(|e| TrainError::io(folder, e))?.path();
        File::options()
            .write(true)
            .open(&path)
            .and_then(|file| file.sync_all())
            .map_err(|e| TrainError::io(&path, e))?;
    }
    sync_folder(folder).map_err(|e| TrainError::io(folder, e))
}
