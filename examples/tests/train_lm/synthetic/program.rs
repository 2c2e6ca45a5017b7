//! The program from start to end, with tiny models.

use std::fs;

use clap::error::ErrorKind;
use examples::synthetic::{Arm, Plan, Report, RunState, TaskKind};
use examples::train::TrainError;

use super::{parse, synthetic, tiny};
use crate::tiny::{Place, finish, stderr, stdout};

#[test]
fn an_experiment_leaves_tables_charts_and_no_checkpoints() {
    let place = Place::new();
    let command = tiny(
        &place,
        &["--steps", "10", "--seeds", "1,0,1", "--out", "all"],
    );
    let output = finish(command, 0);
    let text = stdout(&output);
    for wanted in [
        "experiment  24 runs of 10 steps on flex",
        "run         palindrome/kda/0",
        "## palindrome",
        "## mqar",
        "## stack",
        "| kda | ",
        "| scalar-gate | ",
        "| no-delta | ",
        "| softmax | ",
        "| 2 of 2 | ",
        "A decay per channel is ",
    ] {
        assert!(text.contains(wanted), "{wanted}: {text}");
    }
    assert!(!text.contains("Missing"), "{text}");
    assert!(stderr(&output).contains("step 10/10"), "plain lines");
    for task in ["palindrome", "mqar", "stack"] {
        let chart = fs::read_to_string(place.path(&format!("all/{task}.svg"))).expect("a chart");
        for wanted in ["<svg", "accuracy (%)", "kda (", "softmax ("] {
            assert!(chart.contains(wanted), "{task}: {wanted}");
        }
        assert!(!place.path(&format!("all/{task}/kda/1/checkpoint")).exists());
    }

    let folder = place.path("all");
    let plan = Plan::read(&folder).expect("a plan");
    let report = Report::read(&plan, &folder).expect("a report");
    for task in TaskKind::ALL {
        for arm in Arm::ALL {
            let summary = report.summary(task, arm);
            let accuracy = summary.accuracy.expect("finished runs");
            assert_eq!((summary.finished, summary.diverged), (2, 0));
            assert!(accuracy.min <= accuracy.mean && accuracy.mean <= accuracy.max);
        }
    }
    let again = finish(synthetic(&place, "--resume all"), 0);
    assert!(
        !stdout(&again).contains("run  "),
        "runs that are over are left alone"
    );
}

#[test]
fn a_model_learns_what_a_tiny_task_asks_for() {
    let place = Place::new();
    let command = synthetic(
        &place,
        "--tasks palindrome --arms kda --seeds 0 --symbols 4 --pairs 2 --reversed 2 --layers 1 --hidden 16 --head-dim 8 \
         --ffn 16 --steps 150 --lr 0.02 --warmup 10 --eval-sequences 64 --out learned",
    );
    finish(command, 0);
    let folder = place.path("learned");
    let plan = Plan::read(&folder).expect("a plan");
    let report = Report::read(&plan, &folder).expect("a report");
    let summary = report.summary(TaskKind::Palindrome, Arm::Kda);
    let accuracy = summary.accuracy.expect("a finished run");
    assert!(accuracy.mean > 0.9, "{summary:?}");
}

#[test]
fn one_run_can_be_taken_and_the_report_names_the_rest() {
    let place = Place::new();
    let flags = [
        "--tasks",
        "mqar,stack",
        "--arms",
        "softmax,kda",
        "--seeds",
        "3",
    ];
    let mut command = tiny(&place, &flags);
    command.args(["--steps", "7", "--only", "mqar/softmax/3", "--out", "few"]);
    let text = stdout(&finish(command, 0));
    let missing = "Missing: mqar/kda/3, stack/kda/3, stack/softmax/3.";
    assert!(text.contains(missing), "{text}");
    assert!(
        text.contains("| kda | - | 0 of 1 | - | - | - | - |"),
        "{text}"
    );
    assert!(place.path("few/mqar.svg").exists() && !place.path("few/stack.svg").exists());

    let report = place.path("few/report.md");
    let before = fs::read_to_string(&report).expect("a report");
    fs::remove_file(&report).expect("removed");
    let rebuilt = finish(synthetic(&place, "--resume few --report"), 0);
    assert!(stdout(&rebuilt).contains(missing));
    assert_eq!(fs::read_to_string(&report).expect("a report"), before);

    let wrong = finish(
        synthetic(&place, "--resume few --only mqar/kda"),
        2,
    );
    let message = stderr(&wrong);
    for wanted in ["--only", "TASK/ARM/SEED", "mqar, stack", "kda, softmax"] {
        assert!(message.contains(wanted), "{wanted}: {message}");
    }
    finish(
        synthetic(&place, "--resume few --only stack/kda/3"),
        0,
    );
    let folder = place.path("few");
    let plan = Plan::read(&folder).expect("a plan");
    let missing = Report::read(&plan, &folder).expect("a report").missing();
    let names: Vec<String> = missing.iter().map(|(run, _)| run.to_string()).collect();
    assert_eq!(names, ["mqar/kda/3", "stack/softmax/3"]);
    assert!(missing.iter().all(|(_, state)| *state == RunState::Missing));
}

