//! The program from start to end, with a tiny model.

use std::fs;

use examples::train::{RunFolder, newest_checkpoint, read_metrics};

use crate::tiny::{Place, finish, numbers, stderr, stdout};

#[test]
fn a_run_leaves_its_files_and_prints_what_it_found() {
    let place = Place::new();
    let output = finish(
        place.tiny(&[
            "--steps",
            "30",
            "--eval-every",
            "10",
            "--out",
            "run",
            "--prompt",
            "let",
        ]),
        0,
    );
    let text = stdout(&output);
    for wanted in [
        "sha256",
        "bigram",
        "nats per byte",
        "validation",
        "sample\nlet",
    ] {
        assert!(text.contains(wanted), "{wanted}: {text}");
    }
    assert!(
        stderr(&output).contains("tokens/s") && stderr(&output).contains("left"),
        "plain lines"
    );

    let folder = RunFolder::open(&place.path("run")).expect("a run");
    let config = folder.read_config().expect("config.json");
    assert_eq!(config.settings.train.steps, 30);
    let lines = read_metrics(&folder.metrics_file()).expect("metrics.jsonl");
    assert_eq!(lines.len(), 30);
    assert_eq!(
        lines
            .iter()
            .filter(|line| line.validation_loss.is_some())
            .count(),
        3
    );
    let (first, last) = (&lines[0], &lines[29]);
    assert!(last.train_loss < first.train_loss, "{first:?} {last:?}");
    assert!(newest_checkpoint(&folder).expect("a folder").is_some());
    // Only the latent layer has logits.
    assert!(lines.iter().all(|line| {
        !line.heads.is_empty()
            && line.heads.iter().all(|head| {
                head.layer == line.heads[0].layer && head.logit.is_some() && !head.clipped
            })
    }));
    assert!(folder.logits_file().exists());
    assert!(
        fs::read_to_string(folder.chart_file())
            .expect("loss.svg")
            .contains("muonclip, validation")
    );
}

#[test]
fn the_same_seed_gives_the_same_numbers() {
    let place = Place::new();
    for (seed, out) in [("5", "a"), ("5", "b"), ("6", "c")] {
        finish(
            place.tiny(&["--steps", "6", "--seed", seed, "--out", out]),
            0,
        );
    }
    assert_eq!(numbers(&place.path("a")), numbers(&place.path("b")));
    assert_ne!(numbers(&place.path("a")), numbers(&place.path("c")));
}

/// Parts of a batch give its mean; how many threads there are changes nothing.
#[test]
fn parts_of_a_batch_train_as_the_whole() {
    let place = Place::new();
    let losses = |name: &str, shards: &str, threads: &str| {
        let flags = ["--steps", "4", "--shards", shards, "--out", name];
        let mut command = place.tiny(&flags);
        command.env("RAYON_NUM_THREADS", threads);
        finish(command, 0);
        let lines = read_metrics(&place.path(name).join("metrics.jsonl")).expect("metrics");
        let losses: Vec<f32> = lines.iter().filter_map(|line| line.train_loss).collect();
        assert_eq!(losses.len(), 4);
        losses
    };
    let whole = losses("whole", "1", "1");
    for shards in ["2", "8"] {
        let parts = losses(&format!("parts-{shards}"), shards, "1");
        for (part, whole) in parts.iter().zip(&whole) {
            assert!(
                (part - whole).abs() < 1e-4,
                "{shards} shards: {parts:?} for {whole:?}"
            );
        }
        assert_eq!(losses(&format!("threads-{shards}"), shards, "5"), parts);
    }
}

#[test]
fn every_plan_scheme_and_optimizer_trains() {
    let place = Place::new();
    for (index, flags) in [
        [
            "--attention",
            "kda",
            "--residual",
            "prenorm",
            "--optimizer",
            "adamw",
        ],
        [
            "--attention",
            "mla",
            "--residual",
            "full",
            "--optimizer",
            "muonclip",
        ],
        [
            "--attention",
            "hybrid",
            "--residual",
            "block:2",
            "--optimizer",
            "adamw",
        ],
    ]
    .iter()
    .enumerate()
    {
        // The last of a repeated flag is refused by clap, so the tiny attention is left out here.
        let mut command = place.train_lm(&[
            "--layers", "2", "--hidden", "16", "--heads", "2", "--ffn", "24",
        ]);
        command.args([
            "--batch",
            "2",
            "--seq-len",
            "16",
            "--eval-tokens",
            "64",
            "--steps",
            "3",
        ]);
        command
            .arg("--text")
            .arg(place.text())
            .args(flags)
            .args(["--out", &format!("run{index}")]);
        finish(command, 0);
    }
}

#[test]
fn a_folder_with_a_run_is_not_overwritten_by_accident() {
    let place = Place::new();
    finish(place.tiny(&["--steps", "2", "--out", "run"]), 0);
    let refused = finish(place.tiny(&["--steps", "3", "--out", "run"]), 2);
    assert!(
        stderr(&refused).contains("--overwrite"),
        "{}",
        stderr(&refused)
    );
    assert_eq!(numbers(&place.path("run")).len(), 2);
    finish(
        place.tiny(&["--steps", "3", "--out", "run", "--overwrite"]),
        0,
    );
    assert_eq!(numbers(&place.path("run")).len(), 3);

    fs::create_dir(place.path("mine")).expect("a folder");
    fs::write(place.path("mine/notes.txt"), "keep").expect("a file");
    finish(place.tiny(&["--out", "mine", "--overwrite"]), 2);
    assert_eq!(
        fs::read_to_string(place.path("mine/notes.txt")).expect("a file"),
        "keep"
    );
}

#[test]
fn runs_without_a_name_are_numbered() {
    let place = Place::new();
    finish(place.tiny(&["--steps", "1"]), 0);
    finish(place.tiny(&["--steps", "1"]), 0);
    assert!(
        place.path("runs/001/config.json").exists() && place.path("runs/002/config.json").exists()
    );
}
