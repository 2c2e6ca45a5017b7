use burn_kimi_model::DecoderConfig;

use super::{ModelSettings, TrainError};
use crate::text::VOCABULARY;

/// The decoder that `settings` describe: heads of width `hidden / heads`, everything else as
/// [`DecoderConfig`] has it.
///
/// # Errors
/// [`TrainError::Model`] with what does not fit together.
pub fn decoder_config(settings: &ModelSettings) -> Result<DecoderConfig, TrainError> {
    let config = DecoderConfig::new(
        VOCABULARY,
        settings.hidden,
        settings.layers,
        settings.heads,
        settings.hidden / settings.heads.max(1),
        settings.ffn,
    )
    .with_attention(settings.attention)
    .with_residual(settings.residual);
    config.validate()?;
    Ok(config)
}
