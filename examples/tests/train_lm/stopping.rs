//! Stopping and continuing: the numbers are those of a run that was never stopped.

use std::fs;
#[cfg(unix)]
use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use examples::train::{RunFolder, newest_checkpoint};

use crate::tiny::{FLAGS, Place, finish, numbers, stderr, stdout};

/// Starts a run of 300 steps and returns once it has taken ten.
fn start(place: &Place, flags: &[&str]) -> Child {
    let mut command = place.tiny(flags);
    command
        .args(["--out", "stopped"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let child = command.spawn().expect("the program starts");
    let metrics = place.path("stopped/metrics.jsonl");
    let deadline = Instant::now() + Duration::from_secs(120);
    while fs::read_to_string(&metrics).map_or(0, |text| text.lines().count()) < 10 {
        assert!(Instant::now() < deadline, "the run takes no steps");
        std::thread::sleep(Duration::from_millis(5));
    }
    child
}

#[cfg(unix)]
fn interrupt(child: &Child) {
    let sent = Command::new("kill")
        .args(["-INT", &child.id().to_string()])
        .status();
    assert!(sent.expect("kill is a standard program").success());
}

/// Resumes the stopped run and compares it with one of the same flags that was never stopped.
fn assert_continues(place: &Place, flags: &[&str]) {
    let mut whole = place.tiny(flags);
    whole.args(["--out", "whole"]);
    finish(whole, 0);
    let done = numbers(&place.path("stopped")).len();
    assert!((10..300).contains(&done), "stopped after {done} steps");
    finish(
        place.train_lm(&["--resume", "stopped", "--sample-len", "0"]),
        0,
    );
    assert_eq!(
        numbers(&place.path("whole")),
        numbers(&place.path("stopped"))
    );
}

#[cfg(unix)]
#[test]
fn an_interrupt_saves_and_resuming_continues_the_same_curve() {
    let place = Place::new();
    let flags = [
        "--steps",
        "300",
        "--eval-every",
        "50",
        "--save-every",
        "1000",
    ];
    let child = start(&place, &flags);
    interrupt(&child);
    let output = child.wait_with_output().expect("the program ends");
    assert_eq!(output.status.code(), Some(130), "{}", stderr(&output));
    assert!(
        stdout(&output).contains("--resume stopped"),
        "{}",
        stdout(&output)
    );
    assert_continues(&place, &flags);
}

#[test]
fn a_killed_run_continues_the_same_curve_from_its_last_checkpoint() {
    for optimizer in ["muonclip", "adamw"] {
        let place = Place::new();
        let flags = [
            "--steps",
            "300",
            "--eval-every",
            "50",
            "--save-every",
            "4",
            "--optimizer",
            optimizer,
        ];
        let mut child = start(&place, &flags);
        child.kill().expect("the program is running");
        child.wait().expect("the program ends");
        // A line that was being written is not counted; `numbers` wants whole lines.
        let metrics = place.path("stopped/metrics.jsonl");
        let text = fs::read_to_string(&metrics).expect("metrics.jsonl");
        let whole = text.rfind('\n').map_or(0, |end| end + 1);
        fs::write(&metrics, &text[..whole]).expect("whole lines");
        assert_continues(&place, &flags);
    }
}

#[test]
fn an_unfinished_save_is_ignored_and_removed() {
    let place = Place::new();
    finish(place.tiny(&["--steps", "4", "--out", "run"]), 0);
    let folder = RunFolder::open(&place.path("run")).expect("a run");
    let good = newest_checkpoint(&folder)
        .expect("a folder")
        .expect("a checkpoint");
    let torn = folder.checkpoints().join("step-00000099.unfinished");
    fs::create_dir(&torn).expect("a folder");
    fs::write(torn.join("model.bpk"), "torn").expect("a file");
    assert_eq!(newest_checkpoint(&folder).expect("a folder"), Some(good));
    finish(place.train_lm(&["--resume", "run", "--steps", "6"]), 0);
    assert!(!torn.exists());
    assert_eq!(numbers(&place.path("run")).len(), 6);
}

#[test]
fn a_finished_run_says_so_and_can_be_made_longer() {
    let place = Place::new();
    finish(place.tiny(&["--steps", "4", "--out", "run"]), 0);
    let before = numbers(&place.path("run"));
    let again = finish(place.train_lm(&["--resume", "run", "--prompt", "abc"]), 0);
    assert!(
        stdout(&again).contains("finished    4 steps"),
        "{}",
        stdout(&again)
    );
    assert!(stdout(&again).contains("sample\nabc"));
    assert_eq!(numbers(&place.path("run")), before);

    finish(place.train_lm(&["--resume", "run", "--steps", "6"]), 0);
    let longer = numbers(&place.path("run"));
    assert_eq!((longer.len(), &longer[..4]), (6, &before[..]));
    let short = finish(place.train_lm(&["--resume", "run", "--steps", "5"]), 2);
    assert!(
        stderr(&short).contains("6 steps are taken already"),
        "{}",
        stderr(&short)
    );
}

#[test]
fn resuming_refuses_another_text_other_flags_and_damaged_files() {
    let place = Place::new();
    finish(place.tiny(&["--steps", "3", "--out", "run"]), 0);
    let resume = |extra: &[&str], status| {
        let mut command = place.train_lm(&["--resume", "run"]);
        command.args(extra);
        stderr(&finish(command, status))
    };
    assert!(resume(&["--lr", "0.5"], 2).contains("contradicts"));

    fs::copy(place.text(), place.path("moved.rs")).expect("a copy");
    resume(&["--text", "moved.rs"], 0);
    fs::write(place.path("other.rs"), "other text ".repeat(300)).expect("a text");
    assert!(resume(&["--text", "other.rs"], 1).contains("sha256"));

    let folder = RunFolder::open(&place.path("run")).expect("a run");
    let checkpoint = newest_checkpoint(&folder)
        .expect("a folder")
        .expect("a checkpoint");
    for file in ["model.bpk", "optimizer.bpk", "position.json"] {
        let path = checkpoint.join(file);
        let whole = fs::read(&path).expect("a file");
        fs::write(&path, &whole[..whole.len() / 2]).expect("a damaged file");
        assert!(resume(&["--steps", "5"], 1).contains(file), "{file}");
        fs::write(&path, whole).expect("the file as it was");
    }
    fs::write(folder.config_file(), "{}").expect("a damaged file");
    assert!(resume(&[], 1).contains("config.json"));
}

#[cfg(unix)]
#[test]
fn a_second_interrupt_stops_at_once_and_spoils_nothing() {
    let place = Place::new();
    let flags = ["--steps", "300", "--eval-every", "11", "--save-every", "4"];
    let child = start(&place, &flags);
    for _ in 0..2 {
        // The second may come after the program has saved and gone, which is as good.
        let sent = Command::new("kill")
            .args(["-INT", &child.id().to_string()])
            .output();
        sent.expect("kill is a standard program");
    }
    let output = child.wait_with_output().expect("the program ends");
    assert_eq!(output.status.code(), Some(130), "{}", stderr(&output));
    finish(
        place.train_lm(&["--resume", "stopped", "--sample-len", "0"]),
        0,
    );
    assert_eq!(numbers(&place.path("stopped")).len(), 300);
}

#[cfg(unix)]
#[test]
fn an_interrupt_during_the_sample_ends_the_sample() {
    let place = Place::new();
    // A sample without an end, instead of the 8 bytes of the tiny flags.
    let mut command = place.train_lm(&FLAGS.map(|flag| match flag {
        "8" => "18446744073709551615",
        flag => flag,
    }));
    command
        .args(["--steps", "2", "--out", "run", "--text"])
        .arg(place.text())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut child = command.spawn().expect("the program starts");
    let mut lines = BufReader::new(child.stdout.take().expect("piped"));
    let mut printed = String::new();
    while !printed.contains("results ") {
        assert_ne!(lines.read_line(&mut printed).expect("text"), 0, "{printed}");
    }
    interrupt(&child);
    let mut rest = Vec::new();
    lines.read_to_end(&mut rest).expect("the rest");
    let rest = String::from_utf8_lossy(&rest);
    assert!(
        rest.contains("sample\nfn main") && rest.contains("stopped the sample after"),
        "{rest}"
    );
    let output = child.wait_with_output().expect("the program ends");
    assert_eq!(output.status.code(), Some(130), "{}", stderr(&output));
    finish(place.train_lm(&["--resume", "run", "--sample-len", "0"]), 0);
}
