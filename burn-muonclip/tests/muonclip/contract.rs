//! What holds for both forms, `init` and `init_fused`.

use burn::lr_scheduler::linear::LinearLrSchedulerConfig;
use burn::lr_scheduler::module_lr_scheduler::ModuleLrScheduler;
use burn::module::{Module, ParamGroup};
use burn::nn::LinearLayout;
use burn::optim::{GradientsAccumulator, GradientsParams};
use burn::tensor::{DType, FloatDType, Int, Tensor};
use burn_muonclip::MuonClipConfig;

use crate::models::{
    Empty, Mixed, MixtureOfExperts, Tied, device, in_dtype, linear, made_up_gradients, numbers,
    seeded, snapshot, tensor, training_device, values, with_value,
};
use crate::optimizers::{FORMS, Form, Optimizer};
use crate::reference::{self, Matrix, MuonRule, adamw_first_step, relative_error};

const RULE: MuonRule = MuonRule {
    momentum: 0.95,
    nesterov: true,
    weight_decay: 0.1,
};

fn config() -> MuonClipConfig {
    MuonClipConfig::new()
}

fn mixed() -> Mixed {
    seeded(Mixed::new(&training_device()))
}

/// Runs steps `from..to` with made-up gradients.
fn steps<M: Module>(optimizer: &mut Optimizer, mut model: M, from: u64, to: u64) -> M {
    for step in from..to {
        let grads = made_up_gradients(&model, step, 1.0);
        model = optimizer.step(0.02, model, grads);
    }
    model
}

#[test]
fn first_step_equals_the_formulas() {
    for form in FORMS {
        let model = mixed();
        let before = numbers(&model);
        let grads = made_up_gradients(&model, 1, 1.0);
        let up = grads.get::<2>(model.layers[0].up.weight.id).unwrap();
        let bias = grads
            .get::<1>(model.layers[0].up.bias.as_ref().unwrap().id)
            .unwrap();
        let model = form.init(&config(), &model).step(0.02, model, grads);
        let after = numbers(&model);

        let weight = Matrix::new(6, 10, before["layers.0.up.weight"].clone());
        let grad = Matrix::new(6, 10, values(&up));
        let want = reference::muon(&RULE, 0.02, &weight, &[grad]).remove(0);
        let error = relative_error(&after["layers.0.up.weight"], &want.values);
        assert!(error < 1e-5, "{form:?}: {error}");

        let want: Vec<f64> = before["layers.0.up.bias"]
            .iter()
            .zip(values(&bias))
            .map(|(&w, g)| adamw_first_step(w, g, 0.02, 0.1))
            .collect();
        let error = relative_error(&after["layers.0.up.bias"], &want);
        assert!(error < 1e-5, "{form:?}: {error}");
    }
}

#[test]
fn both_forms_give_the_same_weights_from_the_same_momentum() {
    let model = mixed();
    let mut module_form = Form::Module.init(&config(), &model);
    let model = steps(&mut module_form, model, 0, 3);
    // Each form loads what the other saved.
    let mut fused = Form::Fused
        .init(&config(), &model)
        .load_bytes(module_form.to_bytes());
    let mut module_form = Form::Module
        .init(&config(), &model)
        .load_bytes(fused.to_bytes());

    let a = numbers(&steps(&mut module_form, model.clone(), 3, 4));
    let b = numbers(&steps(&mut fused, model, 3, 4));
    for (path, a) in &a {
        let error = relative_error(a, &b[path]);
        assert!(error < 1e-6, "{path}: {error}");
    }
}

#[test]
fn resuming_equals_the_uninterrupted_run_bit_for_bit() {
    for form in FORMS {
        for dtype in [FloatDType::F32, FloatDType::BF16, FloatDType::F64] {
            let start = in_dtype(mixed(), dtype);
            let mut whole = form.init(&config(), &start);
            let middle = steps(&mut whole, start.clone(), 0, 4);
            let bytes = whole.to_bytes();
            let end = snapshot(&steps(&mut whole, middle.clone(), 4, 8));

            let mut resumed = form.init(&config(), &middle).load_bytes(bytes);
            let resumed_end = snapshot(&steps(&mut resumed, middle, 4, 8));
            assert_eq!(end, resumed_end, "{form:?} {dtype:?}");
        }
    }
}

