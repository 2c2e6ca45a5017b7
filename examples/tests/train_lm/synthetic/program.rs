//! The program from start to end, with tiny models.

use std::fs;

use examples::synthetic::{Arm, Plan, Report, RunState, TaskKind};

use super::{synthetic, tiny};
use crate::tiny::{Place, finish, stderr, stdout};

#[test]
fn an_experiment_leaves_tables_charts_and_no_checkpoints() {
    let place = Place::new();
    let command = tiny(&place, "--steps 10 --seeds 1,0,1 --out all");
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
    let command = tiny(
        &place,
        "--tasks mqar,stack --arms softmax,kda --seeds 3 --steps 7 --only mqar/softmax/3 --out few",
    );
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

    let wrong = finish(synthetic(&place, "--resume few --only mqar/kda"), 2);
    let message = stderr(&wrong);
    for wanted in ["--only", "TASK/ARM/SEED", "mqar, stack", "kda, softmax"] {
        assert!(message.contains(wanted), "{wanted}: {message}");
    }
    finish(synthetic(&place, "--resume few --only stack/kda/3"), 0);
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
    let command = tiny(
        &place,
        "--tasks mqar --arms softmax --seeds 0 --steps 20 --out run",
    );
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
