use serde::{Deserialize, Serialize};

use super::{RunSettings, TrainError};
use crate::bigram::BigramTable;
use crate::text::{Split, SplitRule, evaluation_windows, load_and_split};

/// The text of a run, split, with the baseline to beat.
#[derive(Clone, Debug)]
pub struct Task {
    /// The two parts of the text.
    pub split: Split,
    /// What identifies the text and its baseline.
    pub summary: TextSummary,
    seq_len: usize,
    eval_tokens: usize,
}

/// What `config.json` keeps of a text, so that losses can be compared and a resumed run can check its text.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TextSummary {
    /// The text's name, or its path.
    pub name: String,
    /// Number of files.
    pub files: usize,
    /// Bytes of all files.
    pub bytes: usize,
    /// SHA-256 of the files' bytes, one after the other.
    pub sha256: String,
    /// How train and validation were separated.
    pub split: SplitRule,
    /// Bytes of the train part.
    pub train_bytes: usize,
    /// Bytes of the validation part.
    pub validation_bytes: usize,
    /// Tokens that each validation predicts.
    pub validation_tokens: usize,
    /// Loss on those tokens of a bigram table fitted on the train part, in nats per byte.
    pub bigram_loss: f64,
}

impl Task {
    /// Loads and splits the text that `settings` name: the default text or the user's.
    ///
    /// # Errors
    /// [`TrainError::Text`] if it cannot be found, is no text, or is too short.
    pub fn load(settings: &RunSettings) -> Result<Self, TrainError> {
        let seq_len = settings.train.seq_len;
        let (corpus, split) = load_and_split(settings.text.as_deref(), seq_len)?;
        let windows = evaluation_windows(&split.validation, seq_len, settings.train.eval_tokens);
        let summary = TextSummary {
            name: corpus.name.clone(),
            files: corpus.documents.len(),
            bytes: corpus.bytes(),
            sha256: corpus.sha256(),
            split: split.rule.clone(),
            train_bytes: split.train.len(),
            validation_bytes: split.validation.len(),
            validation_tokens: windows.len() * seq_len,
            bigram_loss: BigramTable::fit(&split.train).loss(&windows),
        };
        Ok(Self {
            split,
            summary,
            seq_len,
            eval_tokens: settings.train.eval_tokens,
        })
    }

    /// The windows of every validation: the same for the model and for the bigram table.
    pub fn validation_windows(&self) -> Vec<&[u8]> {
        evaluation_windows(&self.split.validation, self.seq_len, self.eval_tokens)
    }
}
