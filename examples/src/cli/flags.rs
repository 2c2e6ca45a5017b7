use super::Cli;
use crate::train::TrainError;

/// Checks the flags that are no settings of a run.
///
/// clap lets a `requires` pass when the flag that is required conflicts with another one that was given
/// (`--resume DIR --seeds 4`), so what depends on `--compare` and `--resume` is checked here.
pub(super) fn check_flags(cli: &Cli) -> Result<(), TrainError> {
    check_sample_flags(cli)?;
    check_compare_flags(cli)
}

fn check_compare_flags(cli: &Cli) -> Result<(), TrainError> {
    let lists = [
        ("muonclip_lrs", "muonclip-lrs"),
        ("adamw_lrs", "adamw-lrs"),
        ("seeds", "seeds"),
    ];
    let given = |(name, flag)| cli.given.contains::<str>(name).then_some(flag);
    let flags: Vec<&'static str> = lists.into_iter().filter_map(given).collect();
    if !cli.compare.compare && !flags.is_empty() {
        return Err(TrainError::NeedsCompare { flags });
    }
    if cli.compare.report && cli.folder.resume.is_none() {
        return Err(TrainError::Setting {
            flag: "report",
            reason: "needs --resume with the folder of a comparison".to_owned(),
        });
    }
    Ok(())
}

fn check_sample_flags(cli: &Cli) -> Result<(), TrainError> {
    let sample = &cli.sample;
    if sample.prompt.is_empty() {
        return Err(TrainError::Setting {
            flag: "prompt",
            reason: "must hold at least one byte".to_owned(),
        });
    }
    if !(sample.temperature >= 0.0 && sample.temperature.is_finite()) {
        return Err(TrainError::Setting {
            flag: "temperature",
            reason: format!("must be 0 or more, got {}", sample.temperature),
        });
    }
    Ok(())
}
