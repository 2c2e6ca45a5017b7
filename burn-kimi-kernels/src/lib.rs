#![doc = include_str!("../README.md")]
#![cfg_attr(docsrs, feature(doc_cfg))]

#[cfg(feature = "flex")]
pub mod cpu;
#[cfg(feature = "cube")]
pub mod cube;
#[cfg(feature = "kernels")]
pub mod list;
#[cfg(feature = "kernels")]
pub mod outputs;
pub mod precision;
