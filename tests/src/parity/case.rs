//! One case: its fields and its tensors.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use super::error::CaseError;
use super::kinds::Kind;
use super::tensors::TensorFile;
use super::tolerance::Tolerance;

pub(super) const CASE_FILE: &str = "case.json";
pub(super) const TENSOR_FILE: &str = "tensors.safetensors";

/// The fields of a `case.json`, of whatever kind.
#[derive(Debug)]
pub(super) struct Case {
    /// The kind of the case.
    pub(super) kind: Kind,
    /// `kind/name`, as printed.
    pub(super) title: String,
    folder: PathBuf,
    fields: Map<String, Value>,
}

impl Case {
    /// Reads `case.json` in `folder`. The tensors are read only when a kind that is supported asks.
    pub(super) fn open(folder: &Path) -> Result<Self, CaseError> {
        let path = folder.join(CASE_FILE);
        let text = std::fs::read(&path).map_err(|source| CaseError::Read {
            path: path.clone(),
            source,
        })?;
        let fields =
            serde_json::from_slice(&text).map_err(|source| CaseError::Json { path, source })?;
        let mut case = Self {
            kind: Kind::Kda,
            title: String::new(),
            folder: folder.to_path_buf(),
            fields,
        };
        let kind: String = case.field("kind")?;
        let name: String = case.field("name")?;
        case.kind = kind.parse().map_err(|()| CaseError::UnknownKind {
            path: case.json_path(),
            kind: kind.clone(),
        })?;
        case.title = format!("{kind}/{name}");
        Ok(case)
    }

    /// Reads the tensors beside `case.json`.
    pub(super) fn tensors(&self) -> Result<TensorFile, CaseError> {
        TensorFile::open(self.folder.join(TENSOR_FILE))
    }

    /// The value of a field, which must be there and have the type asked for. A field that may be
    /// `null` is an `Option` and must still be there.
    pub(super) fn field<T: DeserializeOwned>(&self, field: &str) -> Result<T, CaseError> {
        self.optional_field(field)?
            .ok_or_else(|| CaseError::MissingField {
                path: self.json_path(),
                field: field.into(),
            })
    }

    /// The value of a field that a case may leave out.
    pub(super) fn optional_field<T: DeserializeOwned>(
        &self,
        field: &str,
    ) -> Result<Option<T>, CaseError> {
        self.fields
            .get(field)
            .map(|value| T::deserialize(value))
            .transpose()
            .map_err(|error| self.bad_field(field, error.to_string()))
    }

    /// An error about a field whose value cannot be used.
    pub(super) fn bad_field(&self, field: &str, problem: impl Into<String>) -> CaseError {
        CaseError::BadField {
            path: self.json_path(),
            field: field.into(),
            problem: problem.into(),
        }
    }

    /// The tolerance of a tensor: the absolute one, the relative one of its name or else of its
    /// group (`out`, `grad`), or both.
    pub(super) fn tolerance(&self, tensor: &str) -> Result<Tolerance, CaseError> {
        let rms: Option<BTreeMap<String, f64>> = self.optional_field("rms_tol")?;
        let group = tensor.split('.').next().unwrap_or(tensor);
        let tolerance = Tolerance {
            absolute: self.optional_field("abs_tol")?,
            relative: rms.and_then(|rms| rms.get(tensor).or(rms.get(group)).copied()),
        };
        let given = [tolerance.absolute, tolerance.relative];
        if given.iter().all(Option::is_none) {
            return Err(CaseError::MissingField {
                path: self.json_path(),
                field: format!("rms_tol.{group}"),
            });
        }
        if given.iter().flatten().any(|value| *value < 0.0) {
            return Err(self.bad_field("rms_tol", "a tolerance is negative"));
        }
        Ok(tolerance)
    }

    fn json_path(&self) -> PathBuf {
        self.folder.join(CASE_FILE)
    }
}
