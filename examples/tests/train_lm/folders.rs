//! Who may use a folder: leftovers of a killed program are in nobody's way, a program at work is.

use std::fs;

use examples::train::{LockedFolder, RunFolder, TrainError};

use crate::tiny::{Place, finish, numbers, stderr};

const LEFTOVER: &str = ".tmpA1b2C3";

const COMPARE: [&str; 9] = [
    "--compare",
    "--steps",
    "2",
    "--adamw-lrs",
    "0.01",
    "--seeds",
    "0",
    "--out",
    "compare",
];

fn leave(place: &Place, folder: &str) {
    fs::create_dir_all(place.path(folder)).expect("a folder");
    fs::write(place.path(folder).join(LEFTOVER), "{\"format\":").expect("a file");
}

fn has_leftover(place: &Place, folder: &str) -> bool {
    place.path(folder).join(LEFTOVER).exists()
}

#[test]
fn a_folder_with_nothing_but_leftovers_takes_a_new_run() {
    for flags in [&[][..], &["--overwrite"]] {
        let place = Place::new();
        leave(&place, "run");
        fs::write(place.path("run/.lock"), "").expect("a file");
        let mut command = place.tiny(&["--steps", "2", "--out", "run"]);
        command.args(flags);
        finish(command, 0);
        assert!(!has_leftover(&place, "run"));
        assert_eq!(numbers(&place.path("run")).len(), 2);
    }
}

#[test]
fn leftovers_beside_other_files_stay() {
    let place = Place::new();
    leave(&place, "mine");
    fs::write(place.path("mine/notes.txt"), "keep").expect("a file");
    finish(place.tiny(&["--out", "mine", "--overwrite"]), 2);
    assert!(has_leftover(&place, "mine"));
    assert!(!place.path("mine/.lock").exists());
}

#[test]
fn leftovers_go_when_a_run_is_continued() {
    let place = Place::new();
    finish(place.tiny(&["--steps", "2", "--out", "run"]), 0);
    leave(&place, "run");
    finish(place.train_lm(&["--resume", "run", "--steps", "3"]), 0);
    assert!(!has_leftover(&place, "run"));
    assert_eq!(numbers(&place.path("run")).len(), 3);
}

#[test]
fn a_comparison_takes_folders_with_leftovers() {
    let place = Place::new();
    leave(&place, "compare");
    let mut command = place.tiny(&COMPARE);
    command.args(["--only", "adamw-lr0.01/0"]);
    finish(command, 0);
    assert!(!has_leftover(&place, "compare"));

    leave(&place, "compare/muonclip-lr0.02/0");
    finish(place.train_lm(&["--resume", "compare"]), 0);
    assert!(!has_leftover(&place, "compare/muonclip-lr0.02/0"));
    assert_eq!(numbers(&place.path("compare/muonclip-lr0.02/0")).len(), 2);
}

#[test]
fn a_run_belongs_to_one_process_at_a_time() {
    let place = Place::new();
    finish(place.tiny(&["--steps", "2", "--out", "run"]), 0);
    let before = numbers(&place.path("run"));
    let open = || RunFolder::open(&place.path("run")).expect("a run");
    let held = LockedFolder::lock(open()).expect("nobody holds it");
    assert!(matches!(
        LockedFolder::lock(open()),
        Err(TrainError::FolderBusy { path }) if path == place.path("run")
    ));

    let resume = ["--resume", "run", "--steps", "4"];
    for command in [
        place.train_lm(&resume),
        place.tiny(&["--steps", "4", "--out", "run", "--overwrite"]),
    ] {
        let message = stderr(&finish(command, 1));
        assert!(
            message.contains("error: run: another process is at work"),
            "{message}"
        );
    }
    assert_eq!(numbers(&place.path("run")), before);

    drop(held);
    finish(place.train_lm(&resume), 0);
    assert_eq!(numbers(&place.path("run")).len(), 4);
}

#[test]
fn a_comparison_names_the_run_that_another_process_holds() {
    let place = Place::new();
    finish(place.tiny(&COMPARE), 0);
    let run = place.path("compare/adamw-lr0.01/0");
    let held = LockedFolder::lock(RunFolder::open(&run).expect("a run")).expect("nobody holds it");
    // Finished runs are only read.
    finish(place.train_lm(&["--resume", "compare"]), 0);
    fs::write(held.metrics_file(), "").expect("an unfinished run");
    let message = stderr(&finish(place.train_lm(&["--resume", "compare"]), 1));
    assert!(
        message.contains("adamw-lr0.01/0: another process is at work"),
        "{message}"
    );
}