#[test]
fn resuming_from_files_in_a_new_model_equals_the_uninterrupted_run() {
    for form in FORMS {
        let start = mixed();
        let mut whole = form.init(&config(), &start);
        let middle = steps(&mut whole, start, 0, 3);
        let folder = tempfile::tempdir().unwrap();
        let weights = folder.path().join("model.bpk");
        middle.clone().save_file(&weights).unwrap();
        let bytes = whole.to_bytes();
        let end = snapshot(&steps(&mut whole, middle, 3, 6));

        // A new process: new ids until the model's record is loaded.
        let model = Mixed::new(&training_device()).load_file(&weights);
        let mut resumed = form.init(&config(), &model).load_bytes(bytes);
        assert_eq!(end, snapshot(&steps(&mut resumed, model, 3, 6)), "{form:?}");
    }
}

#[test]
fn parameters_keep_their_dtype_and_stay_finite() {
    for form in FORMS {
        for dtype in [FloatDType::F16, FloatDType::BF16, FloatDType::F64] {
            // Elements near 1000 have a norm above 256, whose square leaves f16.
            for scale in [1e-4, 1.0, 1e3] {
                let mut model = in_dtype(mixed(), dtype);
                let mut optimizer = form.init(&config(), &model);
                for step in 0..3 {
                    let grads = made_up_gradients(&model, step, scale);
                    model = optimizer.step(0.02, model, grads);
                }
                assert_eq!(model.head.weight.val().dtype(), DType::from(dtype));
                assert_eq!(model.layers[0].up.weight.val().dtype(), DType::from(dtype));
                for (path, numbers) in numbers(&model) {
                    assert!(
                        numbers.iter().all(|v| v.is_finite()),
                        "{form:?} {dtype:?} {scale} {path}"
                    );
                }
            }
        }
    }
}

#[test]
fn half_precision_follows_full_precision() {
    for form in FORMS {
        let full = mixed();
        let half = in_dtype(full.clone(), FloatDType::BF16);
        let mut full_optimizer = form.init(&config(), &full);
        let mut half_optimizer = form.init(&config(), &half);
        let full = numbers(&steps(&mut full_optimizer, full, 0, 3));
        let half = numbers(&steps(&mut half_optimizer, half, 0, 3));
        for (path, full) in &full {
            let error = relative_error(&half[path], full);
            assert!(error < 2e-2, "{form:?} {path}: {error}");
        }
    }
}

#[test]
fn one_schedule_drives_all_parameters() {
    for form in FORMS {
        let model = mixed();
        let mut schedule = LinearLrSchedulerConfig::new(0.02, 0.01, 2).init().unwrap();
        let mut scheduled = form.init(&config(), &model);
        let mut constant = form.init(&config(), &model);
        let (mut a, mut b) = (model.clone(), model);
        for step in 0..3u64 {
            let lr = schedule.step();
            let base = lr.base();
            let grads = made_up_gradients(&a, step, 1.0);
            a = scheduled.step(lr, a, grads);
            let grads = made_up_gradients(&b, step, 1.0);
            b = constant.step(base, b, grads);
        }
        assert_eq!(snapshot(&a), snapshot(&b), "{form:?}");
    }
}

#[test]
fn learning_rates_of_groups_are_honoured() {
    for form in FORMS {
        let model = mixed();
        let before = snapshot(&model);
        let reference = form.init(&config(), &model).step(
            0.02,
            model.clone(),
            made_up_gradients(&model, 1, 1.0),
        );
        let still = ParamGroup::from_any_predicates(vec!["layers.1", "embedding"]);
        let mut schedule = ModuleLrScheduler::new(0.02).with_group(still.clone(), 0.0);
        let grads = made_up_gradients(&model, 1, 1.0);
        let after = form
            .init(&config(), &model)
            .step(schedule.step(), model, grads);
        let (after, reference) = (snapshot(&after), snapshot(&reference));
        for (path, bytes) in &after {
            let still = path.contains("layers.1") || path.contains("embedding");
            let want = if still {
                &before[path]
            } else {
                &reference[path]
            };
            assert_eq!(bytes, want, "{form:?} {path}");
        }
    }
}

#[test]
fn zero_gradients_only_decay() {
    for form in FORMS {
        for weight_decay in [0.0, 0.1] {
            let model = mixed();
            let before = numbers(&model);
            let config = config().with_weight_decay(weight_decay);
            let grads = made_up_gradients(&model, 1, 0.0);
            let after = numbers(&form.init(&config, &model).step(0.02, model, grads));
            for (path, after) in after {
                let factor = 1.0 - 0.02 * f64::from(weight_decay);
                let want: Vec<f64> = before[&path].iter().map(|w| w * factor).collect();
                let error = relative_error(&after, &want);
                assert!(error < 1e-6, "{form:?} {path}: {error}");
            }
        }
    }
}

