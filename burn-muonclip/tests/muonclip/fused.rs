//! What only the fused form does.

use std::collections::BTreeMap;

use burn::module::{Lora, Module, ModuleVisitor, Param, ParamId};
use burn::nn::LinearConfig;
use burn::optim::{GradientsParams, ModuleOptimizer, MultiGradientsParams};
use burn::tensor::{Device, FloatDType, Tensor};
use burn_muonclip::{MuonClip, MuonClipConfig, Route, StepOutcome};

use crate::models::{
    Mixed, MixtureOfExperts, Tied, bits, device, in_dtype, made_up_gradients, noise, numbers,
    seeded, snapshot, tensor, training_device, values,
};
use crate::reference::{adamw_first_step, relative_error};

fn mixed() -> Mixed {
    seeded(Mixed::new(&training_device()))
}

fn fused<M: Module>(model: &M) -> MuonClip {
    MuonClipConfig::new().init_fused(model)
}

#[test]
fn matrices_of_one_shape_share_a_call_in_either_orientation() {
    let model = mixed();
    let mut optimizer = fused(&model);
    let grads = made_up_gradients(&model, 1, 1.0);
    optimizer.step(0.02, model, grads);
    let report = optimizer.last_report().unwrap();
    // Two [6, 10] and two [10, 6].
    assert_eq!((report.muon_matrices, report.newton_schulz_calls), (4, 1));
    assert_eq!(report.adamw_parameters, 8);
    assert!(report.is_applied());

    let model = seeded(MixtureOfExperts::new(&training_device()));
    let mut optimizer = fused(&model);
    let grads = made_up_gradients(&model, 1, 1.0);
    optimizer.step(0.02, model, grads);
    let report = optimizer.last_report().unwrap();
    assert_eq!((report.muon_matrices, report.newton_schulz_calls), (5, 2));
}

fn tied(device: &Device) -> Tied {
    let mut model = seeded(Tied::new(device));
    model.second = model.first.clone();
    model
}

#[test]
fn shared_parameters_stay_one_and_move_once() {
    let device = training_device();
    let x: Tensor<2> = Tensor::from_inner(tensor(&noise(3, 24), [4, 6]));
    let mut model = tied(&device);
    let mut optimizer = fused(&model);
    let mut separate = model.clone();
    separate.second.weight =
        Param::initialized(ParamId::new(), separate.second.weight.val().detach());
    for step in 0..3 {
        // The gradient of the shared weight is the sum over both uses.
        let loss = separate.forward(x.clone()).square().mean();
        let grads = GradientsParams::from_grads(loss.backward(), &separate);
        let sum = grads.get::<2>(separate.first.weight.id).unwrap()
            + grads.get::<2>(separate.second.weight.id).unwrap();

        let loss = model.forward(x.clone()).square().mean();
        let grads = GradientsParams::from_grads(loss.backward(), &model);
        let shared = grads.get::<2>(model.first.weight.id).unwrap();
        let error = relative_error(&values(&shared), &values(&sum));
        assert!(error < 1e-5, "step {step}: {error}");

        let before = bits(&model.first.weight.val());
        model = optimizer.step(0.02, model, grads);
        assert_ne!(bits(&model.first.weight.val()), before);
        assert_eq!(
            bits(&model.first.weight.val()),
            bits(&model.second.weight.val()),
            "step {step}"
        );
        assert_eq!(optimizer.last_report().unwrap().muon_matrices, 2);

        separate = model.clone();
        separate.second.weight = Param::initialized(
            ParamId::new(),
            separate.second.weight.val().detach().require_grad(),
        );
    }
}

#[test]
fn shared_parameters_get_the_update_of_one() {
    let model = tied(&training_device());
    let mut optimizer = fused(&model);
    let grads = made_up_gradients(&model, 1, 1.0);
    let alone = model.first.clone();
    let mut grads_alone = GradientsParams::new();
    grads_alone.register(alone.weight.id, grads.get::<2>(alone.weight.id).unwrap());
    let alone = fused(&alone).step(0.02, alone, grads_alone);
    let model = optimizer.step(0.02, model, grads);
    for weight in [&model.first.weight, &model.second.weight] {
        assert!(relative_error(&values(&weight.val()), &values(&alone.weight.val())) < 1e-6);
    }
}

