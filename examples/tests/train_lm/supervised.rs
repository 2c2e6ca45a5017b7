//! Burn's own training loop takes either optimizer.

use std::process::Command;

use crate::tiny::{Place, finish, stderr, stdout};

#[test]
fn burns_training_loop_runs_with_muonclip_and_with_adamw() {
    let place = Place::new();
    for optimizer in ["muonclip", "adamw"] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_supervised"));
        command
            .args([
                "--layers", "2", "--hidden", "16", "--heads", "2", "--ffn", "24",
            ])
            .args([
                "--attention",
                "hybrid:1",
                "--windows",
                "16",
                "--batch",
                "4",
                "--seq-len",
                "16",
            ])
            .args(["--epochs", "2", "--optimizer", optimizer])
            .arg("--text")
            .arg(place.text())
            .arg("--out")
            .arg(place.path(optimizer));
        let text = stdout(&finish(command, 0));
        assert!(text.contains("Loss"), "{text}");
        let checkpoints = place.path(optimizer).join("checkpoint");
        let names: Vec<_> = std::fs::read_dir(checkpoints)
            .expect("Burn's checkpoints")
            .map(|entry| entry.expect("an entry").file_name())
            .collect();
        assert!(
            names
                .iter()
                .any(|name| name.to_string_lossy().starts_with("optim-2")),
            "{names:?}"
        );
    }
}

#[test]
fn wrong_settings_are_usage_errors_that_name_their_flag() {
    let place = Place::new();
    for (flag, value) in [
        ("--batch", "0"),
        ("--seq-len", "0"),
        ("--epochs", "0"),
        ("--windows", "0"),
        ("--heads", "0"),
        ("--hidden", "127"),
        ("--lr", "0"),
        ("--weight-decay", "nan"),
    ] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_supervised"));
        command
            .args([flag, value, "--text"])
            .arg(place.text())
            .arg("--out")
            .arg(place.path("out"));
        let message = stderr(&finish(command, 2));
        assert!(message.contains(&format!("error: {flag}: ")), "{message}");
    }
    assert!(!place.path("out").exists());
}