#[test]
fn zero_learning_rate_leaves_bits_and_advances_momentum() {
    for form in FORMS {
        let mut model = mixed();
        // Negative zeros are the bits that arithmetic with zero loses.
        let (head, up) = (model.head.weight.clone(), model.layers[0].up.weight.clone());
        model.head.weight = with_value(head, tensor(&[-0.0; 72], [6, 12]));
        model.layers[0].up.weight = with_value(up, tensor(&[-0.0; 60], [6, 10]));
        let before = snapshot(&model);
        let mut warm = form.init(&config(), &model);
        let grads = made_up_gradients(&model, 1, 1.0);
        let model = warm.step(0.0, model, grads);
        assert_eq!(snapshot(&model), before, "{form:?}");

        let mut cold = form.init(&config(), &model);
        let a = numbers(&steps(&mut warm, model.clone(), 5, 6));
        let b = numbers(&steps(&mut cold, model, 5, 6));
        for path in ["layers.0.up.weight", "embedding.weight"] {
            assert!(
                relative_error(&a[path], &b[path]) > 1e-3,
                "{form:?} {path}: momentum did not advance"
            );
        }
    }
}

#[test]
fn frozen_parameters_stay() {
    for form in FORMS {
        let model = seeded(Mixed::new(&training_device()));
        let model = model.freeze_group(ParamGroup::from_any_predicates(vec![
            "layers.0",
            "embedding",
        ]));
        let before = snapshot(&model);
        let mut optimizer = form.init(&config(), &model);
        let tokens = Tensor::<2, Int>::from_data([[1, 2, 3], [4, 5, 6]], &training_device());
        let loss = model.forward(tokens).square().mean();
        let grads = GradientsParams::from_grads(loss.backward(), &model);
        let model = optimizer.step(0.02, model, grads);
        for (path, bytes) in snapshot(&model) {
            let frozen =
                path.contains("layers.0") || path.contains("embedding") || path.contains("conv");
            assert_eq!(bytes == before[&path], frozen, "{form:?} {path}");
        }
        assert!(!model.layers[0].up.weight.val().is_require_grad());
        assert!(model.layers[1].up.weight.val().is_require_grad());
    }
}

#[test]
fn training_goes_on_after_a_step_under_every_checkpointing_strategy() {
    for form in FORMS {
        for device in [
            training_device(),
            training_device().gradient_checkpointing(),
        ] {
            let mut model = Mixed::new(&device);
            let mut optimizer = form.init(&config(), &model);
            let tokens = Tensor::<2, Int>::from_data([[1, 2, 3], [4, 5, 6]], &device);
            let mut losses = Vec::new();
            for _ in 0..8 {
                let loss = model.forward(tokens.clone()).square().mean();
                losses.push(loss.clone().into_scalar::<f32>());
                let grads = GradientsParams::from_grads(loss.backward(), &model);
                assert!(grads.len() > 5);
                model = optimizer.step(0.02, model, grads);
            }
            assert!(losses[7] < losses[0], "{form:?}: {losses:?}");
            let weight = model.layers[0].up.weight.val();
            assert!(weight.is_require_grad());
            assert_eq!(
                weight.gradient_checkpointing_strategy(),
                device.gradient_checkpointing_strategy()
            );
        }
    }
}

#[test]
fn accumulated_micro_batches_equal_one_batch() {
    for form in FORMS {
        let model = mixed();
        let (a, b) = (
            made_up_gradients(&model, 1, 1.0),
            made_up_gradients(&model, 2, 1.0),
        );
        let mut accumulator = GradientsAccumulator::new();
        accumulator.accumulate(&model, a);
        accumulator.accumulate(&model, b);
        let split = numbers(&form.init(&config(), &model).step(
            0.02,
            model.clone(),
            accumulator.grads(),
        ));

        let (a, b) = (
            made_up_gradients(&model, 1, 1.0),
            made_up_gradients(&model, 2, 1.0),
        );
        let id = model.layers[0].up.weight.id;
        let sum = a.get::<2>(id).unwrap() + b.get::<2>(id).unwrap();
        let mut whole = GradientsParams::new();
        whole.register(id, sum);
        let whole = numbers(&form.init(&config(), &model).step(0.02, model, whole));
        let path = "layers.0.up.weight";
        assert!(
            relative_error(&split[path], &whole[path]) < 1e-6,
            "{form:?}"
        );
    }
}