#[test]
fn frozen_use_of_a_shared_parameter_follows_and_stays_frozen() {
    let device = training_device();
    let mut model = tied(&device);
    model.second.weight = model.second.weight.set_require_grad(false);
    let mut optimizer = fused(&model);
    let x: Tensor<2> = Tensor::from_inner(tensor(&noise(3, 24), [4, 6]));
    let grads = GradientsParams::from_grads(model.forward(x).square().mean().backward(), &model);
    let model = optimizer.step(0.02, model, grads);
    assert_eq!(
        bits(&model.first.weight.val()),
        bits(&model.second.weight.val())
    );
    assert!(model.first.weight.val().is_require_grad());
    assert!(!model.second.weight.val().is_require_grad());
}

#[test]
fn resuming_a_model_with_shared_parameters_is_exact() {
    let mut model = tied(&training_device());
    let mut whole = fused(&model);
    for step in 0..3 {
        let grads = made_up_gradients(&model, step, 1.0);
        model = whole.step(0.02, model, grads);
    }
    let mut resumed = fused(&model)
        .from_bytes(whole.into_bytes().unwrap())
        .unwrap();
    let grads = |model| made_up_gradients(model, 9, 1.0);
    let a = whole.step(0.02, model.clone(), grads(&model));
    let b = resumed.step(0.02, model.clone(), grads(&model));
    assert_eq!(snapshot(&a), snapshot(&b));
}

/// A gradient of `shape` with one bad element in the middle.
fn poisoned(bad: f32, [rows, columns]: [usize; 2]) -> Tensor<2> {
    let mut values = noise(1, rows * columns);
    values[rows * columns / 2] = f64::from(bad);
    tensor(&values, [rows, columns])
}

/// Two steps, a step with a bad gradient for `path`, and one more.
fn check_skipped_step(bad: f32, path: &str) {
    let mut model = mixed();
    let mut optimizer = fused(&model);
    for step in 0..2 {
        let grads = made_up_gradients(&model, step, 1.0);
        model = optimizer.step(0.02, model, grads);
    }
    let saved = optimizer.into_bytes().unwrap();
    let mut untouched = fused(&model).from_bytes(saved.clone()).unwrap();

    let mut grads = made_up_gradients(&model, 7, 1.0);
    match path {
        "embedding.weight" => grads.register(model.embedding.weight.id, poisoned(bad, [12, 6])),
        _ => grads.register(model.layers[1].down.weight.id, poisoned(bad, [10, 6])),
    }
    let before = snapshot(&model);
    let model = optimizer.step(0.02, model, grads);

    assert_eq!(snapshot(&model), before);
    assert_eq!(optimizer.into_bytes().unwrap().to_vec(), saved.to_vec());
    let outcome = StepOutcome::SkippedNonFinite {
        paths: vec![path.to_owned()],
    };
    assert_eq!(optimizer.last_report().unwrap().outcome, outcome);
    assert_eq!(optimizer.skipped_steps(), 1);

    // The next step is the one that would have come without the bad one.
    let a = optimizer.step(0.02, model.clone(), made_up_gradients(&model, 8, 1.0));
    let b = untouched.step(0.02, model.clone(), made_up_gradients(&model, 8, 1.0));
    assert_eq!(snapshot(&a), snapshot(&b));
}

#[test]
fn non_finite_gradient_skips_the_whole_step() {
    for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
        check_skipped_step(bad, "layers.1.down.weight");
        check_skipped_step(bad, "embedding.weight");
    }
}

#[test]
fn large_finite_gradients_are_no_reason_to_skip() {
    for (clip, scale) in [
        (None, 1e30),
        (None, 1e37),
        (Some(1.0), 1e37),
        (Some(1.0), 1e12),
    ] {
        let model = mixed();
        // AdamW's squares leave f32 above 1e19, so only matrices get such gradients here.
        let mut grads = GradientsParams::new();
        let id = model.layers[0].up.weight.id;
        grads.register(
            id,
            made_up_gradients(&model, 1, scale).get::<2>(id).unwrap(),
        );
        let mut optimizer = MuonClipConfig::new()
            .with_max_grad_norm(clip)
            .init_fused(&model);
        let model = optimizer.step(0.02, model, grads);
        assert!(optimizer.last_report().unwrap().is_applied());
        assert!(
            numbers(&model)["layers.0.up.weight"]
                .iter()
                .all(|v| v.is_finite())
        );
    }
}

