//! Tests of the `burn-attnres` crate.

mod case;
mod checks;
mod formula;
mod forward;
mod gradient;
mod kernel;
mod memory;
mod network;
mod numbers;
mod parameters;
mod precision;
mod schedule;
mod single_source;
mod stack;
mod turns;
