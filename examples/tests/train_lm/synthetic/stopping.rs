//! Stopping and continuing: the numbers are those of a run that was never stopped.

use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use super::{synthetic, tiny};
use crate::tiny::{Place, finish, stderr, stdout};

const FLAGS: &str = "--tasks palindrome --arms kda,no-delta --seeds 0 --steps 400";
const RUNS: [&str; 2] = ["palindrome/kda/0", "palindrome/no-delta/0"];

/// What a run measured, without its time.
fn curve(folder: &Path, run: &str) -> serde_json::Value {
    let path = folder.join(run).join("progress.json");
    let text = fs::read_to_string(path).expect("progress.json");
    let progress: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    progress["curve"].clone()
}

/// Starts the experiment and returns once its first run has been evaluated a few times.
fn start(place: &Place) -> Child {
    let mut command = tiny(place, FLAGS);
    command
        .args(["--out", "stopped"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let child = command.spawn().expect("the program starts");
    let progress = place.path("stopped").join(RUNS[0]).join("progress.json");
    let deadline = Instant::now() + Duration::from_secs(120);
    while !fs::read_to_string(&progress).is_ok_and(|text| text.contains("\"step\": 15")) {
        assert!(Instant::now() < deadline, "the run takes no steps");
        std::thread::sleep(Duration::from_millis(2));
    }
    child
}

/// Resumes the stopped experiment and compares it with one that was never stopped.
fn assert_continues(place: &Place) {
    let stopped = place.path("stopped");
    let begun = curve(&stopped, RUNS[0]);
    let taken = begun.as_array().expect("a list").len();
    assert!(
        (3..80).contains(&taken),
        "stopped after {taken} evaluations"
    );
    let mut whole = tiny(place, FLAGS);
    whole.args(["--out", "whole"]);
    finish(whole, 0);
    finish(synthetic(place, "--resume stopped"), 0);
    for run in RUNS {
        let wanted = curve(&place.path("whole"), run);
        assert_eq!(wanted.as_array().expect("a list").len(), 80);
        assert_eq!(curve(&stopped, run), wanted, "{run}");
    }
}

#[cfg(unix)]
#[test]
fn an_interrupt_saves_and_resuming_continues_the_same_curve() {
    let place = Place::new();
    let child = start(&place);
    let sent = Command::new("kill")
        .args(["-INT", &child.id().to_string()])
        .status();
    assert!(sent.expect("kill is a standard program").success());
    let output = child.wait_with_output().expect("the program ends");
    assert_eq!(output.status.code(), Some(130), "{}", stderr(&output));
    let text = stdout(&output);
    assert!(
        text.contains("--bin synthetic -- --resume stopped"),
        "{text}"
    );
    assert!(text.contains("palindrome/kda/0 (at step "), "{text}");
    assert_continues(&place);
}

#[test]
fn a_killed_experiment_continues_from_its_last_evaluation() {
    let place = Place::new();
    let mut child = start(&place);
    child.kill().expect("the program is running");
    child.wait().expect("the program ends");
    assert_continues(&place);
}

#[test]
fn damaged_and_foreign_checkpoints_are_refused() {
    let place = Place::new();
    let mut child = start(&place);
    child.kill().expect("the program is running");
    child.wait().expect("the program ends");
    let run = place.path("stopped").join(RUNS[0]);
    let progress = fs::read_to_string(run.join("progress.json")).expect("progress.json");
    let progress: serde_json::Value = serde_json::from_str(&progress).expect("JSON");
    for part in ["model", "optimizer"] {
        let file = format!("{part}-{}.bpk", progress["step"]);
        let path = run.join("checkpoint").join(&file);
        let whole = fs::read(&path).expect("a file");
        for damaged in [&whole[..whole.len() / 2], &[]] {
            fs::write(&path, damaged).expect("a damaged file");
            let message = stderr(&finish(synthetic(&place, "--resume stopped"), 1));
            assert!(
                message.contains(&file) && message.contains("sha256"),
                "{message}"
            );
        }
        fs::remove_file(&path).expect("removed");
        let message = stderr(&finish(synthetic(&place, "--resume stopped"), 1));
        assert!(message.contains(&file), "{message}");
        fs::write(&path, whole).expect("the file as it was");
    }
}
