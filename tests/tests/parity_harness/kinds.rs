//! Each kind notices a wrong expectation and a changed parameter, and takes what a case may leave out.

use serde_json::{Value, json};

use crate::case_folder::CaseFolder;

/// One small fixture of every kind.
const ONE_OF_EACH: [&str; 5] = [
    "kda/one_token",
    "kda_gate/softplus",
    "attnres/n9",
    "attnres_stack/one_block",
    "muon/plain_momentum",
];

/// Runs a fixture once for every tensor it expects, after `spoil` changed that tensor, and asserts that this
/// tensor and no other fails.
fn assert_noticed(spoil: impl Fn(&mut CaseFolder, &str), reason: &str) {
    for fixture in ONE_OF_EACH {
        let good = CaseFolder::copy_of(fixture);
        let expected = good
            .tensors
            .keys()
            .filter(|name| name.starts_with("out.") || name.starts_with("grad."));
        for tensor in expected {
            let mut case = CaseFolder::copy_of(fixture);
            spoil(&mut case, tensor);
            case.run().assert_only_failure(tensor, reason);
        }
    }
}

#[test]
fn a_wrong_value_in_any_expected_tensor_fails() {
    assert_noticed(
        |case, tensor| {
            case.edit(tensor, |values| {
                let largest = values
                    .iter()
                    .fold(0.0_f32, |most, value| most.max(value.abs()));
                let last = values.last_mut().expect("an element");
                *last += largest.max(1.0);
            });
        },
        "element",
    );
}

#[test]
fn nan_and_infinity_in_any_expected_tensor_fail() {
    for bad in [f32::NAN, f32::INFINITY] {
        assert_noticed(
            |case, tensor| {
                case.edit(tensor, |values| values[0] = bad);
            },
            "is ",
        );
    }
}

#[test]
fn another_shape_of_any_expected_tensor_fails() {
    assert_noticed(
        |case, tensor| {
            let stored = case.tensors.get_mut(tensor).expect("the tensor");
            stored.shape.push(1);
        },
        "shape",
    );
}

#[test]
fn an_expected_tensor_that_nothing_computes_fails() {
    let mut case = CaseFolder::copy_of("attnres/n9");
    case.insert_floats("out.entropy", &[1], &[0.0]);
    case.run()
        .assert_only_failure("out.entropy", "nothing computes");
}

#[test]
fn a_nan_input_fails_whatever_is_expected() {
    let mut case = CaseFolder::copy_of("attnres/n9");
    case.edit("in.v", |v| v[0] = f32::NAN);
    let run = case.run();
    assert_eq!(run.status, 1, "{run:?}");
    assert!(
        run.failures()
            .iter()
            .any(|line| line.contains("out.h  NaN")),
        "{run:?}"
    );
}

#[test]
fn every_parameter_matters() {
    let changes: [(&str, &str, Value); 12] = [
        ("kda/small", "scale", json!(0.26)),
        ("kda_gate/lower_bound", "lower_bound", json!(-4.9)),
        ("kda_gate/lower_bound", "lower_bound", json!(null)),
        ("attnres/n9", "eps", json!(0.1)),
        ("attnres_stack/full", "eps", json!(0.1)),
        ("muon/wide", "lr", json!(0.021)),
        ("muon/wide", "weight_decay", json!(0.0)),
        ("muon/wide", "momentum", json!(0.9)),
        ("muon/wide", "nesterov", json!(false)),
        ("muon/wide", "ns_steps", json!(4)),
        ("muon/wide", "ns", json!([3.4445, -4.775, 2.0])),
        ("muon/plain_momentum", "nesterov", json!(true)),
    ];
    for (fixture, field, value) in changes {
        let mut case = CaseFolder::copy_of(fixture);
        let run = case.set(field, value.clone()).run();
        assert_eq!(run.status, 1, "{fixture} with {field} {value}: {run:?}");
    }
}

#[test]
fn the_tolerance_of_a_tensor_is_that_of_its_whole_name() {
    let mut case = CaseFolder::copy_of("attnres/n9");
    case.edit("out.h", |h| h[0] += 0.5);
    case.run().assert_only_failure("out.h", "");
    case.set("rms_tol", json!({"out": 1e-5, "grad": 2e-4, "out.h": 1.0}));
    assert_eq!(case.run().status, 0);
}

#[test]
fn an_absolute_tolerance_can_stand_alone() {
    let mut case = CaseFolder::copy_of("attnres/n9");
    case.fields.remove("rms_tol");
    case.set("abs_tol", 1e-2);
    assert_eq!(case.run().status, 0);
    case.edit("out.h", |h| h[0] += 0.1);
    case.run().assert_only_failure("out.h", "element 0");
}

#[test]
fn the_query_of_a_single_source_needs_a_gradient_of_exactly_zero() {
    let case = CaseFolder::copy_of("attnres/n1");
    let run = case.run();
    for tensor in ["grad.w", "grad.gamma"] {
        let line = run.stdout.lines().find(|line| line.contains(tensor));
        let columns: Vec<_> = line.expect("the tensor is checked").split("  ").collect();
        assert_eq!(columns[3..], ["0.000e0", "0.000e0"], "{run:?}");
    }
}

#[test]
fn a_case_need_not_expect_the_depth_weights() {
    let mut case = CaseFolder::copy_of("attnres/n9");
    let run = case.remove("out.p").run();
    assert_eq!(run.status, 0, "{run:?}");
    assert!(run.stdout.ends_with("4 passed, 0 failed\n"), "{run:?}");
}

