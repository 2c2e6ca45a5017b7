//! A run small enough for a test: its text, its flags, and the program that takes them.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use tempfile::TempDir;

/// Flags of a model that trains in moments.
pub(crate) const FLAGS: [&str; 22] = [
    "--layers",
    "2",
    "--hidden",
    "16",
    "--heads",
    "2",
    "--ffn",
    "24",
    "--attention",
    "hybrid:1",
    "--batch",
    "2",
    "--seq-len",
    "16",
    "--warmup",
    "2",
    "--eval-tokens",
    "64",
    "--sample-len",
    "8",
    "--lr",
    "0.02",
];

/// A folder with a text in it and room for runs.
pub(crate) struct Place(TempDir);

impl Place {
    pub(crate) fn new() -> Self {
        let place = Self(TempDir::new().expect("a temporary folder"));
        let text: String = (0..400)
            .map(|line| format!("let x{line} = {} * y;\n", line * 7 % 13))
            .collect();
        fs::write(place.text(), text).expect("the text is written");
        place
    }

    pub(crate) fn text(&self) -> PathBuf {
        self.path("text.rs")
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// `train-lm` with the tiny model on the place's text, and `extra` flags.
    pub(crate) fn tiny(&self, extra: &[&str]) -> Command {
        let mut command = self.train_lm(&FLAGS);
        command.arg("--text").arg(self.text()).args(extra);
        command
    }

    /// `train-lm` in this place with nothing but `flags`.
    pub(crate) fn train_lm(&self, flags: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_train-lm"));
        command.current_dir(self.0.path()).args(flags);
        command
    }
}

/// Runs to the end and asserts the exit status.
pub(crate) fn finish(mut command: Command, status: i32) -> Output {
    let output = command.output().expect("the program starts");
    assert_eq!(
        output.status.code(),
        Some(status),
        "stdout:\n{}\nstderr:\n{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    output
}

pub(crate) fn stdout(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

pub(crate) fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// The metrics of a run as text, without the times: equal for equal numbers, bit for bit.
pub(crate) fn numbers(folder: &Path) -> Vec<String> {
    let text = fs::read_to_string(folder.join("metrics.jsonl")).expect("metrics.jsonl");
    let line = |line: &str| {
        let mut value: serde_json::Value = serde_json::from_str(line).expect("a line is JSON");
        value
            .as_object_mut()
            .expect("an object")
            .remove("seconds")
            .expect("a time");
        value.to_string()
    };
    text.lines().map(line).collect()
}
