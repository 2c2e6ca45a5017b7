use std::fs;
use std::path::Path;

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::train::{TrainError, write_atomically};

/// Reads a value from a file of JSON.
pub(super) fn read<T: DeserializeOwned>(path: &Path) -> Result<T, TrainError> {
    let text = fs::read_to_string(path).map_err(|e| TrainError::io(path, e))?;
    serde_json::from_str(&text).map_err(|e| TrainError::malformed(path, e))
}

/// Writes a value to a file of JSON, all of it or nothing.
pub(super) fn write(path: &Path, value: &impl Serialize) -> Result<(), TrainError> {
    let text = serde_json::to_string_pretty(value).map_err(|e| TrainError::malformed(path, e))?;
    write_atomically(path, (text + "\n").as_bytes())
}
