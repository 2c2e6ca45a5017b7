//! States from outside: every error, and nothing half-loaded.

use burn::module::ParamGroup;
use burn::nn::LinearLayout;
use burn::optim::{AdamConfig, GradientsParams};
use burn::tensor::Bytes;
use burn_muonclip::{MuonClip, MuonClipConfig, Route, StateError};
use burn_pack::{DType, Reader, Scalar, Tensor, Writer};

use crate::models::{Mixed, linear, made_up_gradients, numbers, seeded, snapshot, training_device};
use crate::reference::relative_error;

const UP: &str = "layers.0.up.weight";

fn mixed() -> Mixed {
    seeded(Mixed::new(&training_device()))
}

/// An optimizer after two steps, and its model.
fn trained(config: &MuonClipConfig) -> (MuonClip, Mixed) {
    let mut model = mixed();
    let mut optimizer = config.init_fused(&model);
    for step in 0..2 {
        let grads = made_up_gradients(&model, step, 1.0);
        model = optimizer.step(0.02, model, grads);
    }
    (optimizer, model)
}

fn fresh(model: &Mixed) -> MuonClip {
    MuonClipConfig::new().init_fused(model)
}

/// Loads a state whose parts were changed by `change`, and returns the error.
fn load_changed(
    change: impl Fn(&mut Vec<Tensor>, &mut Vec<(String, Scalar)>, &mut Vec<(String, String)>),
) -> StateError {
    let (optimizer, model) = trained(&MuonClipConfig::new());
    let reader = Reader::from_bytes(optimizer.into_bytes().unwrap()).unwrap();
    let mut scalars: Vec<_> = reader.scalars().clone().into_iter().collect();
    let mut paths: Vec<_> = reader.metadata().clone().into_iter().collect();
    let mut tensors = reader.into_tensors().unwrap();
    change(&mut tensors, &mut scalars, &mut paths);
    let mut writer = Writer::new(tensors);
    for (name, value) in scalars {
        writer = writer.with_scalar(&name, value);
    }
    for (id, path) in paths {
        writer = writer.with_metadata(&id, &path);
    }
    fresh(&model)
        .from_bytes(writer.into_bytes().unwrap())
        .unwrap_err()
}

fn id_of(paths: &[(String, String)], path: &str) -> String {
    paths.iter().find(|(_, p)| p == path).unwrap().0.clone()
}

fn float(name: String, shape: Vec<usize>) -> Tensor {
    let bytes = vec![0u8; 4 * shape.iter().product::<usize>()];
    Tensor::new(name, DType::F32, shape, None, Bytes::from_bytes_vec(bytes))
}

#[test]
fn files_and_records_round_trip() {
    let (optimizer, model) = trained(&MuonClipConfig::new());
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("optimizer.bpk");
    optimizer.save(&file).unwrap();
    let left_over: Vec<_> = std::fs::read_dir(folder.path()).unwrap().collect();
    assert_eq!(left_over.len(), 1);
    for loaded in [
        fresh(&model).load(&file).unwrap(),
        fresh(&model)
            .load_record(optimizer.to_record().unwrap())
            .unwrap(),
    ] {
        assert_eq!(
            loaded.into_bytes().unwrap().to_vec(),
            optimizer.into_bytes().unwrap().to_vec()
        );
    }
}

#[test]
fn states_follow_paths_when_ids_are_new() {
    let (mut whole, model) = trained(&MuonClipConfig::new());
    let bytes = whole.into_bytes().unwrap();
    // The same weights under new ids, as after importing them from another format.
    let renamed = crate::models::with_new_ids(model.clone());
    let mut resumed = fresh(&renamed).from_bytes(bytes).unwrap();
    let a = whole.step(0.02, model.clone(), made_up_gradients(&model, 5, 1.0));
    let b = resumed.step(0.02, renamed.clone(), made_up_gradients(&renamed, 5, 1.0));
    assert_eq!(snapshot(&a), snapshot(&b));
}

#[test]
fn ids_may_change_between_building_and_stepping() {
    let (mut whole, model) = trained(&MuonClipConfig::new());
    let bytes = whole.into_bytes().unwrap();
    // Optimizer first, model record second.
    let mut resumed = fresh(&mixed()).from_bytes(bytes).unwrap();
    let a = whole.step(0.02, model.clone(), made_up_gradients(&model, 5, 1.0));
    let b = resumed.step(0.02, model.clone(), made_up_gradients(&model, 5, 1.0));
    assert_eq!(snapshot(&a), snapshot(&b));
}

