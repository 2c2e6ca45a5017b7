//! One test for each fault that other implementations of Muon are known to have had.

use burn::lr_scheduler::module_lr_scheduler::ModuleLrScheduler;
use burn::module::ParamGroup;
use burn::nn::LinearLayout;
use burn::optim::GradientsParams;
use burn::tensor::{FloatDType, Tensor};
use burn_muonclip::{MuonClipConfig, NewtonSchulzConfig, Route, newton_schulz};

use crate::models::{
    Mixed, MixtureOfExperts, device, in_dtype, linear, made_up_gradients, matrix, noise, numbers,
    seeded, snapshot, tensor, training_device, values, with_value,
};
use crate::optimizers::FORMS;
use crate::reference::{self, Matrix, STANDARD, relative_error};

fn config() -> MuonClipConfig {
    MuonClipConfig::new()
}

fn orthogonalized(x: &Matrix) -> Vec<f64> {
    let x: Tensor<3> = tensor(&x.values, [1, x.rows, x.columns]);
    values(&newton_schulz(x, &NewtonSchulzConfig::new()))
}

/// One step of a bias-free layer with a made-up gradient times `scale`, as the change divided by the
/// learning rate.
fn change(config: &MuonClipConfig, rows: usize, columns: usize, scale: f64) -> Vec<f64> {
    let model = seeded(linear(rows, columns, LinearLayout::Row, &training_device()));
    let before = numbers(&model).remove("weight").unwrap();
    let grads = made_up_gradients(&model, 1, scale);
    let config = config.clone().with_weight_decay(0.0);
    let model = config.init_fused(&model).step(1.0, model, grads);
    let after = numbers(&model).remove("weight").unwrap();
    after.iter().zip(before).map(|(a, b)| a - b).collect()
}

/// An epsilon in the norm swallows gradients below it.
#[test]
fn fault_01_small_gradients_are_orthogonalised() {
    let base = matrix(1, 64, 64);
    let unit = base.scaled(1.0 / base.norm());
    let want = orthogonalized(&unit);
    for scale in [1e-11, 1e-14] {
        assert!(
            relative_error(&orthogonalized(&unit.scaled(scale)), &want) < 1e-5,
            "{scale}"
        );
    }
}

/// Clipping pushed gradients below that epsilon.
#[test]
fn fault_02_clipped_gradients_are_orthogonalised() {
    let want = change(&config(), 24, 24, 1.0);
    let tiny = change(&config().with_max_grad_norm(Some(2e-8)), 24, 24, 1.0);
    // Weights near one hold differences to about 1e-7.
    assert!(relative_error(&tiny, &want) < 1e-5);
}

/// Clipping applied to the orthogonalised update shrinks it with the width of the layer.
#[test]
fn fault_03_clipping_does_not_shrink_orthogonal_updates() {
    let clipping = config().with_max_grad_norm(Some(1.0));
    for width in [32, 256] {
        let update = change(&clipping, width, width, 1.0);
        let rms = Matrix::new(width, width, update).rms();
        assert!((0.15..0.23).contains(&rms), "{width}: {rms}");
    }
}

/// Newton-Schulz sat in a layer that was not always called.
#[test]
fn fault_04_every_step_orthogonalises() {
    let model = seeded(Mixed::new(&training_device()));
    let mut fused = config().init_fused(&model);
    fused.step(0.02, model.clone(), made_up_gradients(&model, 1, 1.0));
    assert_eq!(fused.last_report().unwrap().muon_matrices, 4);

    for form in FORMS {
        let grads = made_up_gradients(&model, 1, 1.0);
        let grad = values(&grads.get::<2>(model.layers[0].up.weight.id).unwrap());
        let before = numbers(&model);
        let after =
            form.init(&config().with_weight_decay(0.0), &model)
                .step(0.02, model.clone(), grads);
        let (before, after) = (
            &before["layers.0.up.weight"],
            &numbers(&after)["layers.0.up.weight"],
        );
        let sgd: Vec<f64> = before
            .iter()
            .zip(&grad)
            .map(|(w, g)| w - 0.02 * g)
            .collect();
        assert!(relative_error(after, &sgd) > 1e-3, "{form:?}");
    }
}

