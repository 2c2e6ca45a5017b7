use std::collections::BTreeSet;
use std::path::Path;

use serde_json::{Map, Value};

use crate::train::{RunSettings, TrainError};

/// Settings that may change when a run is continued: how long, how safe, and where. What the text holds is
/// checked by its digest, so it may have moved.
const MAY_CHANGE: [&str; 4] = ["steps", "save_every", "device", "text"];

/// The stored settings of the run in `folder`, with those that may change taken from the command line.
///
/// # Errors
/// [`TrainError::Contradiction`] if another setting was given (its name is in `names`) with a value that is
/// not the stored one, [`TrainError::Setting`] if it is out of range.
pub fn settings_for_resume(
    folder: &Path,
    stored: &RunSettings,
    given: &RunSettings,
    names: &BTreeSet<String>,
) -> Result<RunSettings, TrainError> {
    // JSON has no NaN that a contradiction could name.
    given.train.validate_rates()?;
    let malformed = |error: serde_json::Error| TrainError::malformed(folder, error);
    let mut merged = serde_json::to_value(stored).map_err(malformed)?;
    let wanted = by_name(&serde_json::to_value(given).map_err(malformed)?);
    replace_given(&mut merged, &wanted, names, folder)?;
    serde_json::from_value(merged).map_err(malformed)
}

/// Settings are grouped in objects; flags are not.
fn by_name(settings: &Value) -> Map<String, Value> {
    let mut flat = Map::new();
    for (name, value) in settings.as_object().into_iter().flatten() {
        match value {
            Value::Object(_) => flat.extend(by_name(value)),
            _ => {
                flat.insert(name.clone(), value.clone());
            }
        }
    }
    flat
}

fn replace_given(
    stored: &mut Value,
    wanted: &Map<String, Value>,
    names: &BTreeSet<String>,
    folder: &Path,
) -> Result<(), TrainError> {
    for (name, value) in stored.as_object_mut().into_iter().flatten() {
        if value.is_object() {
            replace_given(value, wanted, names, folder)?;
        } else if names.contains(name) && *value != wanted[name] {
            if !MAY_CHANGE.contains(&name.as_str()) {
                return Err(TrainError::Contradiction {
                    path: folder.to_owned(),
                    flag: name.replace('_', "-"),
                    stored: as_flag_value(value),
                    given: as_flag_value(&wanted[name]),
                });
            }
            *value = wanted[name].clone();
        }
    }
    Ok(())
}

fn as_flag_value(value: &Value) -> String {
    value
        .as_str()
        .map_or_else(|| value.to_string(), str::to_owned)
}