#[test]
fn regrouping_is_refused_in_both_directions() {
    let hidden = || ParamGroup::from_path(UP);
    let plain = MuonClipConfig::new();
    let regrouped = MuonClipConfig::new().with_adamw(hidden());
    for (then, now, saved, wanted) in [
        (&plain, &regrouped, Route::Muon, Route::AdamW),
        (&regrouped, &plain, Route::AdamW, Route::Muon),
    ] {
        let (optimizer, model) = trained(then);
        let error = now
            .init_fused(&model)
            .from_bytes(optimizer.into_bytes().unwrap())
            .unwrap_err();
        assert_eq!(
            error,
            StateError::Regrouped {
                path: UP.to_owned(),
                saved,
                now: wanted
            }
        );
        assert!(error.to_string().contains(UP));
    }
}

#[test]
fn regrouping_of_the_per_parameter_form_is_seen_too() {
    let model = mixed();
    let mut optimizer = MuonClipConfig::new().init(&model);
    let model = optimizer.step(0.02, model.clone(), made_up_gradients(&model, 1, 1.0));
    let now = MuonClipConfig::new()
        .with_adamw(ParamGroup::from_path(UP))
        .init_fused(&model);
    let error = now.load_record(optimizer.to_record()).unwrap_err();
    assert!(matches!(error, StateError::Regrouped { path, .. } if path == UP));
}

#[test]
fn unknown_parameters_are_refused() {
    let error = load_changed(|_, _, paths| {
        let entry = paths.iter_mut().find(|(_, path)| path == UP).unwrap();
        entry.1 = "layers.9.up.weight".to_owned();
    });
    assert_eq!(
        error,
        StateError::UnknownParameter {
            path: "layers.9.up.weight".to_owned()
        }
    );
}

#[test]
fn states_without_a_path_go_by_id() {
    let error = load_changed(|tensors, _, _| {
        tensors.push(float("7.momentum_buffer".to_owned(), vec![2, 2]))
    });
    assert_eq!(
        error,
        StateError::UnknownParameter {
            path: "id 7".to_owned()
        }
    );
}

#[test]
fn changed_shapes_are_refused() {
    let error = load_changed(|tensors, _, paths| {
        let name = format!("{}.momentum_buffer", id_of(paths, UP));
        tensors.retain(|tensor| tensor.name != name);
        tensors.push(float(name, vec![10, 6]));
    });
    assert_eq!(
        error,
        StateError::ShapeChanged {
            path: UP.to_owned(),
            field: "momentum_buffer".to_owned(),
            saved: vec![10, 6],
            now: vec![6, 10]
        }
    );
}

#[test]
fn states_are_compared_with_parameters_that_are_not_initialised_yet() {
    let layouts = [LinearLayout::Row, LinearLayout::Col];
    let muon = MuonClipConfig::new();
    let adamw = MuonClipConfig::new().with_adamw(ParamGroup::from_path("weight"));
    for (config, field) in [(&muon, "momentum_buffer"), (&adamw, "momentum.moment_1")] {
        for (saved_layout, layout) in layouts.iter().flat_map(|a| layouts.map(|b| (*a, b))) {
            let device = training_device();
            let model = linear(10, 6, saved_layout, &device);
            let mut optimizer = config.init_fused(&model);
            let grads = made_up_gradients(&model, 0, 1.0);
            let model = optimizer.step(0.02, model, grads);
            let bytes = optimizer.into_bytes().unwrap();

            let transposed = linear(6, 10, layout, &device);
            let error = config.init_fused(&transposed).from_bytes(bytes.clone());
            assert_eq!(
                error.unwrap_err(),
                StateError::ShapeChanged {
                    path: "weight".to_owned(),
                    field: field.to_owned(),
                    saved: vec![10, 6],
                    now: vec![6, 10]
                },
                "{layout:?}"
            );

            let lazy = linear(10, 6, layout, &device);
            let mut resumed = config.init_fused(&lazy).from_bytes(bytes).unwrap();
            assert!(!lazy.weight.is_initialized());
            let grads = made_up_gradients(&model, 1, 1.0);
            let want = numbers(&optimizer.step(0.02, model.clone(), grads));
            let grads = made_up_gradients(&model, 1, 1.0);
            let found = numbers(&resumed.step(0.02, model, grads));
            let error = relative_error(&found["weight"], &want["weight"]);
            assert!(error < 1e-6, "{saved_layout:?} {layout:?}: {error}");
        }
    }
}

#[test]
#[should_panic(expected = "the state of `weight` has shape [10, 6], the parameter has [6, 10]")]
fn a_state_of_another_shape_stops_the_step_by_name() {
    let device = training_device();
    let model = linear(10, 6, LinearLayout::Row, &device);
    let mut optimizer = MuonClipConfig::new().init_fused(&model);
    let grads = made_up_gradients(&model, 0, 1.0);
    optimizer.step(0.02, model, grads);
    let other = linear(6, 10, LinearLayout::Row, &device);
    let grads = made_up_gradients(&other, 0, 1.0);
    optimizer.step(0.02, other, grads);
}

