//! The tensor file of a case.

use std::collections::BTreeMap;
use std::path::PathBuf;

use safetensors::{Dtype, SafeTensors};

use super::error::CaseError;

/// One tensor of a case, or one that a crate computed.
#[derive(Clone, Debug, PartialEq)]
pub struct StoredTensor {
    /// The size of every axis.
    pub shape: Vec<usize>,
    /// The elements, last axis fastest.
    pub values: Values,
}

/// The elements of a tensor: floating tensors are float32, indices int64, pixels int32.
#[derive(Clone, Debug, PartialEq)]
pub enum Values {
    /// Compared within a tolerance.
    Float(Vec<f32>),
    /// Compared for equality.
    Int(Vec<i64>),
}

/// A parsed `tensors.safetensors`.
#[derive(Debug)]
pub(super) struct TensorFile {
    path: PathBuf,
    tensors: BTreeMap<String, StoredTensor>,
}

impl TensorFile {
    /// Reads and decodes the whole file.
    pub(super) fn open(path: PathBuf) -> Result<Self, CaseError> {
        let bytes = std::fs::read(&path).map_err(|source| CaseError::Read {
            path: path.clone(),
            source,
        })?;
        let parsed = match SafeTensors::deserialize(&bytes) {
            Ok(parsed) => parsed,
            Err(source) => return Err(CaseError::Safetensors { path, source }),
        };
        let mut tensors = BTreeMap::new();
        for (name, view) in parsed.iter() {
            let values = match view.dtype() {
                Dtype::F32 => Values::Float(decode(view.data(), f32::from_le_bytes)),
                Dtype::I32 => Values::Int(decode(view.data(), |b| i32::from_le_bytes(b).into())),
                Dtype::I64 => Values::Int(decode(view.data(), i64::from_le_bytes)),
                other => {
                    return Err(CaseError::Dtype {
                        path,
                        tensor: name.into(),
                        found: format!("{other:?}"),
                        wanted: "F32, I64 or I32",
                    });
                }
            };
            let shape = view.shape().to_vec();
            tensors.insert(name.to_owned(), StoredTensor { shape, values });
        }
        Ok(Self { path, tensors })
    }

    /// Whether the file holds a tensor of this name.
    pub(super) fn contains(&self, name: &str) -> bool {
        self.tensors.contains_key(name)
    }

    /// The names that start with `prefix`, sorted.
    pub(super) fn names_under(&self, prefix: &str) -> impl Iterator<Item = &str> {
        self.tensors
            .keys()
            .map(String::as_str)
            .filter(move |name| name.starts_with(prefix))
    }

    /// The tensor of this name.
    pub(super) fn get(&self, name: &str) -> Result<&StoredTensor, CaseError> {
        self.tensors
            .get(name)
            .ok_or_else(|| CaseError::MissingTensor {
                path: self.path.clone(),
                tensor: name.into(),
            })
    }

    /// The shape and elements of a floating tensor.
    pub(super) fn float(&self, name: &str) -> Result<(&[usize], &[f32]), CaseError> {
        let tensor = self.get(name)?;
        match &tensor.values {
            Values::Float(values) => Ok((&tensor.shape, values)),
            Values::Int(_) => Err(CaseError::Dtype {
                path: self.path.clone(),
                tensor: name.into(),
                found: "an integer tensor".into(),
                wanted: "F32",
            }),
        }
    }

    /// An error about the shape of a tensor of this file.
    pub(super) fn bad_shape(
        &self,
        tensor: &str,
        shape: &[usize],
        wanted: impl Into<String>,
    ) -> CaseError {
        CaseError::Shape {
            path: self.path.clone(),
            tensor: tensor.into(),
            shape: shape.to_vec(),
            wanted: wanted.into(),
        }
    }
}

/// Little-endian elements of `N` bytes each.
fn decode<const N: usize, T>(data: &[u8], element: impl Fn([u8; N]) -> T) -> Vec<T> {
    let (elements, _) = data.as_chunks::<N>();
    elements.iter().map(|bytes| element(*bytes)).collect()
}
