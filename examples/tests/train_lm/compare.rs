use std::fs;

use crate::tiny::{Place, finish, numbers, stderr, stdout};

const FLAGS: [&str; 9] = [
    "--compare",
    "--steps",
    "5",
    "--adamw-lrs",
    "0.003,0.01",
    "--seeds",
    "0,1",
    "--eval-every",
    "5",
];

#[test]
fn compares_learning_rates_and_seeds_in_one_table_and_one_chart() {
    let place = Place::new();
    let mut command = place.tiny(&FLAGS);
    command.args(["--out", "compare"]);
    let text = stdout(&finish(command, 0));
    for wanted in [
        "| optimizer | learning rate | seed 0 | seed 1 | mean |",
        "| muonclip | 0.02 |",
        "| adamw | 0.003 |",
        "| adamw | 0.01 |",
        "Best muonclip: lr 0.02,",
        "(the only one tried)",
        "(best of 2, at the end of the list)",
        "Gap (AdamW minus MuonClip):",
    ] {
        assert!(text.contains(wanted), "{wanted}: {text}");
    }
    let chart = fs::read_to_string(place.path("compare/loss.svg")).expect("a chart");
    assert!(chart.contains("muonclip lr 0.02, validation") && chart.contains("adamw lr 0.0"));

    let report = place.path("compare/report.md");
    let before = fs::read_to_string(&report).expect("a report");
    fs::remove_file(&report).expect("removed");
    finish(place.train_lm(&["--resume", "compare", "--report"]), 0);
    assert_eq!(fs::read_to_string(&report).expect("a report"), before);
}

#[test]
fn one_run_can_be_taken_and_the_rest_later() {
    let place = Place::new();
    let mut command = place.tiny(&FLAGS);
    command.args(["--out", "compare", "--only", "adamw-lr0.01/1"]);
    let text = stdout(&finish(command, 0));
    assert!(
        text.contains("Missing: muonclip-lr0.02/0, adamw-lr0.003/0, adamw-lr0.01/0"),
        "{text}"
    );
    let first = numbers(&place.path("compare/adamw-lr0.01/1"));
    assert_eq!(first.len(), 5);
    let wrong = finish(
        place.train_lm(&["--resume", "compare", "--only", "adamw/1"]),
        2,
    );
    assert!(
        stderr(&wrong).contains("muonclip-lr0.02/0"),
        "{}",
        stderr(&wrong)
    );

    let text = stdout(&finish(place.train_lm(&["--resume", "compare"]), 0));
    assert!(!text.contains("Missing"), "{text}");
    assert_eq!(numbers(&place.path("compare/adamw-lr0.01/1")), first);
    let changed = finish(place.train_lm(&["--resume", "compare", "--steps", "9"]), 2);
    assert!(stderr(&changed).contains("contradicts"));
}
