use std::path::Path;
#[cfg(target_os = "linux")]
use std::process::Command;

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
        ("hidden", "65536"),
        ("batch", "1000000"),
        ("shards", "0"),
        ("shards", "100000"),
        ("lr", "0"),
        ("lr", "1.5"),
        ("lr", "1e-300"),
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
fn sizes_that_are_too_large_together_are_refused() {
    let validate = |flags: &[&str]| parse(flags).expect("flags").settings.validate();
    let wide = ["--hidden", "4096", "--heads", "32", "--ffn", "8192"];
    assert!(validate(&[&wide[..], &["--layers", "8"]].concat()).is_ok());
    let message = validate(&[&wide[..], &["--layers", "32"]].concat())
        .expect_err("too many parameters")
        .to_string();
    for wanted in ["--layers 32", "--hidden 4096", "--ffn 8192", "2147483648"] {
        assert!(message.contains(wanted), "{wanted}: {message}");
    }
}

#[test]
fn a_comparison_names_the_list_with_a_wrong_rate() {
    for (flag, value) in [
        ("adamw-lrs", "0.1,7"),
        ("muonclip-lrs", "1e-300"),
        ("lr", "nan"),
    ] {
        let place = Place::new();
        let flag = format!("--{flag}");
        let message = stderr(&finish(place.train_lm(&["--compare", &flag, value]), 2));
        assert!(
            message.contains(&format!("error: {flag}: must be from 1e-12 to 1")),
            "{message}"
        );
    }
}

#[test]
fn flags_of_a_new_comparison_are_refused_without_one() {
    let place = Place::new();
    finish(place.tiny(&["--steps", "1", "--out", "run"]), 0);
    let mut compare = place.tiny(&["--compare", "--steps", "1", "--out", "compare"]);
    compare.args([
        "--adamw-lrs",
        "0.01",
        "--seeds",
        "0",
        "--only",
        "adamw-lr0.01/0",
    ]);
    finish(compare, 0);
    for folder in ["run", "compare"] {
        for flags in [
            &["--seeds", "4"][..],
            &["--adamw-lrs", "0.01"],
            &["--muonclip-lrs", "0.1"],
        ] {
            let line = [&["--resume", folder][..], flags].concat();
            let message = stderr(&finish(place.train_lm(&line), 2));
            assert!(
                message.contains(flags[0]) && message.contains("--compare"),
                "{message}"
            );
        }
    }
    let both = ["--resume", "compare", "--seeds", "4", "--adamw-lrs", "0.1"];
    let message = stderr(&finish(place.train_lm(&both), 2));
    assert!(message.contains("--adamw-lrs, --seeds"), "{message}");

    for flags in [&["--report"][..], &["--report", "--out", "new"]] {
        let message = stderr(&finish(place.tiny(flags), 2));
        assert!(
            message.contains("--report") || message.contains("--resume"),
            "{message}"
        );
    }
    assert!(!place.path("new").exists() && !place.path("runs").exists());
}

#[test]
fn a_rate_that_is_no_number_contradicts_nothing_but_is_refused() {
    let place = Place::new();
    finish(place.tiny(&["--steps", "1", "--out", "run"]), 0);
    let message = stderr(&finish(
        place.train_lm(&["--resume", "run", "--lr", "NaN"]),
        2,
    ));
    assert!(
        message.contains("--lr: must be from 1e-12 to 1, got NaN"),
        "{message}"
    );
}

#[cfg(target_os = "linux")]
#[test]
fn errors_that_cannot_be_written_keep_their_exit_status() {
    let place = Place::new();
    let full = || {
        std::fs::File::options()
            .write(true)
            .open("/dev/full")
            .expect("a device")
    };
    for (flags, status) in [(["--lr", "7"], 2), (["--text", "absent.txt"], 1)] {
        for program in [
            env!("CARGO_BIN_EXE_train-lm"),
            env!("CARGO_BIN_EXE_supervised"),
        ] {
            let mut command = Command::new(program);
            command
                .current_dir(place.path(""))
                .args(flags)
                .stderr(full());
            let ended = command.status().expect("the program starts");
            assert_eq!(ended.code(), Some(status), "{program} {flags:?}");
        }
    }
}

#[test]
fn the_program_reports_errors_with_their_exit_status() {
    let place = Place::new();
    let wrong = |flags: &[&str], status| stderr(&finish(place.train_lm(flags), status));
    assert!(wrong(&["--lr", "7"], 2).contains("--lr"));
    assert!(wrong(&["--text", "absent.txt"], 1).contains("absent.txt"));
    assert!(wrong(&["--resume", "absent"], 1).contains("no run here"));
    assert!(wrong(&["--device", "cuda"], 2).contains("--features cuda"));
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
