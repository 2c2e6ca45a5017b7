//! Two optimizers on the same budget: a list of runs, each written when it is finished, and a report of them.
//!
//! ```text
//! DIR/compare.json             the plan
//! DIR/muonclip-lr0.01/0/       one run: ARM/SEED
//! DIR/report.md                the table
//! DIR/loss.svg                 the mean curves of each optimizer's best arm
//! ```

mod markdown;
mod plan;
mod report;
mod run;

pub use plan::{Arm, ComparePlan, RunId};
pub use report::{Report, RunState};
pub use run::{CompareOutcome, execute};