#[test]
fn a_run_that_diverges_is_reported_and_not_taken_again() {
    let place = Place::new();
    let mut command = tiny(
        &place,
        &["--tasks", "mqar", "--arms", "softmax", "--seeds", "0"],
    );
    command.args(["--steps", "20", "--out", "run", "--only", "mqar/softmax/0"]);
    finish(command, 0);
    let progress = place.path("run/mqar/softmax/0/progress.json");
    let text = fs::read_to_string(&progress).expect("progress.json");
    let diverged = text
        .replace("\"diverged\": false", "\"diverged\": true")
        .replacen("\"step\": 20", "\"step\": 17", 1);
    let mut value: serde_json::Value = serde_json::from_str(&diverged).expect("JSON");
    value["curve"].as_array_mut().expect("a list").truncate(3);
    fs::write(&progress, value.to_string()).expect("written");
    let text = stdout(&finish(synthetic(&place, "--resume run"), 0));
    assert!(text.contains("| 0 of 1, 1 diverged | - |"), "{text}");
    assert!(
        !text.contains("Missing") && !text.contains("run  "),
        "{text}"
    );
}

#[test]
fn wrong_command_lines_are_usage_errors() {
    for flags in [
        &["--tasks", "sorting"][..],
        &["--arms", "rnn"],
        &["--seeds", "one"],
        &["--device", "tpu"],
        &["--steps", "-1"],
        &["--resume", "a", "--out", "b"],
        &["--resume", "a", "--steps", "5"],
        &["--resume", "a", "--pairs", "5"],
        &["--resume", "a", "--heads", "5"],
        &["--resume", "a", "--seeds", "5"],
        &["--report", "--resume", "a", "--only", "mqar/kda/0"],
        &["--report"],
        &["stray"],
    ] {
        assert!(parse(flags).is_err(), "{flags:?}");
    }
    assert!(parse("--resume a --device wgpu --only mqar/kda/0").is_ok());
    let help = parse("--help").unwrap_err();
    assert_eq!(help.kind(), ErrorKind::DisplayHelp);
    for text in [
        "Examples:",
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
    for (flag, value) in [
        ("symbols", "0"),
        ("reversed", "0"),
        ("pairs", "33"),
        ("stacks", "5000"),
        ("operations", "1"),
        ("layers", "0"),
        ("hidden", "5000"),
        ("heads", "1000"),
        ("head-dim", "0"),
        ("ffn", "0"),
        ("steps", "0"),
        ("batch", "4000"),
        ("eval-every", "0"),
        ("eval-sequences", "0"),
        ("lr", "0"),
        ("lr", "nan"),
        ("weight-decay", "2"),
    ] {
        // A batch of 4000 is too large for long sequences only.
        let long = if flag == "batch" { "4096" } else { "32" };
        let flags = [&format!("--{flag}"), value, "--operations", long];
        let flags = if flag == "operations" {
            &flags[..2]
        } else {
            &flags[..]
        };
        let settings = parse(flags).expect("values of the right type").settings;
        let error = settings.validate().expect_err(flag);
        assert!(
            matches!(&error, TrainError::Setting { flag: found, .. } if *found == flag),
            "{flag}: {error}"
        );
    }
    let place = Place::new();
    let message = stderr(&finish(synthetic(&place, "--tasks= --seeds 0"), 2));
    assert!(message.contains("--tasks"), "{message}");
}

#[test]
fn the_program_reports_errors_with_their_exit_status() {
    let place = Place::new();
    let wrong = |flags: &[&str], status| stderr(&finish(synthetic(&place, flags), status));
    assert!(wrong("--lr 7", 2).contains("--lr"));
    assert!(wrong("--device cuda", 2).contains("--features cuda"));
    assert!(wrong("--resume absent", 1).contains("absent/synthetic.json"));
    assert!(
        !place.path("runs").exists(),
        "a refused experiment leaves no folder"
    );

    fs::create_dir(place.path("mine")).expect("a folder");
    fs::write(place.path("mine/notes.txt"), "keep").expect("a file");
    assert!(wrong("--out mine", 2).contains("is not empty"));

    let flags = ["--steps", "6", "--only", "mqar/kda/0", "--out", "one"];
    finish(tiny(&place, &flags), 0);
    assert!(wrong("--out one", 2).contains("--resume one"));
    for (file, damage, wanted) in [
        ("progress.json", "{", "progress.json"),
        (
            "progress.json",
            "{\"step\":9,\"seconds\":1,\"diverged\":false,\"curve\":[],\"checkpoint\":null}",
            "9 steps taken",
        ),
        ("config.json", "{}", "config.json"),
    ] {
        let path = place.path("one/mqar/kda/0").join(file);
        let whole = fs::read(&path).expect("a file");
        fs::write(&path, damage).expect("a damaged file");
        let message = wrong("--resume one", 1);
        assert!(message.contains(wanted), "{wanted}: {message}");
        fs::write(&path, whole).expect("the file as it was");
    }
    let plan = place.path("one/synthetic.json");
    let text = fs::read_to_string(&plan).expect("a plan");
    fs::write(&plan, text.replace("\"format\": 1", "\"format\": 9")).expect("written");
    assert!(wrong("--resume one", 1).contains("format is 9"));
    fs::write(&plan, text.replace("\"hidden\": 8", "\"hidden\": 16")).expect("written");
    assert!(wrong("--resume one", 1).contains("not the run mqar/kda/0"));
}