#[test]
fn missing_and_foreign_fields_are_refused() {
    let bad = |error| match error {
        StateError::BadField { path, field, .. } => (path, field),
        other => panic!("{other}"),
    };
    let missing_moment = load_changed(|tensors, _, paths| {
        let name = format!("{}.momentum.moment_2", id_of(paths, "norm.gamma"));
        tensors.retain(|tensor| tensor.name != name);
    });
    assert_eq!(
        bad(missing_moment),
        ("norm.gamma".to_owned(), "momentum.moment_2".to_owned())
    );

    let missing_time = load_changed(|_, scalars, paths| {
        let name = format!("{}.momentum.time", id_of(paths, "norm.gamma"));
        scalars.retain(|(scalar, _)| *scalar != name);
    });
    assert_eq!(
        bad(missing_time),
        ("norm.gamma".to_owned(), "momentum.time".to_owned())
    );

    let missing_momentum = load_changed(|tensors, _, paths| {
        let name = format!("{}.momentum_buffer", id_of(paths, UP));
        tensors.retain(|tensor| tensor.name != name);
    });
    assert_eq!(
        bad(missing_momentum),
        (UP.to_owned(), "momentum_buffer".to_owned())
    );

    let both = load_changed(|tensors, _, paths| {
        tensors.push(float(
            format!("{}.momentum.moment_1", id_of(paths, UP)),
            vec![6, 10],
        ));
    });
    assert_eq!(bad(both), (UP.to_owned(), "momentum_buffer".to_owned()));

    let integers = load_changed(|tensors, _, paths| {
        let name = format!("{}.momentum_buffer", id_of(paths, UP));
        tensors.retain(|tensor| tensor.name != name);
        let bytes = Bytes::from_bytes_vec(vec![0u8; 4 * 60]);
        tensors.push(Tensor::new(name, DType::I32, vec![6, 10], None, bytes));
    });
    assert_eq!(bad(integers), (UP.to_owned(), "momentum_buffer".to_owned()));
}

#[test]
fn two_states_for_one_parameter_are_refused() {
    let error = load_changed(|tensors, _, paths| {
        paths.push(("7".to_owned(), UP.to_owned()));
        tensors.push(float("7.momentum_buffer".to_owned(), vec![6, 10]));
    });
    assert_eq!(
        error,
        StateError::Duplicate {
            path: UP.to_owned()
        }
    );
}

#[test]
fn the_state_of_another_optimizer_is_refused() {
    let model = mixed();
    let mut adam = AdamConfig::new().init();
    let model = adam.step(0.02, model.clone(), made_up_gradients(&model, 1, 1.0));
    let error = fresh(&model).load_record(adam.to_record()).unwrap_err();
    assert!(
        matches!(
            error,
            StateError::Regrouped { .. } | StateError::BadField { .. }
        ),
        "{error}"
    );
}

#[test]
fn broken_bytes_never_panic() {
    let (optimizer, model) = trained(&MuonClipConfig::new());
    let whole = optimizer.into_bytes().unwrap().to_vec();
    for length in [0, 1, 9, 10, 100, whole.len() / 2, whole.len() - 1] {
        let error = fresh(&model)
            .from_bytes(Bytes::from_bytes_vec(whole[..length].to_vec()))
            .unwrap_err();
        assert!(
            matches!(error, StateError::Decode { .. }),
            "{length}: {error}"
        );
    }
    for position in (0..whole.len().min(4000)).step_by(37) {
        let mut bytes = whole.clone();
        bytes[position] ^= 0xFF;
        // Some bytes are padding or values; what matters is that none of them panics.
        let _ = fresh(&model).from_bytes(Bytes::from_bytes_vec(bytes));
    }
    let named = load_changed(|tensors, _, _| tensors.push(float("nonsense".to_owned(), vec![2])));
    assert!(matches!(named, StateError::Decode { .. }), "{named}");
}

#[test]
fn unreadable_and_unwritable_files_name_the_file() {
    let (optimizer, model) = trained(&MuonClipConfig::new());
    let folder = tempfile::tempdir().unwrap();
    let missing = folder.path().join("missing.bpk");
    let error = fresh(&model).load(&missing).unwrap_err();
    assert!(
        matches!(&error, StateError::Read { file, .. } if *file == missing),
        "{error}"
    );

    let text = folder.path().join("text.bpk");
    std::fs::write(&text, "no optimizer state").unwrap();
    let error = fresh(&model).load(&text).unwrap_err();
    assert!(
        matches!(&error, StateError::Read { file, .. } if *file == text),
        "{error}"
    );

    let nowhere = folder.path().join("no/such/folder/optimizer.bpk");
    let error = optimizer.save(&nowhere).unwrap_err();
    assert!(
        matches!(&error, StateError::Write { file, .. } if *file == nowhere),
        "{error}"
    );
}

#[test]
fn an_empty_state_is_a_state() {
    let model = mixed();
    let bytes = fresh(&model).into_bytes().unwrap();
    let mut loaded = fresh(&model).from_bytes(bytes).unwrap();
    loaded.step(0.02, model, GradientsParams::new());
}