/// The norm of all gradients together, in f64.
fn global_norm(model: &Mixed, grads: &GradientsParams) -> f64 {
    struct Squares<'a> {
        grads: &'a GradientsParams,
        sum: f64,
    }
    impl ModuleVisitor for Squares<'_> {
        fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
            let grad = values(&self.grads.get::<D>(param.id).unwrap());
            self.sum += grad.iter().map(|v| v * v).sum::<f64>();
        }
    }
    let mut squares = Squares { grads, sum: 0.0 };
    model.visit(&mut squares);
    squares.sum.sqrt()
}

#[test]
fn all_gradients_together_are_clipped_to_the_norm() {
    for scale in [1e-12, 1.0, 1e12] {
        let model = mixed();
        let grads = made_up_gradients(&model, 1, scale);
        let norm = global_norm(&model, &grads);
        let max = norm / 4.0;
        let mut clipped = MuonClipConfig::new()
            .with_max_grad_norm(Some(max))
            .init_fused(&model);
        let mut scaled = fused(&model);
        let a = clipped.step(0.02, model.clone(), grads);
        let b = scaled.step(
            0.02,
            model.clone(),
            made_up_gradients(&model, 1, scale / 4.0),
        );
        let report = clipped.last_report().unwrap();
        assert!((report.grad_norm.unwrap() / norm - 1.0).abs() < 1e-5);
        assert!((report.grad_scale - 0.25).abs() < 1e-5);
        let (a, b) = (numbers(&a), numbers(&b));
        for (path, a) in &a {
            let error = relative_error(a, &b[path]);
            assert!(error < 1e-5, "{scale} {path}: {error}");
        }
    }
}

#[test]
fn clipping_keeps_what_half_precision_cannot_hold() {
    let start = in_dtype(mixed(), FloatDType::F16);
    // Gradients of 1e-3 times 1e-6 are zero in f16.
    let norm = global_norm(&start, &made_up_gradients(&start, 1, 1e-3));
    let config = MuonClipConfig::new()
        .with_epsilon(1e-15)
        .with_max_grad_norm(Some(1e-6 * norm));
    let [half, full] = [FloatDType::F16, FloatDType::F32].map(|dtype| {
        let model = in_dtype(start.clone(), dtype);
        let mut optimizer = config.init_fused(&model);
        let grads = made_up_gradients(&model, 1, 1e-3);
        let model = optimizer.step(0.02, model, grads);
        let scale = optimizer.last_report().unwrap().grad_scale;
        assert!((scale / 1e-6 - 1.0).abs() < 1e-3, "{scale}");
        numbers(&model)
    });
    let before = numbers(&start);
    for (path, full) in &full {
        let change: Vec<f64> = full.iter().zip(&before[path]).map(|(a, b)| a - b).collect();
        let half: Vec<f64> = half[path]
            .iter()
            .zip(&before[path])
            .map(|(a, b)| a - b)
            .collect();
        // Weights near one hold differences to 2.5e-4 in f16; Muon's steps are about 4e-3, AdamW's 2e-2.
        let error = relative_error(&half, &change);
        assert!(error < 0.1, "{path}: {error}");
    }
}

#[test]
fn gradients_within_the_norm_are_not_touched() {
    let model = mixed();
    let mut clipping = MuonClipConfig::new()
        .with_max_grad_norm(Some(1e6))
        .init_fused(&model);
    let mut plain = fused(&model);
    let a = clipping.step(0.02, model.clone(), made_up_gradients(&model, 1, 1.0));
    let b = plain.step(0.02, model.clone(), made_up_gradients(&model, 1, 1.0));
    assert_eq!(snapshot(&a), snapshot(&b));
    assert_eq!(clipping.last_report().unwrap().grad_scale, 1.0);
    assert_eq!(plain.last_report().unwrap().grad_norm, None);
}

#[test]
#[should_panic(expected = "`max_grad_norm` needs all gradients at once")]
fn the_per_parameter_form_refuses_global_clipping() {
    let _: ModuleOptimizer = MuonClipConfig::new()
        .with_max_grad_norm(Some(1.0))
        .init(&mixed());
}

#[test]
#[should_panic(expected = "`max_grad_norm` must be positive")]
fn a_norm_of_zero_is_refused() {
    MuonClipConfig::new()
        .with_max_grad_norm(Some(0.0))
        .init_fused(&mixed());
}

