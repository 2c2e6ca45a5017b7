//! Tests of the example programs: their parts against formulas and files, and the programs as a user runs them.

mod batches;
mod bigram;
mod chart;
mod command_line;
mod compare;
mod default_text;
mod folders;
mod metrics;
mod program;
mod progress;
mod sample;
mod schedule;
mod stopping;
mod stored_files;
mod supervised;
mod synthetic;
mod tiny;
mod user_text;
