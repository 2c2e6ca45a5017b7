//! Files of a run or comparison that were changed by hand are errors, whatever they hold.

use std::fs;
use std::path::Path;

use examples::cli::Cli;
use examples::compare::ComparePlan;
use examples::train::{RunFolder, TrainError, newest_checkpoint};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::tiny::{FLAGS, Place, finish, stderr};

/// Writes `original` with one value replaced.
fn write_changed(path: &Path, original: &Value, pointer: &str, value: Value) {
    let mut changed = original.clone();
    *changed.pointer_mut(pointer).expect(pointer) = value;
    fs::write(path, changed.to_string()).expect("a file");
}

fn read(path: &Path) -> Value {
    serde_json::from_str(&fs::read_to_string(path).expect("a file")).expect("JSON")
}

fn assert_names(error: &TrainError, path: &Path, wanted: &str) {
    let message = error.to_string();
    assert!(
        matches!(error, TrainError::Malformed { path: found, .. } if found == path)
            && message.contains(wanted),
        "{wanted}: {message}"
    );
}

#[test]
fn config_json_holds_the_model_that_its_settings_give() {
    let place = Place::new();
    finish(place.tiny(&["--steps", "1", "--out", "run"]), 0);
    let folder = RunFolder::open(&place.path("run")).expect("a run");
    let path = folder.config_file();
    let original = read(&path);
    for (pointer, value, wanted) in [
        ("/format", json!(2), "format is 2"),
        (
            "/model/head_dim",
            json!(i64::MAX),
            "model.head_dim is 9223372036854775807",
        ),
        (
            "/model/num_layers",
            json!(4_000_000_000_000_u64),
            "model.num_layers is 4000000000000",
        ),
        ("/model/num_layers", json!(3), "the settings give 2"),
        ("/model/vocab_size", json!(257), "model.vocab_size is 257"),
        ("/model/rms_norm_eps", json!(0.0), "model.rms_norm_eps"),
        ("/model/kv_lora_rank", json!(u64::MAX), "model.kv_lora_rank"),
        (
            "/model/attention",
            json!("Kda"),
            "model.attention is \"Kda\"",
        ),
        ("/settings/model/layers", json!(u64::MAX), "--layers"),
        (
            "/settings/model/heads",
            json!(4),
            "model.head_dim is 8, but the settings give 4",
        ),
        ("/settings/train/batch", json!(0), "--batch"),
    ] {
        write_changed(&path, &original, pointer, value);
        assert_names(&folder.read_config().unwrap_err(), &path, wanted);
    }
    let message = stderr(&finish(place.train_lm(&["--resume", "run"]), 1));
    assert!(message.contains("config.json"), "{message}");
}

#[test]
fn a_checkpoint_holds_the_files_that_were_saved_together() {
    for optimizer in ["adamw", "muonclip"] {
        let place = Place::new();
        let checkpoint_of = |name: &str, seed: &str| {
            let flags = ["--steps", "2", "--optimizer", optimizer, "--seed", seed];
            let mut command = place.tiny(&flags);
            command.args(["--out", name]);
            finish(command, 0);
            let folder = RunFolder::open(&place.path(name)).expect("a run");
            newest_checkpoint(&folder)
                .expect("a folder")
                .expect("a checkpoint")
        };
        let (checkpoint, other) = (checkpoint_of("run", "0"), checkpoint_of("other", "1"));
        let resume = |status| {
            let command = place.train_lm(&["--resume", "run", "--steps", "3"]);
            stderr(&finish(command, status))
        };
        for (file, replacement) in [
            ("optimizer.bpk", checkpoint.join("model.bpk")),
            ("optimizer.bpk", other.join("optimizer.bpk")),
            ("model.bpk", other.join("model.bpk")),
        ] {
            let path = checkpoint.join(file);
            let original = fs::read(&path).expect("a file");
            fs::copy(replacement, &path).expect("a copy");
            let message = resume(1);
            assert!(message.contains(file), "{file}: {message}");
            fs::write(&path, original).expect("the file as it was");
        }
        resume(0);
    }
}

#[test]
fn a_checkpoint_belongs_to_the_optimizer_and_the_seed_of_its_run() {
    let place = Place::new();
    finish(
        place.tiny(&["--steps", "2", "--optimizer", "adamw", "--out", "run"]),
        0,
    );
    let path = place.path("run/config.json");
    let original = read(&path);
    for (pointer, value, wanted) in [
        (
            "/settings/train/optimizer",
            json!("muonclip"),
            "config.json has optimizer muonclip",
        ),
        ("/settings/train/seed", json!(7), "seed 7"),
    ] {
        write_changed(&path, &original, pointer, value);
        let message = stderr(&finish(
            place.train_lm(&["--resume", "run", "--steps", "3"]),
            1,
        ));
        assert!(
            message.contains("position.json") && message.contains(wanted),
            "{message}"
        );
    }
}

#[test]
fn compare_json_is_checked_like_config_json() {
    let folder = TempDir::new().expect("a temporary folder");
    let settings = Cli::parse_line(["train-lm"].iter().chain(&FLAGS))
        .expect("flags")
        .settings;
    let plan = ComparePlan::new(settings, &[0.02], &[0.01, 0.003], &[0, 1]).expect("a plan");
    plan.create(folder.path()).expect("a folder");
    assert_eq!(ComparePlan::read(folder.path()).expect("a plan"), plan);

    let path = ComparePlan::file(folder.path());
    let original = read(&path);
    for (pointer, value, wanted) in [
        ("/format", json!(0), "format is 0"),
        ("/arms", json!([]), "muonclip-lrs"),
        (
            "/arms",
            json!([{"optimizer": "muonclip", "lr": 0.1}]),
            "adamw-lrs",
        ),
        ("/arms/1/lr", json!(2), "--adamw-lrs"),
        ("/seeds", json!([]), "seeds"),
        ("/settings/train/steps", json!(0), "--steps"),
        ("/settings/model/residual", json!("block:99"), "99 blocks"),
    ] {
        write_changed(&path, &original, pointer, value);
        assert_names(
            &ComparePlan::read(folder.path()).unwrap_err(),
            &path,
            wanted,
        );
    }
}

#[test]
fn a_comparison_continues_only_runs_of_its_own_settings() {
    let place = Place::new();
    let flags = [
        "--compare",
        "--adamw-lrs",
        "0.01",
        "--seeds",
        "0",
        "--only",
        "adamw-lr0.01/0",
    ];
    let mut command = place.tiny(&["--steps", "2", "--out", "compare"]);
    command.args(flags);
    finish(command, 0);
    let path = ComparePlan::file(&place.path("compare"));
    write_changed(&path, &read(&path), "/settings/train/steps", json!(4));
    let message = stderr(&finish(
        place.train_lm(&["--resume", "compare", "--only", "adamw-lr0.01/0"]),
        1,
    ));
    assert!(
        message.contains("config.json") && message.contains("compare.json"),
        "{message}"
    );
}
