//! The parity harness of the workspace, and the tests that cross its crates.
//!
//! [`parity`] compares the crates with numbers that other implementations computed, stored as
//! reference cases; the `parity` binary is its command line. The package's own tests and the
//! copies of the reference cases they read are in `tests/` and `fixtures/`; `faults.md` maps known faults to the tests that exclude them.
//!
//! [`speed`] measures the KDA operator on a device; `kda-speed` is its command line.

pub mod parity;
pub mod speed;
