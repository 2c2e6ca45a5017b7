//! The parity harness on the copied cases, and proof that the harness itself can fail.

mod case_folder;
mod command_line;
mod faults;
mod fixtures;
mod kinds;
mod tolerance;
mod unreadable;
mod whole_model;
