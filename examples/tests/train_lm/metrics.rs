use std::fs;
use std::path::Path;

use examples::train::{MetricsLine, MetricsLog, TrainError, read_metrics};
use tempfile::TempDir;

fn line(step: usize) -> MetricsLine {
    MetricsLine {
        step,
        tokens: step * 32,
        lr: 0.1 / 3.0,
        train_loss: Some(5.0 / step as f32),
        validation_loss: step.is_multiple_of(2).then_some(1.0 / 3.0),
        heads: Vec::new(),
        ever_clipped: None,
        skipped: step == 3,
        seconds: 0.25,
    }
}

fn write(path: &Path, steps: usize) {
    let mut log = MetricsLog::open(path, 0).expect("a log");
    (1..=steps).for_each(|step| log.append(&line(step)).expect("a line"));
}

#[test]
fn lines_come_back_as_they_were_written() {
    let folder = TempDir::new().expect("a temporary folder");
    let path = folder.path().join("metrics.jsonl");
    write(&path, 4);
    assert_eq!(
        read_metrics(&path).expect("metrics"),
        (1..=4).map(line).collect::<Vec<_>>()
    );
    let text = fs::read_to_string(&path).expect("metrics");
    assert!(
        text.lines()
            .next()
            .is_some_and(|line| !line.contains("validation_loss"))
    );
}

#[test]
fn opening_for_a_checkpoint_drops_later_lines() {
    let folder = TempDir::new().expect("a temporary folder");
    let path = folder.path().join("metrics.jsonl");
    write(&path, 4);
    let before = fs::read_to_string(&path).expect("metrics");
    let mut log = MetricsLog::open(&path, 2).expect("a log");
    log.append(&line(3)).expect("a line");
    log.append(&line(4)).expect("a line");
    assert_eq!(fs::read_to_string(&path).expect("metrics"), before);
}

#[test]
fn a_torn_last_line_is_dropped() {
    let folder = TempDir::new().expect("a temporary folder");
    let path = folder.path().join("metrics.jsonl");
    write(&path, 2);
    let whole = fs::read_to_string(&path).expect("metrics");
    fs::write(&path, format!("{whole}{{\"step\":3,\"tok")).expect("a torn file");
    assert_eq!(read_metrics(&path).expect("metrics").len(), 2);
    MetricsLog::open(&path, 2).expect("a log");
    assert_eq!(fs::read_to_string(&path).expect("metrics"), whole);
}

#[test]
fn missing_and_damaged_lines_are_named() {
    let folder = TempDir::new().expect("a temporary folder");
    let path = folder.path().join("metrics.jsonl");
    write(&path, 2);
    let error = MetricsLog::open(&path, 3).unwrap_err();
    assert!(
        matches!(error, TrainError::Malformed { .. }) && error.to_string().contains("steps 1 to 3"),
        "{error}"
    );
    fs::write(&path, "{\"step\":1}\n").expect("a damaged file");
    let error = read_metrics(&path).unwrap_err();
    assert!(error.to_string().contains("line 1"), "{error}");
}
