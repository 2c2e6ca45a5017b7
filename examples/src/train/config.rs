use burn_kimi_model::DecoderConfig;
use serde::{Deserialize, Serialize};

use super::{RunSettings, TextSummary};
use crate::text::VOCABULARY;

const FORMAT: u32 = 1;

/// `config.json`: all that is needed to understand a run, to continue it, or to load its model.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RunConfig {
    format: u32,
    /// The flags.
    pub settings: RunSettings,
    /// The model that the settings expand to.
    pub model: DecoderConfig,
    /// Number of trained values.
    pub parameters: usize,
    /// The text and its baseline.
    pub text: TextSummary,
}

impl RunConfig {
    pub(super) fn new(
        settings: RunSettings,
        model: DecoderConfig,
        parameters: usize,
        text: TextSummary,
    ) -> Self {
        Self {
            format: FORMAT,
            settings,
            model,
            parameters,
            text,
        }
    }

    /// Checks what a file can get wrong although each field has the right type.
    pub(super) fn validate(&self) -> Result<(), String> {
        if self.format != FORMAT {
            return Err(format!(
                "format is {}, this program reads format {FORMAT}",
                self.format
            ));
        }
        self.settings
            .validate()
            .map_err(|error| error.to_string())?;
        self.model
            .validate()
            .map_err(|error| format!("model: {error}"))?;
        match self.model.vocab_size {
            VOCABULARY => Ok(()),
            size => Err(format!(
                "model: vocab_size is {size}, bytes need {VOCABULARY}"
            )),
        }
    }
}
