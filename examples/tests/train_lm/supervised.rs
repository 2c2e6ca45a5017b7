//! Burn's own training loop takes either optimizer.

use std::process::Command;

use crate::tiny::{Place, finish, stdout};

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
