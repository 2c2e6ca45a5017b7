//! Temporary copies of fixtures to spoil, and the harness binary to run on them.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;

use safetensors::tensor::{Dtype, SafeTensors, TensorView, serialize};
use serde_json::{Map, Value};
use tempfile::TempDir;

/// The folder with the copied reference cases.
pub(crate) fn fixtures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures")
}

/// What the `parity` binary printed, and its exit status.
#[derive(Debug)]
pub(crate) struct Run {
    pub(crate) status: i32,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

/// Runs the `parity` binary.
pub(crate) fn parity<S: AsRef<OsStr>>(arguments: impl IntoIterator<Item = S>) -> Run {
    let output = Command::new(env!("CARGO_BIN_EXE_parity"))
        .args(arguments)
        .output()
        .expect("the parity binary starts");
    Run {
        status: output.status.code().expect("the parity binary exits"),
        stdout: String::from_utf8(output.stdout).expect("standard output is UTF-8"),
        stderr: String::from_utf8(output.stderr).expect("standard error is UTF-8"),
    }
}

impl Run {
    /// The lines of checks that failed.
    pub(crate) fn failures(&self) -> Vec<&str> {
        let lines = self.stdout.lines();
        lines.filter(|line| line.starts_with("FAIL")).collect()
    }

    /// Asserts that exactly one check failed, that of `tensor`, for a reason that holds `reason`.
    pub(crate) fn assert_only_failure(&self, tensor: &str, reason: &str) {
        assert_eq!(self.status, 1, "{self:?}");
        let failures = self.failures();
        assert_eq!(failures.len(), 1, "{self:?}");
        assert!(
            failures[0].contains(&format!("  {tensor}  ")),
            "{failures:?}"
        );
        assert!(failures[0].contains(reason), "{failures:?}");
    }

    /// Asserts that a case could not be read, and that the message holds every one of `words`.
    pub(crate) fn assert_unreadable(&self, words: &[&str]) {
        assert_eq!(self.status, 2, "{self:?}");
        for word in words {
            assert!(self.stderr.contains(word), "no `{word}` in {self:?}");
        }
    }
}

/// A case in a temporary folder.
pub(crate) struct CaseFolder {
    folder: TempDir,
    pub(crate) fields: Map<String, Value>,
    pub(crate) tensors: BTreeMap<String, Stored>,
}

/// One tensor of a safetensors file.
#[derive(Clone)]
pub(crate) struct Stored {
    pub(crate) dtype: Dtype,
    pub(crate) shape: Vec<usize>,
    pub(crate) data: Vec<u8>,
}

impl CaseFolder {
    /// A copy of a fixture, by its `kind/name`.
    pub(crate) fn copy_of(fixture: &str) -> Self {
        let source = fixtures().join(fixture);
        let json = std::fs::read(source.join("case.json")).expect("the fixture has a case.json");
        let bytes = std::fs::read(source.join("tensors.safetensors")).expect("and its tensors");
        let parsed = SafeTensors::deserialize(&bytes).expect("the fixture's tensors parse");
        let tensors = parsed.iter().map(|(name, view)| {
            let stored = Stored {
                dtype: view.dtype(),
                shape: view.shape().to_vec(),
                data: view.data().to_vec(),
            };
            (name.to_owned(), stored)
        });
        Self {
            folder: TempDir::new().expect("a temporary folder"),
            fields: serde_json::from_slice(&json).expect("the fixture's case.json parses"),
            tensors: tensors.collect(),
        }
    }

    pub(crate) fn path(&self) -> &Path {
        self.folder.path()
    }

    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub(crate) fn set(&mut self, field: &str, value: impl Into<Value>) -> &mut Self {
        self.fields.insert(field.into(), value.into());
        self
    }

    /// Changes the elements of a float32 tensor.
    pub(crate) fn edit(&mut self, tensor: &str, change: impl FnOnce(&mut Vec<f32>)) -> &mut Self {
        let stored = self.tensors.get_mut(tensor).expect("the tensor to edit");
        let (elements, _) = stored.data.as_chunks();
        let mut values: Vec<f32> = elements.iter().map(|b| f32::from_le_bytes(*b)).collect();
        change(&mut values);
        stored.data = values
            .iter()
            .flat_map(|value| value.to_le_bytes())
            .collect();
        self
    }

    pub(crate) fn insert_floats(
        &mut self,
        name: &str,
        shape: &[usize],
        values: &[f32],
    ) -> &mut Self {
        let stored = Stored {
            dtype: Dtype::F32,
            shape: shape.to_vec(),
            data: values
                .iter()
                .flat_map(|value| value.to_le_bytes())
                .collect(),
        };
        self.tensors.insert(name.into(), stored);
        self
    }

    pub(crate) fn remove(&mut self, tensor: &str) -> &mut Self {
        self.tensors.remove(tensor).expect("the tensor to remove");
        self
    }

    /// Writes `case.json` and `tensors.safetensors`.
    pub(crate) fn write(&self) -> &Self {
        let json = serde_json::to_vec(&self.fields).expect("the fields serialize");
        std::fs::write(self.file("case.json"), json).expect("case.json is written");
        let views = self.tensors.iter().map(|(name, stored)| {
            let view = TensorView::new(stored.dtype, stored.shape.clone(), &stored.data);
            (name, view.expect("the shape fits the data"))
        });
        let bytes = serialize(views, None).expect("the tensors serialize");
        std::fs::write(self.file("tensors.safetensors"), bytes).expect("and are written");
        self
    }

    /// Writes the case and runs the harness on it.
    pub(crate) fn run(&self) -> Run {
        parity([self.write().path()])
    }
}
