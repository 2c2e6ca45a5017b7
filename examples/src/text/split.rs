use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::{Corpus, TextError};

/// A user's folder with at least this many files is split by whole files.
const FILES_FOR_SPLIT_BY_FILE: usize = 20;

/// One file, or one byte, in ten is validated on.
const VALIDATION_STRIDE: usize = 10;

/// How a text was split.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SplitRule {
    /// Whole groups (packages) are validated on.
    Groups(Vec<String>),
    /// Every tenth file in path order is validated on.
    EveryTenthFile,
    /// The last tenth of the bytes is validated on.
    LastTenth,
}

/// A text in two parts that share no byte. Each part is one stream: documents follow each other directly.
#[derive(Clone, Debug)]
pub struct Split {
    /// What the model and the bigram table are fitted on.
    pub train: Arc<[u8]>,
    /// What both are judged on.
    pub validation: Arc<[u8]>,
    /// How the parts were made.
    pub rule: SplitRule,
}

impl Split {
    /// Checks that each part holds at least one window of `seq_len` predicted tokens.
    ///
    /// # Errors
    /// [`TextError::TooShort`] with the sizes found and wanted.
    pub fn check_length(&self, corpus: &Corpus, seq_len: usize) -> Result<(), TextError> {
        let needed = seq_len + 1;
        if self.train.len() >= needed && self.validation.len() >= needed {
            return Ok(());
        }
        Err(TextError::TooShort {
            name: corpus.name.clone(),
            bytes: corpus.bytes(),
            train: self.train.len(),
            validation: self.validation.len(),
            needed,
        })
    }
}

/// Puts the documents of `validation_groups` into the validation part and all others into the train part.
pub fn split_by_group(corpus: &Corpus, validation_groups: &[&str]) -> Split {
    let rule = SplitRule::Groups(
        validation_groups
            .iter()
            .map(|&group| group.to_owned())
            .collect(),
    );
    split_by_document(corpus, rule, |index| {
        validation_groups.contains(&corpus.documents[index].group.as_str())
    })
}

/// Splits a user's text: by file if there are at least twenty files and each part then has room for a window of
/// `seq_len` predicted tokens, otherwise the last tenth of the bytes is validated on.
pub fn split_user_text(corpus: &Corpus, seq_len: usize) -> Split {
    if corpus.documents.len() >= FILES_FOR_SPLIT_BY_FILE {
        let split = split_by_document(corpus, SplitRule::EveryTenthFile, |index| {
            index % VALIDATION_STRIDE == VALIDATION_STRIDE - 1
        });
        if split.check_length(corpus, seq_len).is_ok() {
            return split;
        }
    }
    let stream: Vec<u8> = corpus
        .documents
        .iter()
        .flat_map(|document| &document.bytes)
        .copied()
        .collect();
    let (train, validation) = stream.split_at(stream.len() - stream.len() / VALIDATION_STRIDE);
    Split {
        train: train.into(),
        validation: validation.into(),
        rule: SplitRule::LastTenth,
    }
}

fn split_by_document(corpus: &Corpus, rule: SplitRule, validates: impl Fn(usize) -> bool) -> Split {
    let (mut train, mut validation) = (Vec::new(), Vec::new());
    for (index, document) in corpus.documents.iter().enumerate() {
        let part = if validates(index) {
            &mut validation
        } else {
            &mut train
        };
        part.extend_from_slice(&document.bytes);
    }
    Split {
        train: train.into(),
        validation: validation.into(),
        rule,
    }
}
