use std::path::Path;

use super::{
    BurnSources, Corpus, Split, TextError, VALIDATION_PACKAGES, load_default_text, load_user_text,
    split_by_group, split_user_text,
};

/// Loads the user's text at `path`, or the default text without one, and splits it into two parts that each
/// have room for a window of `seq_len` predicted tokens.
///
/// # Errors
/// [`TextError`] if the text cannot be found, is no text, or is too short.
pub fn load_and_split(path: Option<&Path>, seq_len: usize) -> Result<(Corpus, Split), TextError> {
    let (corpus, split) = match path {
        None => {
            let corpus = load_default_text(&BurnSources::from_cargo_home()?)?;
            let split = split_by_group(&corpus, &VALIDATION_PACKAGES);
            (corpus, split)
        }
        Some(path) => {
            let corpus = load_user_text(path)?;
            let split = split_user_text(&corpus, seq_len);
            (corpus, split)
        }
    };
    split.check_length(&corpus, seq_len)?;
    Ok((corpus, split))
}
