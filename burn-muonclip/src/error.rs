//! What can go wrong with plans and saved states.

use std::path::PathBuf;

use crate::column_blocks::ColumnBlocks;
use crate::routing::Route;

/// A parameter cannot be trained as asked.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PlanError {
    /// An override sends a parameter to Muon that is no matrix and no stack of matrices.
    #[error(
        "parameter `{path}` has shape {shape:?}, but Muon takes a matrix [n, m] or a stack of matrices [E, n, m]; \
         leave it to AdamW"
    )]
    NotAMatrix {
        /// Path of the parameter.
        path: String,
        /// Its shape.
        shape: Vec<usize>,
    },
    /// Column blocks do not make up the parameter.
    #[error("parameter `{path}` has shape {shape:?}, whose last axis is not made up by {blocks:?}")]
    Blocks {
        /// Path of the parameter.
        path: String,
        /// Its shape.
        shape: Vec<usize>,
        /// The blocks.
        blocks: ColumnBlocks,
    },
}

/// A saved optimizer state cannot be written, read, or used with this model.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum StateError {
    /// The file could not be read as an optimizer state.
    #[error("cannot read the optimizer state from {file}: {message}", file = .file.display())]
    Read {
        /// The file.
        file: PathBuf,
        /// The cause.
        message: String,
    },
    /// The file could not be written. What stood there before is unchanged.
    #[error("cannot write the optimizer state to {file}: {message}", file = .file.display())]
    Write {
        /// The file.
        file: PathBuf,
        /// The cause.
        message: String,
    },
    /// Bytes or a record that are no optimizer state.
    #[error("cannot decode the optimizer state: {message}")]
    Decode {
        /// The cause.
        message: String,
    },
    /// The state could not be encoded.
    #[error("cannot encode the optimizer state: {message}")]
    Encode {
        /// The cause.
        message: String,
    },
    /// The state belongs to a parameter that the model does not have.
    #[error("the saved state of parameter `{path}` belongs to no parameter of this model")]
    UnknownParameter {
        /// The saved path, or the saved id where no path was saved.
        path: String,
    },
    /// The parameter was trained by the other optimizer when the state was saved.
    #[error(
        "parameter `{path}` was trained by {saved} when the state was saved and is trained by {now} now; \
         route it as before, or start it without state"
    )]
    Regrouped {
        /// Path of the parameter.
        path: String,
        /// Its optimizer then.
        saved: Route,
        /// Its optimizer now.
        now: Route,
    },
    /// Two states for one parameter.
    #[error("the saved state holds more than one state for parameter `{path}`")]
    Duplicate {
        /// Path of the parameter.
        path: String,
    },
    /// The parameter had another shape when the state was saved.
    #[error("parameter `{path}` has shape {now:?}, its saved `{field}` has shape {saved:?}")]
    ShapeChanged {
        /// Path of the parameter.
        path: String,
        /// The state tensor.
        field: String,
        /// Its saved shape.
        saved: Vec<usize>,
        /// The parameter's shape.
        now: Vec<usize>,
    },
    /// A part of the parameter's state is missing, is not floating point, or is one that no optimizer here writes.
    #[error("parameter `{path}`: saved state field `{field}` {problem}")]
    BadField {
        /// Path of the parameter.
        path: String,
        /// The field.
        field: String,
        /// What is wrong with it.
        problem: &'static str,
    },
}