#[test]
fn a_schedule_with_other_sources_fails() {
    let mut case = CaseFolder::copy_of("attnres_stack/block2");
    case.set("sources_per_read", json!([1, 2, 2, 3, 3, 4, 4, 5, 4]));
    case.run()
        .assert_only_failure("sources_per_read", "wanted [1, 2, 2, 3, 3, 4, 4, 5, 4]");
    case.fields.remove("sources_per_read");
    assert_eq!(case.run().status, 0);
}

/// A case with no expectations yet, of one token, one head and width one: short enough to compute by hand.
fn by_hand(kind: &str, fields: Value, tensors: &[(&str, &[usize], f32)]) -> CaseFolder {
    let mut case = CaseFolder::copy_of("attnres/n1");
    case.tensors.clear();
    case.fields.clear();
    case.set("kind", kind).set("name", "by_hand");
    case.set("rms_tol", json!({"out": 1e-6, "grad": 1e-6}));
    for (field, value) in fields.as_object().expect("the fields") {
        case.set(field, value.clone());
    }
    for (name, shape, value) in tensors {
        case.insert_floats(name, shape, &[*value]);
    }
    case
}

#[test]
fn kda_without_an_incoming_state_starts_from_an_empty_one() {
    // S = beta v k = 7.5 and o = scale q S = 15; the loss is o alone.
    let one: &[usize] = &[1, 1, 1, 1];
    let case = by_hand(
        "kda",
        json!({"scale": 1.0}),
        &[
            ("in.q", one, 2.0),
            ("in.k", one, 3.0),
            ("in.v", one, 5.0),
            ("in.g", one, -1.0),
            ("in.beta", &[1, 1, 1], 0.5),
            ("out.o", one, 15.0),
            ("out.s", one, 7.5),
            ("cot.o", one, 1.0),
            ("grad.q", one, 7.5),
            ("grad.k", one, 5.0),
            ("grad.v", one, 3.0),
            ("grad.g", one, 0.0),
            ("grad.beta", &[1, 1, 1], 30.0),
        ],
    );
    let run = case.run();
    assert_eq!(run.status, 0, "{run:?}");
    assert!(run.stdout.ends_with("7 passed, 0 failed\n"), "{run:?}");
}

#[test]
fn a_gate_without_a_log_has_rate_one() {
    let one: &[usize] = &[1, 1, 1, 1];
    let gate = |lower_bound: Value, g: f32, slope: f32| {
        by_hand(
            "kda_gate",
            json!({"lower_bound": lower_bound}),
            &[
                ("in.x", one, 1.0),
                ("in.dt_bias", &[1, 1], -1.0),
                ("out.g", one, g),
                ("cot.g", one, 2.0),
                ("grad.x", one, 2.0 * slope),
                ("grad.dt_bias", &[1, 1], 2.0 * slope),
            ],
        )
    };
    // Softplus is ln 2 at 0 with slope 1/2; the sigmoid is 1/2 with slope 1/4.
    for case in [
        gate(json!(null), -std::f32::consts::LN_2, -0.5),
        gate(json!(-5.0), -2.5, -1.25),
    ] {
        let run = case.run();
        assert_eq!(run.status, 0, "{run:?}");
        assert!(run.stdout.ends_with("3 passed, 0 failed\n"), "{run:?}");
    }
}

#[test]
fn a_case_without_a_backward_pass_checks_its_outputs() {
    let mut case = CaseFolder::copy_of("kda/small");
    case.tensors
        .retain(|name, _| name.starts_with("in.") || name.starts_with("out."));
    let run = case.run();
    assert_eq!(run.status, 0, "{run:?}");
    assert!(run.stdout.ends_with("2 passed, 0 failed\n"), "{run:?}");
}

#[test]
fn inputs_without_an_expected_gradient_are_constants() {
    let mut case = CaseFolder::copy_of("kda/small");
    case.tensors
        .retain(|name, _| !name.starts_with("grad.") || name == "grad.v");
    let run = case.run();
    assert_eq!(run.status, 0, "{run:?}");
    assert!(run.stdout.ends_with("3 passed, 0 failed\n"), "{run:?}");
}

#[test]
fn a_sequence_without_tokens_returns_its_state() {
    let (empty, state): (&[usize], &[usize]) = (&[1, 0, 1, 2], &[1, 1, 2, 2]);
    let mut case = by_hand("kda", json!({"scale": 1.0}), &[]);
    for name in ["in.q", "in.k", "in.v", "in.g", "out.o", "cot.o"] {
        case.insert_floats(name, empty, &[]);
    }
    case.insert_floats("in.beta", &[1, 0, 1], &[]);
    case.insert_floats("in.s0", state, &[1.0, 2.0, 3.0, 4.0]);
    case.insert_floats("out.s", state, &[1.0, 2.0, 3.0, 4.0]);
    case.insert_floats("cot.s", state, &[5.0, 6.0, 7.0, 8.0]);
    case.insert_floats("grad.s0", state, &[5.0, 6.0, 7.0, 8.0]);
    case.insert_floats("grad.q", empty, &[]);
    let run = case.run();
    assert_eq!(run.status, 0, "{run:?}");
    assert!(run.stdout.ends_with("4 passed, 0 failed\n"), "{run:?}");
}
