//! What the program refuses, and how it says so.

use std::fs;

use clap::error::ErrorKind;
use examples::train::TrainError;

use super::{parse, synthetic, tiny};
use crate::tiny::{Place, finish, stderr};

#[test]
fn wrong_command_lines_are_usage_errors() {
    for flags in [
        "--tasks sorting",
        "--tasks=",
        "--arms rnn",
        "--seeds one",
        "--device tpu",
        "--steps -1",
        "--resume a --out b",
        "--resume a --steps 5",
        "--resume a --pairs 5",
        "--resume a --heads 5",
        "--resume a --seeds 5",
        "--report --resume a --only mqar/kda/0",
        "--report",
        "stray",
    ] {
        assert!(parse(flags).is_err(), "{flags}");
    }
    assert!(parse("--resume a --device wgpu --only mqar/kda/0").is_ok());
    let help = parse("--help").unwrap_err();
    assert_eq!(help.kind(), ErrorKind::DisplayHelp);
    for text in [
        "Examples:",
        "Comparison:",
        "Tasks:",
        "Model:",
        "Training:",
        "Runs:",
        "Exit status:",
    ] {
        assert!(help.to_string().contains(text), "{text}");
    }
}

#[test]
fn settings_out_of_range_name_their_flag() {
    for flags in [
        "--symbols 0",
        "--reversed 0",
        "--pairs 33",
        "--stacks 5000",
        "--operations 1",
        "--layers 0",
        "--hidden 5000",
        "--heads 1000",
        "--head-dim 0",
        "--ffn 0",
        "--steps 0",
        "--batch 0",
        "--batch 4000 --operations 4096",
        "--eval-every 0",
        "--eval-sequences 0",
        "--lr 0",
        "--lr nan",
        "--weight-decay 2",
    ] {
        let settings = parse(flags).expect("values of the right type").settings;
        let error = settings.validate().expect_err(flags);
        assert!(matches!(error, TrainError::Setting { .. }));
        let flag = flags.split(' ').next().expect("a flag");
        assert!(
            error.to_string().starts_with(&format!("{flag}: ")),
            "{flags}: {error}"
        );
    }
}

/// What the program says when it ends with `status`.
fn said(place: &Place, flags: &str, status: i32) -> String {
    stderr(&finish(synthetic(place, flags), status))
}

#[test]
fn errors_have_their_exit_status_and_leave_nothing() {
    let place = Place::new();
    assert!(said(&place, "--lr 7", 2).contains("--lr"));
    assert!(said(&place, "--device cuda", 2).contains("--features cuda"));
    assert!(said(&place, "--resume absent", 1).contains("absent/synthetic.json"));
    let message = said(
        &place,
        "--only mqar/kda --arms kda,softmax --tasks stack,mqar",
        2,
    );
    for wanted in [
        "--only",
        "TASK/ARM/SEED",
        "mqar, stack",
        "kda, softmax",
        "0, 1, 2",
    ] {
        assert!(message.contains(wanted), "{wanted}: {message}");
    }
    assert!(said(&place, "--report --out new", 2).contains("--report"));
    assert!(!place.path("runs").exists() && !place.path("new").exists());

    fs::create_dir(place.path("mine")).expect("a folder");
    fs::write(place.path("mine/notes.txt"), "keep").expect("a file");
    assert!(said(&place, "--out mine", 2).contains("is not empty"));
    let notes = fs::read_to_string(place.path("mine/notes.txt"));
    assert_eq!(notes.expect("a file"), "keep");
}

#[test]
fn damaged_and_foreign_files_are_named() {
    let place = Place::new();
    let flags = "--tasks mqar --arms kda --seeds 0 --steps 6 --out one";
    finish(tiny(&place, flags), 0);
    assert!(said(&place, "--out one", 2).contains("--resume one"));
    let beyond = r#"{"step":9,"seconds":1,"diverged":false,"curve":[],"checkpoint":null}"#;
    let unsaved = r#"{"step":3,"seconds":1,"diverged":false,"curve":[],"checkpoint":null}"#;
    let impossible = r#"{"step":6,"seconds":1,"diverged":false,"checkpoint":null,
                         "curve":[{"step":6,"loss":1,"accuracy":1.5}]}"#;
    let disorder = r#"{"step":6,"seconds":1,"diverged":false,"checkpoint":null,
                       "curve":[{"step":6,"loss":1,"accuracy":1},{"step":6,"loss":1,"accuracy":1}]}"#;
    for (file, damage, wanted) in [
        ("mqar/kda/0/progress.json", "{", "progress.json"),
        ("mqar/kda/0/progress.json", beyond, "9 steps taken"),
        ("mqar/kda/0/progress.json", unsaved, "no checkpoint"),
        ("mqar/kda/0/progress.json", impossible, "accuracy at step 6"),
        ("mqar/kda/0/progress.json", disorder, "not in order"),
        ("mqar/kda/0/config.json", "{}", "config.json"),
        ("synthetic.json", "", "synthetic.json"),
    ] {
        let path = place.path("one").join(file);
        let whole = fs::read(&path).expect("a file");
        fs::write(&path, damage).expect("a damaged file");
        for flags in ["--resume one", "--resume one --report"] {
            let message = said(&place, flags, 1);
            assert!(message.contains(wanted), "{wanted}: {message}");
        }
        fs::write(&path, whole).expect("the file as it was");
    }

    let plan = place.path("one/synthetic.json");
    let text = fs::read_to_string(&plan).expect("a plan");
    for (found, changed, wanted) in [
        ("\"format\": 1", "\"format\": 9", "format is 9"),
        (
            "\"pairs\": 2",
            "\"pairs\": 9",
            "--pairs: must be from 1 to 4",
        ),
        ("\"hidden\": 8", "\"hidden\": 16", "not the run mqar/kda/0"),
    ] {
        assert!(text.contains(found), "{found}");
        fs::write(&plan, text.replace(found, changed)).expect("written");
        let message = said(&place, "--resume one", 1);
        assert!(message.contains(wanted), "{wanted}: {message}");
    }
}