/// Momentum saved in f32 met gradients in bf16 after resuming.
#[test]
fn fault_06_half_precision_resumes() {
    for form in FORMS {
        for dtype in [FloatDType::BF16, FloatDType::F16] {
            let model = in_dtype(seeded(Mixed::new(&training_device())), dtype);
            let mut whole = form.init(&config(), &model);
            let model = whole.step(0.02, model.clone(), made_up_gradients(&model, 1, 1.0));
            let mut resumed = form.init(&config(), &model).load_bytes(whole.to_bytes());
            let a = whole.step(0.02, model.clone(), made_up_gradients(&model, 2, 1.0));
            let b = resumed.step(0.02, model.clone(), made_up_gradients(&model, 2, 1.0));
            assert_eq!(snapshot(&a), snapshot(&b), "{form:?} {dtype:?}");
        }
    }
}

/// The user's groups were flattened into one.
#[test]
fn fault_07_groups_keep_their_learning_rates() {
    for form in FORMS {
        let model = seeded(Mixed::new(&training_device()));
        let run = |lr_1: f64| {
            let group = ParamGroup::from_predicate("layers.1");
            let mut schedule = ModuleLrScheduler::new(0.02).with_group(group, lr_1);
            let grads = made_up_gradients(&model, 1, 1.0);
            numbers(
                &form
                    .init(&config(), &model)
                    .step(schedule.step(), model.clone(), grads),
            )
        };
        let (before, slow, fast) = (numbers(&model), run(0.01), run(0.04));
        let moved = |after: &[f64], path: &str| -> Vec<f64> {
            after
                .iter()
                .zip(&before[path])
                .map(|(a, b)| a - b)
                .collect()
        };
        for path in ["layers.1.up.weight", "layers.1.up.bias"] {
            let want: Vec<f64> = moved(&slow[path], path).iter().map(|v| 4.0 * v).collect();
            assert!(
                relative_error(&moved(&fast[path], path), &want) < 1e-4,
                "{form:?} {path}"
            );
        }
        assert_eq!(slow["layers.0.up.weight"], fast["layers.0.up.weight"]);
    }
}

/// A norm over the whole stack, or a stack flattened into one matrix.
#[test]
fn fault_10_copies_in_a_stack_equal_one_matrix() {
    let one = matrix(3, 12, 20);
    let stack: Vec<f64> = [1.0, 1e3]
        .iter()
        .flat_map(|s| one.scaled(*s).values)
        .collect();
    let out = values(&newton_schulz(
        tensor(&stack, [2, 12, 20]),
        &NewtonSchulzConfig::new(),
    ));
    let want = orthogonalized(&one);
    for part in out.chunks(240) {
        assert!(relative_error(part, &want) < 1e-5);
    }
    let model = MixtureOfExperts::new(&training_device());
    assert_eq!(
        config().plan(&model).unwrap().get("experts").unwrap().route,
        Route::Muon
    );
}

/// The scale of `[out, in]` applied to weights stored `[in, out]`.
#[test]
fn fault_11_both_orientations_have_the_same_scale() {
    let grad = matrix(4, 16, 64);
    let update = |grad: &Matrix| {
        let mut model = linear(
            grad.rows,
            grad.columns,
            LinearLayout::Row,
            &training_device(),
        );
        model.weight = with_value(
            model.weight,
            Tensor::zeros([grad.rows, grad.columns], &device()),
        );
        let mut grads = GradientsParams::new();
        grads.register(
            model.weight.id,
            tensor(&grad.values, [grad.rows, grad.columns]),
        );
        let model = config().init_fused(&model).step(1.0, model, grads);
        Matrix::new(grad.rows, grad.columns, values(&model.weight.val()))
    };
    let (wide, tall) = (update(&grad), update(&grad.transposed()));
    assert!(relative_error(&wide.values, &tall.transposed().values) < 1e-6);
    let rms = wide.rms();
    assert!((0.15..0.23).contains(&rms), "{rms}");
}

