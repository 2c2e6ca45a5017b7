use std::f64::consts::PI;

use examples::cli::Cli;
use examples::train::{LearningRates, TrainSettings};

fn settings(flags: &[&str]) -> TrainSettings {
    let line = ["train-lm"].iter().chain(flags);
    Cli::parse_line(line).expect("flags").settings.train
}

fn rates(flags: &[&str]) -> Vec<f64> {
    let settings = settings(flags);
    let mut rates = LearningRates::new(&settings).expect("a schedule");
    (0..settings.steps).map(|_| rates.next_rate()).collect()
}

#[test]
fn warms_up_in_a_line_and_decays_in_a_cosine() {
    let (lr, floor, warmup, steps) = (0.02, 0.002, 5, 20);
    let found = rates(&[
        "--lr",
        "0.02",
        "--final-lr",
        "0.1",
        "--warmup",
        "5",
        "--steps",
        "20",
    ]);
    for (step, rate) in found.into_iter().enumerate() {
        let expected = match step {
            step if step < warmup => lr * (step + 1) as f64 / warmup as f64,
            step => {
                let part = (step - warmup) as f64 / (steps - warmup - 1) as f64;
                floor + 0.5 * (lr - floor) * (1.0 + (PI * part).cos())
            }
        };
        assert!(
            (rate - expected).abs() < 1e-15,
            "step {step}: {rate} instead of {expected}"
        );
    }
}

#[test]
fn short_runs_and_no_warm_up_have_a_schedule() {
    for steps in ["1", "2", "3", "4"] {
        for warmup in ["0", "1", "2", "50"] {
            let found = rates(&["--lr", "0.5", "--warmup", warmup, "--steps", steps]);
            assert!(
                found.iter().all(|rate| *rate > 0.0 && *rate <= 0.5),
                "{steps} {warmup}: {found:?}"
            );
        }
    }
    assert_eq!(
        rates(&["--lr", "0.5", "--warmup", "0", "--steps", "3"])[0],
        0.5
    );
}

#[test]
fn position_is_the_number_of_steps() {
    let settings = settings(&["--warmup", "4", "--steps", "12"]);
    let mut whole = LearningRates::new(&settings).expect("a schedule");
    for step in 0..12 {
        let mut resumed = LearningRates::after(&settings, step).expect("a schedule");
        assert_eq!(resumed.next_rate(), whole.next_rate());
    }
}
