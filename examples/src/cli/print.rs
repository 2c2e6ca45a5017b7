use std::fmt::Display;
use std::io::{self, Write};
use std::path::Path;

use crate::text::SplitRule;
use crate::train::{RunSettings, TextSummary};

pub(super) fn print_text(text: &TextSummary) {
    let split = match &text.split {
        SplitRule::Groups(groups) => groups.join(", "),
        SplitRule::EveryTenthFile => "every tenth file".to_owned(),
        SplitRule::LastTenth => "the last tenth".to_owned(),
    };
    say(format_args!(
        "text        {}: {} files, {} bytes, sha256 {}",
        text.name, text.files, text.bytes, text.sha256
    ));
    say(format_args!(
        "split       train {} bytes, validation {} bytes ({split})",
        text.train_bytes, text.validation_bytes
    ));
    say(format_args!(
        "bigram      {:.4} nats per byte on {} validation tokens (add-0.1 smoothing, fitted on the train split)",
        text.bigram_loss, text.validation_tokens
    ));
}

pub(super) fn print_settings(settings: &RunSettings, parameters: usize, folder: &Path) {
    let (model, train) = (&settings.model, &settings.train);
    say(format_args!(
        "model       {} layers of width {}, {} attention, {} residual, {parameters} parameters",
        model.layers, model.hidden, model.attention, model.residual
    ));
    say(format_args!(
        "training    {} at lr {}, {} steps of {} x {} tokens, seed {}, on {}",
        train.optimizer.name(),
        train.lr,
        train.steps,
        train.batch,
        train.seq_len,
        train.seed,
        train.device
    ));
    say(format_args!("folder      {}", folder.display()));
}

/// Prints a line. A reader that has gone away (`train-lm | head`) is no reason to lose a run.
pub(super) fn say(line: impl Display) {
    let _ = writeln!(io::stdout(), "{line}");
}
