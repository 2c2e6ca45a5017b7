//! Tests of `train-lm`: its parts against formulas and files, and the program as a user runs it.

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
mod tiny;
mod user_text;
