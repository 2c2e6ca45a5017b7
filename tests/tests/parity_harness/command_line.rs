//! The command line: options, output, exit status.

use std::path::Path;

use tempfile::TempDir;

use crate::case_folder::{CaseFolder, fixtures, parity};

/// A folder with two cases at different depths.
fn two_cases() -> TempDir {
    let root = TempDir::new().expect("a temporary folder");
    for (fixture, place) in [("attnres/n1", "a"), ("attnres/zero_query", "b/deep")] {
        let target = root.path().join(place);
        std::fs::create_dir_all(&target).expect("a folder for the case");
        for file in ["case.json", "tensors.safetensors"] {
            let source = fixtures().join(fixture).join(file);
            std::fs::copy(source, target.join(file)).expect("the fixture is copied");
        }
    }
    root
}

#[test]
fn each_tensor_gets_one_line_and_the_counts_come_last() {
    let run = parity([two_cases().path()]);
    assert_eq!(run.status, 0, "{run:?}");
    let lines: Vec<Vec<&str>> = run
        .stdout
        .lines()
        .map(|line| line.split("  ").collect())
        .collect();
    let (counts, checks) = lines.split_last().expect("some lines");
    assert_eq!(counts, &["10 passed, 0 failed"]);
    for line in checks {
        let [ok, case, tensor, error, tolerance] = line[..] else {
            panic!("{line:?}")
        };
        assert_eq!(ok, "ok");
        assert!(
            ["attnres/n1", "attnres/zero_query"].contains(&case),
            "{case}"
        );
        assert!(
            tensor.starts_with("out.") || tensor.starts_with("grad."),
            "{tensor}"
        );
        let [error, tolerance] = [error, tolerance].map(|n| n.parse::<f64>().expect("a number"));
        assert!(error <= tolerance, "{line:?}");
    }
    assert_eq!(checks[0][1..3], ["attnres/n1", "out.h"]);
}

#[test]
fn several_folders_may_be_given() {
    let cases = ["attnres/n1", "kda_gate/softplus"].map(|case| fixtures().join(case));
    let run = parity(cases);
    assert_eq!(run.status, 0, "{run:?}");
    assert!(run.stdout.ends_with("9 passed, 0 failed\n"), "{run:?}");
}

#[test]
fn a_pattern_keeps_the_tensors_it_matches() {
    let case = fixtures().join("attnres/n9");
    let run = parity([Path::new("--tensor"), Path::new(r"^grad\.(w|v)$"), &case]);
    assert_eq!(run.status, 0, "{run:?}");
    let tensors: Vec<_> = run
        .stdout
        .lines()
        .filter_map(|l| l.split("  ").nth(2))
        .collect();
    assert_eq!(tensors, ["grad.v", "grad.w"]);
}

#[test]
fn a_failure_outside_the_pattern_does_not_count() {
    let mut case = CaseFolder::copy_of("attnres/n9");
    case.edit("out.h", |h| h[0] += 1.0).write();
    let only = |pattern: &str| parity([Path::new("--tensor"), pattern.as_ref(), case.path()]);
    assert_eq!(only("grad").status, 0);
    assert_eq!(only("out").status, 1);
}

#[test]
fn a_pattern_that_matches_nothing_is_no_success() {
    let case = fixtures().join("attnres/n9");
    let run = parity([Path::new("--tensor"), Path::new("out[.]missing"), &case]);
    run.assert_unreadable(&["nothing checked", "out[.]missing"]);
}

#[test]
fn a_pattern_must_be_a_regular_expression() {
    let case = fixtures().join("attnres/n9");
    let run = parity([Path::new("--tensor"), Path::new("("), &case]);
    run.assert_unreadable(&["--tensor"]);
}

#[test]
fn the_device_can_be_named() {
    let case = fixtures().join("attnres/n1");
    let on = |name: &str| parity([Path::new("--device"), name.as_ref(), &case]);
    assert_eq!(on("flex").status, 0);
    on("gpu").assert_unreadable(&["gpu", "flex"]);
    if !cfg!(feature = "rocm") {
        on("rocm").assert_unreadable(&["--features rocm"]);
    }
}

#[test]
fn at_least_one_folder_is_needed() {
    parity::<&str>([]).assert_unreadable(&["CASE_DIR"]);
}

#[test]
fn an_unreadable_case_does_not_hide_the_others() {
    let root = two_cases();
    std::fs::write(root.path().join("a/case.json"), "{").expect("the case is spoilt");
    let run = parity([root.path()]);
    run.assert_unreadable(&["a/case.json"]);
    assert!(
        run.stdout.contains("ok  attnres/zero_query  out.h"),
        "{run:?}"
    );
    assert!(run.stdout.ends_with("5 passed, 0 failed\n"), "{run:?}");
}

#[test]
fn a_failed_case_and_an_unreadable_one_count_as_unreadable() {
    let mut failing = CaseFolder::copy_of("attnres/n1");
    failing.edit("out.h", |h| h[0] += 1.0).write();
    let missing = failing.file("missing");
    let run = parity([failing.path(), &missing]);
    run.assert_unreadable(&["missing"]);
    assert_eq!(run.failures().len(), 1, "{run:?}");
}

#[test]
fn a_kind_that_is_not_supported_yet_is_one_failure() {
    for kind in ["kimi_linear", "kimi_k25", "tokenizer", "image"] {
        let mut case = CaseFolder::copy_of("attnres/n1");
        case.set("kind", kind).write();
        std::fs::remove_file(case.file("tensors.safetensors")).expect("no tensors are needed");
        let run = parity([case.path()]);
        assert_eq!(run.status, 1, "{run:?}");
        let failures = run.failures();
        assert_eq!(failures.len(), 1, "{run:?}");
        assert!(
            failures[0].starts_with(&format!("FAIL  {kind}/n1  ")),
            "{failures:?}"
        );
        assert!(failures[0].contains("not supported yet"), "{failures:?}");
        assert!(run.stdout.ends_with("0 passed, 1 failed\n"), "{run:?}");
    }
}
