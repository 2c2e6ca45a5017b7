//! Reference cases of other implementations, run against the crates of this workspace.
//!
//! A case is a folder with `case.json` (kind, name, parameters, tolerances) and
//! `tensors.safetensors`, which holds inputs `in.*`, expected outputs `out.*` and, where there is a
//! backward pass, cotangents `cot.*` and the gradients `grad.*` of `sum(out.X * cot.X)`. Everything
//! in a case comes from outside, so whatever is wrong with it is a typed error (`error`) that names the
//! file and the tensor or field; a wrong *result* is a failed check.
//!
//! Reading order: [`Parity`] (one run over many folders), `case` and `tensors` (what is read),
//! `session` (inputs in, outputs out, gradients), `kinds` (one file a kind), `tolerance` (when two
//! tensors agree), `report` (the printed lines).

mod case;
mod discover;
mod error;
mod kinds;
mod report;
mod run;
mod session;
mod tensors;
mod tolerance;

pub use run::{Outcome, Parity};
pub use tensors::{StoredTensor, Values};
pub use tolerance::{Comparison, Tolerance, compare};
