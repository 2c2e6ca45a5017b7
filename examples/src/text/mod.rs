//! Text as bytes: where it comes from, how it is split, and how batches are drawn from it.
//!
//! A byte is a token, so the vocabulary has [`VOCABULARY`] entries and no tokenizer is needed. Documents follow
//! each other without a separator, in a documented order, and the SHA-256 of that stream is printed with every
//! run, so that two published losses can be known to belong to the same text.

mod batches;
mod burn_sources;
mod corpus;
mod error;
mod load;
mod split;
mod user_text;

pub use batches::{Batch, TrainBatches, evaluation_windows};
pub use burn_sources::{
    BURN_VERSION, BurnSources, DEFAULT_BYTES, DEFAULT_FILES, DEFAULT_PACKAGES, DEFAULT_SHA256,
    MAX_FILE_BYTES, VALIDATION_PACKAGES, load_default_text,
};
pub use corpus::{Corpus, Document, VOCABULARY};
pub use error::TextError;
pub use load::load_and_split;
pub use split::{Split, SplitRule, split_by_group, split_user_text};
pub use user_text::{MAX_TEXT_BYTES, load_user_text};
