//! How fast the KDA operator is on a device, against what the device could do at best.
//!
//! Reading order: [`Batch`] (the sequences), `cost` (flops and bytes of a pass, and [`Limits`]), [`Work`] (inputs and the clock).

mod batch;
mod cost;
mod work;

pub use batch::Batch;
pub use cost::{Cost, Limits, Pass, Widths};
pub use work::{Repeats, Work};
