//! Tests of the crate: composition of the decoder, and what callers rely on whatever it is composed of.

mod config;
mod decoder;
mod device;
mod gradient;
mod qk_clip;