#[test]
fn expert_stacks_are_independent_matrices() {
    for form in FORMS {
        let model = seeded(MixtureOfExperts::new(&training_device()));
        let before = numbers(&model)["experts"].clone();
        let grads = made_up_gradients(&model, 1, 1.0);
        let scale = Tensor::<3>::from_data([[[1.0]], [[1e3]], [[1e-6]], [[1e6]]], &device());
        let grad = grads.get::<3>(model.experts.id).unwrap() * scale;
        let mut grads = grads;
        grads.register(model.experts.id, grad.clone());
        let after =
            numbers(&form.init(&config(), &model).step(0.02, model, grads))["experts"].clone();
        for e in 0..4 {
            let part = e * 35..(e + 1) * 35;
            let weight = Matrix::new(5, 7, before[part.clone()].to_vec());
            let grad = Matrix::new(5, 7, values(&grad)[part.clone()].to_vec());
            let want = reference::muon(&RULE, 0.02, &weight, &[grad]).remove(0);
            let error = relative_error(&after[part], &want.values);
            assert!(error < 1e-5, "{form:?} expert {e}: {error}");
        }
    }
}

#[test]
fn orientation_and_storage_do_not_change_the_update() {
    for form in FORMS {
        for (rows, columns) in [(6, 15), (15, 6)] {
            let row = seeded(linear(rows, columns, LinearLayout::Row, &training_device()));
            let col = seeded(linear(rows, columns, LinearLayout::Col, &training_device()));
            let (a, b) = (row.weight.val(), col.weight.val());
            assert_eq!(values(&a), values(&b));
            let mut results = Vec::new();
            for model in [row, col] {
                let mut optimizer = form.init(&config(), &model);
                results.push(
                    numbers(&steps(&mut optimizer, model, 0, 3))
                        .remove("weight")
                        .unwrap(),
                );
            }
            assert!(relative_error(&results[0], &results[1]) < 1e-6, "{form:?}");
        }
    }
}

#[test]
fn col_layout_survives_saving_and_resuming() {
    for form in FORMS {
        let start = linear(6, 15, LinearLayout::Col, &training_device());
        let mut whole = form.init(&config(), &start);
        let middle = steps(&mut whole, start, 0, 2);
        let folder = tempfile::tempdir().unwrap();
        let weights = folder.path().join("model.bpk");
        middle.clone().save_file(&weights).unwrap();
        let bytes = whole.to_bytes();
        let end = numbers(&steps(&mut whole, middle, 2, 4));

        let fresh = linear(6, 15, LinearLayout::Col, &training_device()).load_file(&weights);
        let mut resumed = form.init(&config(), &fresh).load_bytes(bytes);
        let resumed = numbers(&steps(&mut resumed, fresh, 2, 4));
        assert!(
            relative_error(&resumed["weight"], &end["weight"]) < 1e-6,
            "{form:?}"
        );
    }
}

#[test]
fn empty_modules_and_empty_gradients_do_nothing() {
    for form in FORMS {
        let mut optimizer = form.init(&config(), &Empty);
        optimizer.step(0.02, Empty, GradientsParams::new());
        let _ = form
            .init(&config(), &Empty)
            .load_bytes(optimizer.to_bytes());

        let model = mixed();
        let before = snapshot(&model);
        let after = form
            .init(&config(), &model)
            .step(0.02, model, GradientsParams::new());
        assert_eq!(snapshot(&after), before);
    }
}

#[test]
fn models_with_shared_parameters_are_trained_by_both_forms() {
    for form in FORMS {
        let mut model = seeded(Tied::new(&training_device()));
        model.second = model.first.clone();
        let before = snapshot(&model);
        let mut optimizer = form.init(&config(), &model);
        let after = steps(&mut optimizer, model, 0, 2);
        let restored = form
            .init(&config(), &after)
            .load_bytes(optimizer.to_bytes());
        drop(restored);
        let after = snapshot(&after);
        assert_ne!(before["first.weight"], after["first.weight"], "{form:?}");
        // Burn's form updates the first use only; the fused form keeps both equal.
        let follows = after["first.weight"] == after["second.weight"];
        assert_eq!(follows, form == Form::Fused, "{form:?}");
    }
}