#[test]
fn gradients_of_several_devices_are_added_up() {
    let model = mixed();
    let mut multi = fused(&model);
    let mut single = fused(&model);
    let grads = MultiGradientsParams {
        grads: vec![
            (made_up_gradients(&model, 1, 1.0), device()),
            (made_up_gradients(&model, 1, 1.0), device()),
        ],
    };
    let a = numbers(&multi.step_multi(0.02, model.clone(), grads));
    let b = numbers(&single.step(0.02, model.clone(), made_up_gradients(&model, 1, 2.0)));
    for (path, a) in &a {
        assert!(relative_error(a, &b[path]) < 1e-6, "{path}");
    }
}

#[test]
fn summary_counts_parameters_and_bytes() {
    let model = mixed();
    let summary = fused(&model).summary();
    let [muon, adamw] = summary.groups[..] else {
        panic!("two groups")
    };
    assert_eq!(
        (muon.route, muon.parameters, muon.elements, muon.state_bytes),
        (Route::Muon, 4, 240, 960)
    );
    assert_eq!(adamw.elements + muon.elements, model.num_params());
    assert_eq!(adamw.state_bytes, 8 * adamw.elements);
    let printed = summary.to_string();
    assert!(
        printed.contains("Muon") && printed.contains("960"),
        "{printed}"
    );

    // A shared weight is counted once.
    let shared = fused(&tied(&training_device())).summary();
    assert_eq!(
        (shared.groups[0].parameters, shared.groups[0].elements),
        (2, 72)
    );
}

#[test]
fn adamw_parameters_follow_burn() {
    let model = mixed();
    let before = numbers(&model);
    let grads = made_up_gradients(&model, 1, 1.0);
    let gamma = values(&grads.get::<1>(model.norm.gamma.id).unwrap());
    let after = numbers(&fused(&model).step(0.02, model, grads));
    let want: BTreeMap<usize, f64> = before["norm.gamma"]
        .iter()
        .zip(gamma)
        .map(|(&w, g)| adamw_first_step(w, g, 0.02, 0.1))
        .enumerate()
        .collect();
    for (i, want) in want {
        assert!((after["norm.gamma"][i] - want).abs() < 1e-5);
    }
}

#[test]
#[should_panic(
    expected = "parameter `weight` of shape [6, 6] was not in the model this optimizer was built for"
)]
fn another_model_is_refused() {
    let mut optimizer = fused(&mixed());
    let other = tied(&training_device()).first;
    let grads = made_up_gradients(&other, 1, 1.0);
    optimizer.step(0.02, other, grads);
}

#[test]
#[should_panic(
    expected = "the gradient of `layers.0.up.weight` has shape [10, 6], the parameter has [6, 10]"
)]
fn a_gradient_of_another_shape_is_refused() {
    let model = mixed();
    let mut grads = GradientsParams::new();
    grads.register(model.layers[0].up.weight.id, tensor(&noise(1, 60), [10, 6]));
    fused(&model).step(0.02, model, grads);
}

#[test]
#[should_panic(expected = "the learning rate of `embedding.weight` is NaN")]
fn a_learning_rate_that_is_no_number_is_refused() {
    let model = mixed();
    let grads = made_up_gradients(&model, 1, 1.0);
    fused(&model).step(f64::NAN, model, grads);
}

#[test]
fn plain_modules_are_updated_and_stay_plain() {
    let plain = seeded(Mixed::new(&device()));
    let grads = made_up_gradients(&plain, 1, 1.0);
    let plain = fused(&plain).step(0.02, plain, grads);
    assert!(!plain.head.weight.val().is_autodiff());
    let trainable = mixed();
    let grads = made_up_gradients(&trainable, 1, 1.0);
    let trainable = fused(&trainable).step(0.02, trainable, grads);
    assert_eq!(snapshot(&plain), snapshot(&trainable));
}

#[test]
fn low_rank_adapters_are_trained_and_stay_attached() {
    let model =
        seeded(LinearConfig::new(6, 8).init(&training_device())).apply_lora(Lora::new(2, 4.0));
    let mut optimizer = fused(&model);
    let x: Tensor<2> = Tensor::from_inner(tensor(&noise(3, 24), [4, 6]));
    let before = snapshot(&model);
    let mut trained = model;
    for _ in 0..2 {
        let grads = GradientsParams::from_grads(
            trained.forward(x.clone()).square().mean().backward(),
            &trained,
        );
        trained = optimizer.step(0.02, trained, grads);
    }
    let after = snapshot(&trained);
    assert_eq!(before["weight"], after["weight"]);
    for path in ["weight.lora.a", "weight.lora.b"] {
        assert_ne!(before[path], after[path], "{path}");
    }
}
