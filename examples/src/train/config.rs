use burn_kimi_model::DecoderConfig;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::{RunSettings, TextSummary, decoder_config};

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

    /// Checks what a file can get wrong although each field has the right type. Nothing is built from `model`
    /// that the settings, whose ranges are checked, do not give.
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
        let wanted = decoder_config(&self.settings.model).map_err(|error| error.to_string())?;
        match first_difference(&self.model, &wanted)? {
            Some((field, found, wanted)) => Err(format!(
                "model.{field} is {found}, but the settings give {wanted}"
            )),
            None => Ok(()),
        }
    }
}

/// The first field in which two models differ, with both values.
fn first_difference(
    found: &DecoderConfig,
    wanted: &DecoderConfig,
) -> Result<Option<(String, Value, Value)>, String> {
    let fields = |config: &DecoderConfig| {
        serde_json::from_value::<Map<String, Value>>(serde_json::to_value(config)?)
    };
    let found = fields(found).map_err(|error| error.to_string())?;
    let wanted = fields(wanted).map_err(|error| error.to_string())?;
    Ok(found
        .into_iter()
        .zip(wanted)
        .find(|((_, found), (_, wanted))| found != wanted)
        .map(|((field, found), (_, wanted))| (field, found, wanted)))
}
