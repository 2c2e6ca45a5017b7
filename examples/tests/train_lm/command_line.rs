use std::path::Path;

use burn_kimi_model::DeviceName;
use clap::error::ErrorKind;
use examples::cli::{Cli, settings_for_resume};
use examples::train::{OptimizerKind, TrainError};

use crate::tiny::{Place, finish, stderr, stdout};

fn parse(flags: &[&str]) -> Result<Cli, clap::Error> {
    Cli::parse_line(["train-lm"].iter().chain(flags))
}

#[test]
fn defaults_are_the_documented_model() {
    let cli = parse(&[]).expect("no flags");
    let (model, train) = (&cli.settings.model, &cli.settings.train);
    assert_eq!(model.attention.to_string(), "hybrid");
    assert!(model.residual.to_string().starts_with("block:"));
    assert_eq!(
        (train.optimizer, train.device),
        (OptimizerKind::MuonClip, DeviceName::Flex)
    );
    assert_eq!(train.steps, 300);
    assert!(cli.settings.validate().is_ok());
    assert!(cli.given.is_empty());
}

#[test]
fn wrong_flags_are_usage_errors() {
    for flags in [
        &["--optimizer", "sgd"][..],
        &["--attention", "softmax"],
        &["--residual", "block:x"],
        &["--device", "tpu"],
        &["--steps", "many"],
        &["--steps", "-1"],
        &["--resume", "a", "--out", "b"],
        &["--overwrite"],
        &["--seeds", "1"],
        &["--adamw-lrs", "0.1"],
        &["--compare", "--optimizer", "adamw"],
        &["--compare", "--muonclip-lrs", "0.1", "--lr", "0.1"],
        &["--report"],
        &["stray"],
    ] {
        assert!(parse(flags).is_err(), "{flags:?}");
    }
    assert_eq!(
        parse(&["--help"]).unwrap_err().kind(),
        ErrorKind::DisplayHelp
    );
}

#[test]
fn settings_out_of_range_name_their_flag() {
    for (flag, value) in [
        ("steps", "0"),
        ("batch", "0"),
        ("seq-len", "0"),
        ("eval-every", "0"),
        ("save-every", "0"),
        ("layers", "0"),
        ("heads", "0"),
        ("hidden", "127"),
        ("hidden", "100000000"),
        ("batch", "1000000"),
        ("lr", "0"),
        ("lr", "1.5"),
        ("lr", "nan"),
        ("final-lr", "2"),
        ("weight-decay", "2"),
    ] {
        let cli = parse(&[&format!("--{flag}"), value]).expect("a value of the right type");
        let error = cli.settings.validate().expect_err(flag);
        assert!(
            matches!(&error, TrainError::Setting { flag: found, .. } if *found == flag),
            "{flag}: {error}"
        );
    }
}

#[test]
fn resuming_takes_stored_settings_and_refuses_contradictions() {
    let stored = parse(&["--lr", "0.004", "--steps", "50"])
        .expect("flags")
        .settings;
    let merge = |flags: &[&str]| {
        let cli = parse(flags).expect("flags");
        settings_for_resume(Path::new("DIR"), &stored, &cli.settings, &cli.given)
    };
    assert_eq!(merge(&[]).expect("no flags"), stored);
    assert_eq!(merge(&["--lr", "0.004"]).expect("the same value"), stored);
    let more = merge(&["--steps", "80", "--save-every", "7"]).expect("what may change");
    assert_eq!(
        (more.train.steps, more.train.save_every, more.train.lr),
        (80, 7, 0.004)
    );

    let error = merge(&["--lr", "0.01"]).unwrap_err();
    let message = error.to_string();
    assert!(matches!(error, TrainError::Contradiction { .. }));
    assert!(
        message.contains("--lr 0.004") && message.contains("--lr 0.01"),
        "{message}"
    );
    assert!(
        merge(&["--seq-len", "64"])
            .unwrap_err()
            .to_string()
            .contains("--seq-len 64")
    );
    assert!(
        merge(&["--attention", "mla"])
            .unwrap_err()
            .to_string()
            .contains("--attention hybrid")
    );
}

#[test]
fn the_program_reports_errors_with_their_exit_status() {
    let place = Place::new();
    let wrong = |flags: &[&str], status| stderr(&finish(place.train_lm(flags), status));
    assert!(wrong(&["--lr", "7"], 2).contains("--lr"));
    assert!(wrong(&["--text", "absent.txt"], 1).contains("absent.txt"));
    assert!(wrong(&["--resume", "absent"], 1).contains("no run here"));
    assert!(wrong(&["--device", "cuda"], 1).contains("--features cuda"));
    assert!(wrong(&["--residual", "block:99"], 2).contains("99 blocks"));
    assert!(wrong(&["--attention", "hybrid:18446744073709551615"], 2).contains("kda_per_mla"));
    assert!(wrong(&["--prompt", ""], 2).contains("--prompt"));
    assert!(wrong(&["--temperature", "-1"], 2).contains("temperature"));
    assert!(
        !place.path("runs").exists(),
        "a refused run leaves no folder"
    );

    let help = stdout(&finish(place.train_lm(&["--help"]), 0));
    for text in [
        "Examples:",
        "Model:",
        "Training:",
        "Comparison:",
        "Exit status:",
    ] {
        assert!(help.contains(text), "{text}");
    }
}
