use burn::module::Module;
use burn::tensor::{Device, Tensor};
use burn_kimi_linear::{ForgetGate, KimiDeltaAttention, KimiDeltaAttentionConfig};

use crate::closeness::{assert_close, values};
use crate::draws::normal_on;
use crate::engines::{Engine, kernels};
use crate::layer_oracle::{self, Settings};

const D_MODEL: usize = 12;

fn config() -> KimiDeltaAttentionConfig {
    KimiDeltaAttentionConfig::new(D_MODEL, 2, 4)
}

fn variants() -> Vec<KimiDeltaAttentionConfig> {
    vec![
        config(),
        config().with_gate(ForgetGate::LowerBound(-5.0)),
        config()
            .with_num_value_heads(Some(4))
            .with_value_head_dim(Some(6)),
        config()
            .with_allow_negative_eigenvalues(true)
            .with_conv_size(2),
    ]
}

/// Of [`variants`], those that an engine has time for: on a GPU every shape of a matrix product is compiled and tuned.
fn variants_on(engine: &Engine) -> Vec<KimiDeltaAttentionConfig> {
    let mut variants = variants();
    if engine.is_gpu() {
        variants = vec![variants.remove(2)];
    }
    variants
}

fn tolerance(engine: &Engine) -> f64 {
    if engine.is_gpu() { 5e-5 } else { 1e-5 }
}

/// The oracle's settings for each of [`variants`].
fn settings(config: &KimiDeltaAttentionConfig) -> Settings {
    Settings {
        heads: config.num_heads,
        gate: config.gate,
        max_write: if config.allow_negative_eigenvalues {
            2.0
        } else {
            1.0
        },
        norm_epsilon: config.norm_epsilon,
    }
}

#[test]
fn matches_its_equations() {
    for engine in kernels() {
        for config in variants_on(&engine) {
            let layer = config.init(&engine.device);
            let x = random([2, 20, D_MODEL], &engine.device);
            let got = values(layer.forward(x.clone()));
            let x = values(x);
            let want: Vec<f64> = x
                .chunks(20 * D_MODEL)
                .flat_map(|x| layer_oracle::layer(&layer, &settings(&config), x, 20))
                .collect();
            let what = format!("{config:?} on {}", engine.name);
            assert_close(&what, &got, &want, tolerance(&engine));
        }
    }
}

fn random(shape: [usize; 3], device: &Device) -> Tensor<3> {
    normal_on(shape, device)
}

fn step_by_step(layer: &KimiDeltaAttention, x: &Tensor<3>, pieces: &[usize]) -> Tensor<3> {
    let mut state = None;
    let mut at = 0;
    let mut outputs = Vec::new();
    for &tokens in pieces {
        let (y, next) = layer.forward_with_state(x.clone().narrow(1, at, tokens), state);
        outputs.push(y);
        state = Some(next);
        at += tokens;
    }
    Tensor::cat(outputs, 1)
}

#[test]
fn token_by_token_and_by_pieces_equals_one_pass() {
    for engine in kernels() {
        for config in variants_on(&engine) {
            let layer = config.init(&engine.device);
            let x = random([2, 20, D_MODEL], &engine.device);
            let want = values(layer.forward(x.clone()));
            let ways: [&[usize]; 4] = [&[1; 20], &[2, 17, 1], &[16, 4], &[19, 1]];
            let ways = if engine.is_gpu() {
                &ways[..1]
            } else {
                &ways[..]
            };
            for pieces in ways {
                let got = values(step_by_step(&layer, &x, pieces));
                let what = format!("{pieces:?} on {}", engine.name);
                assert_close(&what, &got, &want, tolerance(&engine));
            }
        }
    }
}

#[test]
fn a_later_token_changes_no_earlier_output() {
    for engine in kernels() {
        let device = &engine.device;
        let layer = variants_on(&engine)[0].init(device);
        let x = random([2, 20, D_MODEL], device);
        let other = random([2, 11, D_MODEL], device);
        let changed = Tensor::cat(vec![x.clone().narrow(1, 0, 9), other], 1);
        let (a, b) = (layer.forward(x), layer.forward(changed));
        assert_close(
            engine.name,
            &values(a.clone().narrow(1, 0, 9)),
            &values(b.clone().narrow(1, 0, 9)),
            1e-6,
        );
        assert_ne!(values(a), values(b));
    }
}

#[test]
fn every_parameter_gets_a_gradient() {
    for engine in kernels() {
        let device = engine.device.clone().autodiff();
        for config in variants_on(&engine) {
            let layer = config.init(&device);
            let y = layer.forward(random([2, 20, D_MODEL], &device));
            let grads = y.square().sum().backward();
            let grads = burn::optim::GradientsParams::from_grads(grads, &layer);
            assert_eq!(grads.len(), 15, "{layer:?}");
            let a_log = grads.get::<1>(layer.a_log.id).unwrap();
            assert!(a_log.abs().sum().into_scalar::<f32>() > 0.0);
        }
    }
}

#[test]
fn starts_with_the_published_gates() {
    let layer = config().init(&Device::flex());
    let a_log = values(layer.a_log.val());
    assert!(
        a_log.iter().all(|a| (0.0..=16f64.ln() + 1e-6).contains(a)),
        "{a_log:?}"
    );
    let softplus = |x: f64| x.exp().ln_1p();
    let steps: Vec<f64> = values(layer.dt_bias.val())
        .into_iter()
        .map(softplus)
        .collect();
    assert!(
        steps.iter().all(|s| (0.00099..0.101).contains(s)),
        "{steps:?}"
    );

    let bounded = config()
        .with_gate(ForgetGate::LowerBound(-5.0))
        .init(&Device::flex());
    assert_eq!(values(bounded.a_log.val()), [0.0, 0.0]);
}

#[test]
fn a_saved_layer_loads_the_same() {
    let device = Device::flex();
    let layer = config().init(&device);
    let x = random([1, 5, D_MODEL], &device);
    let loaded = config()
        .init(&device)
        .load_record(layer.clone().into_record());
    assert_eq!(
        loaded.forward(x.clone()).into_data(),
        layer.forward(x).into_data()
    );
}

#[test]
fn an_empty_batch_passes_through() {
    let device = Device::flex();
    let layer = config().init(&device);
    for tokens in [0, 1, 5] {
        let (y, state) = layer.forward_with_state(random([0, tokens, D_MODEL], &device), None);
        assert_eq!(y.dims(), [0, tokens, D_MODEL]);
        assert_eq!(state.memory.dims(), [0, 2, 4, 4]);
    }
}

#[test]
fn no_tokens_pass_through() {
    let device = Device::flex();
    let layer = config().init(&device);
    let (y, _) = layer.forward_with_state(random([2, 0, D_MODEL], &device), None);
    assert_eq!(y.dims(), [2, 0, D_MODEL]);
    let (_, state) = layer.forward_with_state(random([1, 3, D_MODEL], &device), None);
    let (y, after) =
        layer.forward_with_state(random([1, 0, D_MODEL], &device), Some(state.clone()));
    assert_eq!(y.dims(), [1, 0, D_MODEL]);
    let memory =
        |s: burn_kimi_linear::KimiDeltaAttentionState| s.memory.into_key_value().into_data();
    assert_eq!(memory(after), memory(state));
}

#[test]
#[should_panic(expected = "assert_shape!(x, [batch, tokens, d_model])")]
fn another_width_is_refused() {
    let device = Device::flex();
    let layer = config().init(&device);
    layer.forward(random([1, 2, D_MODEL + 1], &device));
}
