//! What the example programs are made of, in reading order.
//!
//! `train-lm` trains a small Kimi-style language model on real text: [`text`] provides bytes and splits them,
//! [`bigram`] is the baseline, [`train`] is the loop with its checkpoints, [`sample`] writes text, [`chart`] and
//! [`logit_chart`] draw the curves, [`compare`] sets two optimizers against each other, and [`cli`] is the command line.
//! `supervised` trains the same decoder with Burn's own `SupervisedTraining`: see [`supervised`]. `synthetic` compares token
//! mixers on generated tasks: see [`synthetic`].

pub mod text;

pub mod bigram;

pub mod train;

pub mod sample;

pub mod chart;
pub mod logit_chart;

pub mod compare;

pub mod supervised;

pub mod synthetic;

pub mod cli;
