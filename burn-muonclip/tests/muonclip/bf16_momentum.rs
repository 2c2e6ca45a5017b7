//! Momentum in half the memory.

use burn::optim::ModuleOptimizer;
use burn_muonclip::{MuonClip, MuonClipConfig, Route};

use crate::models::{Mixed, made_up_gradients, numbers, seeded, snapshot, training_device};

const STEPS: u64 = 6;

fn model() -> Mixed {
    seeded(Mixed::new(&training_device()))
}

fn config() -> MuonClipConfig {
    MuonClipConfig::new().with_bf16_momentum(true)
}

fn trained(
    mut optimizer: MuonClip,
    steps: std::ops::Range<u64>,
    mut model: Mixed,
) -> (MuonClip, Mixed) {
    for step in steps {
        let grads = made_up_gradients(&model, step, 1.0);
        model = optimizer.step(0.02, model, grads);
    }
    (optimizer, model)
}

#[test]
fn it_takes_two_bytes_an_element() {
    let full = MuonClipConfig::new().init_fused(&model());
    let half = config().init_fused(&model());
    let [full_bytes, half_bytes] = [full, half].map(|optimizer| {
        let summary = optimizer.summary();
        let (optimizer, _) = trained(optimizer, 0..1, model());
        let expected: usize = summary.groups.iter().map(|group| group.state_bytes).sum();
        assert_eq!(optimizer.state_bytes(), expected);
        let muon = &summary.groups[0];
        assert_eq!(muon.route, Route::Muon);
        muon.state_bytes
    });
    assert_eq!(2 * half_bytes, full_bytes);
}

#[test]
fn the_updates_are_those_of_full_momentum_to_its_rounding() {
    let (_, full) = trained(MuonClipConfig::new().init_fused(&model()), 0..1, model());
    let (_, half) = trained(config().init_fused(&model()), 0..1, model());
    // Nothing was rounded yet when the first update was made.
    assert_eq!(snapshot(&full), snapshot(&half));

    let (_, full) = trained(
        MuonClipConfig::new().init_fused(&model()),
        0..STEPS,
        model(),
    );
    let (_, half) = trained(config().init_fused(&model()), 0..STEPS, model());
    assert_ne!(snapshot(&full), snapshot(&half));
    let (full, half, before) = (numbers(&full), numbers(&half), numbers(&model()));
    for (path, full) in &full {
        let squares =
            |pairs: &[(f64, f64)]| pairs.iter().map(|(x, y)| (x - y).powi(2)).sum::<f64>();
        let pairs = |other: &[f64]| {
            full.iter()
                .copied()
                .zip(other.iter().copied())
                .collect::<Vec<_>>()
        };
        let (apart, moved) = (squares(&pairs(&half[path])), squares(&pairs(&before[path])));
        assert!(apart <= 1e-4 * moved, "{path}: {apart} of {moved}");
    }
}

#[test]
fn a_resumed_run_goes_on_with_the_same_bits() {
    let (_, whole) = trained(config().init_fused(&model()), 0..STEPS, model());
    let (optimizer, half_way) = trained(config().init_fused(&model()), 0..3, model());
    let bytes = optimizer.into_bytes().unwrap();
    let loaded: MuonClip = config().init_fused(&half_way).from_bytes(bytes).unwrap();
    let (_, resumed) = trained(loaded, 3..STEPS, half_way);
    assert_eq!(snapshot(&whole), snapshot(&resumed));
}

#[test]
fn both_forms_round_alike() {
    let (_, fused) = trained(config().init_fused(&model()), 0..STEPS, model());
    let mut optimizer: ModuleOptimizer = config().init(&model());
    let mut stepped = model();
    for step in 0..STEPS {
        let grads = made_up_gradients(&stepped, step, 1.0);
        stepped = optimizer.step(0.02, stepped, grads);
    }
    assert_eq!(snapshot(&fused), snapshot(&stepped));
}
