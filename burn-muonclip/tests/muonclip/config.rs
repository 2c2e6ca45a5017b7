//! The configuration itself: its defaults, and its file.

use burn::config::Config;
use burn::module::ParamGroup;
use burn_muonclip::{MuonClipConfig, Route};

use crate::models::{Mixed, device};

#[test]
fn configuration_survives_saving() {
    let config = MuonClipConfig::new()
        .with_weight_decay(0.05)
        .with_max_grad_norm(Some(1.0))
        .with_adamw(ParamGroup::from_path("layers.0.up.weight"))
        .with_group_weight_decay(ParamGroup::from_path("norm.gamma"), 0.0);
    let file = tempfile::NamedTempFile::new().unwrap();
    config.save(file.path()).unwrap();
    let loaded = MuonClipConfig::load(file.path()).unwrap();
    assert_eq!(loaded.weight_decay, 0.05);
    assert_eq!(loaded.max_grad_norm, Some(1.0));
    let plan = loaded.plan(&Mixed::new(&device())).unwrap();
    assert_eq!(plan.get("layers.0.up.weight").unwrap().route, Route::AdamW);
    assert_eq!(plan.get("norm.gamma").unwrap().weight_decay, 0.0);
}

#[test]
fn defaults_are_those_of_kimi_k2() {
    let config = MuonClipConfig::new();
    assert_eq!(
        (config.momentum, config.nesterov, config.newton_schulz.steps),
        (0.95, true, 5)
    );
    assert_eq!(
        config.newton_schulz.coefficients,
        [[3.4445, -4.775, 2.0315]]
    );
    assert_eq!((config.weight_decay, config.update_rms), (0.1, 0.2));
    assert_eq!(
        (config.beta_1, config.beta_2, config.epsilon),
        (0.9, 0.95, 1e-8)
    );
}
