//! What can be wrong with a case.

use std::path::PathBuf;

use super::kinds::Kind;

/// Why a case could not be read. Every variant names the file, and the tensor or field in it.
#[derive(Debug, thiserror::Error)]
pub(super) enum CaseError {
    /// A path given on the command line does not exist or is no folder.
    #[error("{}: no such folder", path.display())]
    NoFolder {
        /// The path as given.
        path: PathBuf,
    },
    /// No case lies in or below a folder.
    #[error("{}: no case.json in this folder or below it", path.display())]
    NoCase {
        /// The folder searched.
        path: PathBuf,
    },
    /// A folder could not be searched.
    #[error("cannot search for cases: {0}")]
    Search(#[from] walkdir::Error),
    /// A file is missing or could not be read.
    #[error("{}: {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// What the operating system said.
        source: std::io::Error,
    },
    /// `case.json` is not a JSON object.
    #[error("{}: not a JSON object: {source}", path.display())]
    Json {
        /// The file.
        path: PathBuf,
        /// Where and why parsing stopped.
        source: serde_json::Error,
    },
    /// A field is absent.
    #[error("{}: field `{field}` is missing", path.display())]
    MissingField {
        /// The JSON file.
        path: PathBuf,
        /// The field, with dots between levels.
        field: String,
    },
    /// A field has another type or a value that makes no sense.
    #[error("{}: field `{field}`: {problem}", path.display())]
    BadField {
        /// The JSON file.
        path: PathBuf,
        /// The field, with dots between levels.
        field: String,
        /// What is wrong and what was wanted.
        problem: String,
    },
    /// The kind is none of those the case format knows.
    #[error("{}: unknown kind `{kind}`: the kinds are {}", path.display(), Kind::names())]
    UnknownKind {
        /// The JSON file.
        path: PathBuf,
        /// The kind it names.
        kind: String,
    },
    /// The tensor file is truncated or malformed.
    #[error("{}: not a safetensors file: {source}", path.display())]
    Safetensors {
        /// The file.
        path: PathBuf,
        /// What the parser found.
        source: safetensors::SafeTensorError,
    },
    /// A tensor that the kind needs is absent.
    #[error("{}: tensor `{tensor}` is missing", path.display())]
    MissingTensor {
        /// The tensor file.
        path: PathBuf,
        /// The tensor's name.
        tensor: String,
    },
    /// A tensor has another element type than the format says.
    #[error("{}: tensor `{tensor}` is {found}, wanted {wanted}", path.display())]
    Dtype {
        /// The tensor file.
        path: PathBuf,
        /// The tensor's name.
        tensor: String,
        /// The element type in the file.
        found: String,
        /// The element types the format allows here.
        wanted: &'static str,
    },
    /// A tensor's shape contradicts the kind's layout or another tensor of the case.
    #[error("{}: tensor `{tensor}` has shape {shape:?}, wanted {wanted}", path.display())]
    Shape {
        /// The tensor file.
        path: PathBuf,
        /// The tensor's name.
        tensor: String,
        /// The shape in the file.
        shape: Vec<usize>,
        /// The shape or the rule it breaks.
        wanted: String,
    },
}
