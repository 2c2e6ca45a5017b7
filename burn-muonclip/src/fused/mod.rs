//! MuonClip over a whole module: all gradients are seen before any weight moves.
//!
//! A step has four stages, one file each:
//! 1. `gather`: take every gradient out of the container once per parameter id.
//! 2. `health`: are all of them finite, and how large are they together? If not finite, the step ends here.
//! 3. `orthogonalize`: momentum, then one Newton-Schulz call for all matrices of one shape.
//! 4. `write_back`: weights, in the order of the module; shared parameters stay one tensor.
//!
//! Stages 1 and 2 change nothing that outlives the step, so a skipped step leaves no trace.

mod context;
mod gather;
mod health;
mod new_values;
mod optimizer;
mod orthogonalize;
mod record;
mod report;
mod saved;
mod state;
mod summary;
mod write_back;

pub(crate) use context::TensorContext;
pub(crate) use gather::Gradients;
pub(crate) use health::{Health, MeasuredSize, assess, read};
pub(crate) use new_values::NewValues;
pub use optimizer::MuonClip;
pub use report::{StepOutcome, StepReport};
pub use summary::{GroupSummary, Summary};