/// Both scalings multiplied.
#[test]
fn fault_12_the_scale_is_applied_once() {
    for (rows, columns) in [(16, 64), (64, 16)] {
        let got = change(&config(), rows, columns, 1.0);
        let model = seeded(linear(rows, columns, LinearLayout::Row, &training_device()));
        let grads = made_up_gradients(&model, 1, 1.0);
        let grad = Matrix::new(
            rows,
            columns,
            values(&grads.get::<2>(model.weight.id).unwrap()),
        );
        let want = reference::newton_schulz(&grad, &[STANDARD; 5]).scaled(-0.2 * 8.0);
        let error = relative_error(&got, &want.values);
        assert!(error < 1e-5, "{rows}x{columns}: {error}");
    }
}

/// The factor 0.2 missing.
#[test]
fn fault_13_updates_have_the_rms_of_adamw() {
    for (rows, columns) in [(96, 96), (96, 258), (258, 96)] {
        let rms = Matrix::new(rows, columns, change(&config(), rows, columns, 1.0)).rms();
        assert!((0.16..0.22).contains(&rms), "{rows}x{columns}: {rms}");
    }
}

/// Embeddings and output heads under Muon because they have two axes.
#[test]
fn fault_16_embeddings_and_heads_are_not_orthogonalised() {
    let model = Mixed::new(&training_device());
    let plan = config().plan(&model).unwrap();
    for path in ["embedding.weight", "head.weight"] {
        assert_eq!(plan.get(path).unwrap().route, Route::AdamW, "{path}");
    }
}

/// The schedule reached one of the two optimizers only.
#[test]
fn fault_19_the_schedule_reaches_both_optimizers() {
    for form in FORMS {
        let model = seeded(Mixed::new(&training_device()));
        let before = snapshot(&model);
        let mut schedule = ModuleLrScheduler::new(0.0);
        let grads = made_up_gradients(&model, 1, 1.0);
        let still = form
            .init(&config(), &model)
            .step(schedule.step(), model.clone(), grads);
        assert_eq!(snapshot(&still), before, "{form:?}");
        let mut schedule = ModuleLrScheduler::new(0.01);
        let grads = made_up_gradients(&model, 1, 1.0);
        let moved = snapshot(
            &form
                .init(&config(), &model)
                .step(schedule.step(), model, grads),
        );
        for (path, bytes) in &moved {
            assert_ne!(*bytes, before[path], "{form:?} {path}");
        }
    }
}

/// A view whose elements are not in order crashed.
#[test]
fn fault_20_transposed_views_are_trained() {
    for form in FORMS {
        let weights: Tensor<2> = tensor(&noise(1, 60), [10, 6]);
        let grad: Tensor<2> = tensor(&noise(2, 60), [10, 6]);
        let mut results = Vec::new();
        for copy in [false, true] {
            let arrange = |x: &Tensor<2>| {
                let view = x.clone().transpose();
                if copy {
                    tensor(&values(&view), [6, 10])
                } else {
                    view
                }
            };
            let mut model = linear(6, 10, LinearLayout::Row, &training_device());
            model.weight = with_value(model.weight, arrange(&weights));
            let mut grads = GradientsParams::new();
            grads.register(model.weight.id, arrange(&grad));
            let model = form.init(&config(), &model).step(0.02, model, grads);
            results.push(values(&model.weight.val()));
        }
        assert!(relative_error(&results[0], &results[1]) < 1e-6, "{form:?}");
    }
}

/// Momentum, scale and iteration of public copies that differ from Algorithm 1.
#[test]
fn fault_22_steps_equal_algorithm_1() {
    for nesterov in [true, false] {
        let rule = reference::MuonRule {
            momentum: 0.95,
            nesterov,
            weight_decay: 0.1,
        };
        for form in FORMS {
            let mut model = seeded(linear(12, 20, LinearLayout::Row, &training_device()));
            let weight = Matrix::new(12, 20, values(&model.weight.val()));
            let config = config().with_nesterov(nesterov);
            let mut optimizer = form.init(&config, &model);
            let mut grads = Vec::new();
            for step in 0..4 {
                let made_up = made_up_gradients(&model, step, 1.0);
                grads.push(Matrix::new(
                    12,
                    20,
                    values(&made_up.get::<2>(model.weight.id).unwrap()),
                ));
                model = optimizer.step(0.02, model, made_up);
            }
            let want = reference::muon(&rule, 0.02, &weight, &grads).pop().unwrap();
            let error = relative_error(&values(&model.weight.val()), &want.values);
            assert!(error < 2e-5, "{form:?}: {error}");
        }
    }
}
