//! Cases that cannot be read: exit status 2, and a message that names the file and what is wrong in it.

use safetensors::tensor::Dtype;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::case_folder::{CaseFolder, parity};

/// Asserts that a fixture, once spoilt, cannot be read, and that the message holds all `words`.
#[track_caller]
fn assert_spoilt(fixture: &str, spoil: impl FnOnce(&mut CaseFolder), words: &[&str]) {
    let mut case = CaseFolder::copy_of(fixture);
    spoil(&mut case);
    case.run().assert_unreadable(words);
}

/// Asserts the same for a case of which one whole file is replaced.
#[track_caller]
fn assert_spoilt_file(file: &str, content: impl FnOnce(Vec<u8>) -> Vec<u8>, words: &[&str]) {
    let case = CaseFolder::copy_of("attnres/n9");
    case.write();
    let good = std::fs::read(case.file(file)).expect("the copy is there");
    std::fs::write(case.file(file), content(good)).expect("the copy is spoilt");
    parity([case.path()]).assert_unreadable(words);
}

#[test]
fn a_path_that_does_not_exist() {
    parity(["no/such/folder"]).assert_unreadable(&["no/such/folder", "no such folder"]);
}

#[test]
fn a_file_in_place_of_a_folder() {
    let case = CaseFolder::copy_of("attnres/n9");
    case.write();
    parity([case.file("case.json")]).assert_unreadable(&["case.json", "no such folder"]);
}

#[test]
fn a_folder_without_cases() {
    let empty = TempDir::new().expect("a temporary folder");
    let run = parity([empty.path()]);
    run.assert_unreadable(&[&empty.path().display().to_string(), "no case.json"]);
    assert!(run.stdout.ends_with("0 passed, 0 failed\n"), "{run:?}");
}

#[test]
fn a_missing_file() {
    for file in ["case.json", "tensors.safetensors"] {
        let case = CaseFolder::copy_of("attnres/n9");
        case.write();
        std::fs::remove_file(case.file(file)).expect("the file was written");
        parity([case.path()]).assert_unreadable(&[file, "No such file"]);
    }
}

#[test]
fn json_that_is_no_object() {
    for text in ["", "{", "[]", "{\"kind\": \"attnres\",}", "\u{0}\u{1}"] {
        assert_spoilt_file("case.json", |_| text.into(), &["case.json", "JSON"]);
    }
}

#[test]
fn a_missing_field() {
    let needed = [
        ("kda/small", vec!["kind", "name", "scale"]),
        ("kda_gate/softplus", vec!["lower_bound"]),
        ("attnres/n9", vec!["eps"]),
        (
            "attnres_stack/full",
            vec!["eps", "sublayers", "sublayers_per_block"],
        ),
        (
            "muon/wide",
            vec![
                "lr",
                "weight_decay",
                "momentum",
                "nesterov",
                "ns_steps",
                "ns",
                "scale",
            ],
        ),
    ];
    for (fixture, fields) in needed {
        for field in fields {
            let spoil = |case: &mut CaseFolder| {
                case.fields.remove(field);
            };
            assert_spoilt(
                fixture,
                spoil,
                &["case.json", &format!("`{field}` is missing")],
            );
        }
    }
}

#[test]
fn a_field_of_another_type_or_without_sense() {
    let wrong: [(&str, &str, Value); 19] = [
        ("kda/small", "kind", json!(3)),
        ("kda/small", "name", json!(null)),
        ("kda/small", "scale", json!("0.25")),
        ("kda/small", "rms_tol", json!(1e-5)),
        ("kda/small", "rms_tol", json!({"out": "1e-5", "grad": 1e-4})),
        ("kda/small", "rms_tol", json!({"out": -1e-5, "grad": 1e-4})),
        ("kda/small", "abs_tol", json!("small")),
        ("kda_gate/lower_bound", "lower_bound", json!("-5")),
        ("kda_gate/lower_bound", "lower_bound", json!(5.0)),
        ("attnres/n9", "eps", json!([1e-6])),
        ("attnres/n9", "eps", json!(-1e-6)),
        ("attnres_stack/full", "sublayers_per_block", json!(0)),
        ("attnres_stack/full", "sublayers_per_block", json!(1.5)),
        ("attnres_stack/full", "sources_per_read", json!("1,2")),
        ("muon/wide", "nesterov", json!(1)),
        ("muon/wide", "ns_steps", json!(-5)),
        ("muon/wide", "ns_steps", json!(1_000_000_000_000_u64)),
        ("muon/wide", "ns", json!([3.4445, -4.775])),
        ("muon/wide", "scale", json!("sqrt(max(1,n/m))")),
    ];
    for (fixture, field, value) in wrong {
        let spoil = |case: &mut CaseFolder| {
            case.set(field, value);
        };
        assert_spoilt(fixture, spoil, &["case.json", &format!("`{field}`")]);
    }
}

#[test]
fn a_tensor_without_a_tolerance() {
    let spoil = |case: &mut CaseFolder| {
        case.set("rms_tol", json!({"out": 1e-5}));
    };
    assert_spoilt(
        "attnres/n9",
        spoil,
        &["case.json", "`rms_tol.grad` is missing"],
    );
}

#[test]
fn a_kind_that_nobody_knows() {
    let spoil = |case: &mut CaseFolder| {
        case.set("kind", "mamba");
    };
    assert_spoilt(
        "kda/small",
        spoil,
        &["case.json", "unknown kind `mamba`", "kda_gate"],
    );
}

#[test]
fn a_missing_tensor() {
    let needed = [
        (
            "kda/small",
            vec![
                "in.q", "in.k", "in.v", "in.g", "in.beta", "in.s0", "out.o", "out.s",
            ],
        ),
        (
            "kda_gate/softplus",
            vec!["in.x", "in.a_log", "in.dt_bias", "out.g", "cot.g"],
        ),
        (
            "attnres/n9",
            vec!["in.v", "in.w", "in.gamma", "out.h", "cot.h"],
        ),
        (
            "attnres_stack/full",
            vec!["in.x", "in.W", "in.w", "in.gamma", "out.h", "cot.h"],
        ),
        ("muon/wide", vec!["in.w0", "in.grads", "out.w"]),
    ];
    for (fixture, tensors) in needed {
        for tensor in tensors {
            let spoil = |case: &mut CaseFolder| {
                case.remove(tensor);
            };
            let message = format!("`{tensor}` is missing");
            assert_spoilt(fixture, spoil, &["tensors.safetensors", &message]);
        }
    }
}

#[test]
fn a_tensor_of_another_element_type() {
    for (dtype, bytes) in [
        (Dtype::F64, 8),
        (Dtype::F16, 2),
        (Dtype::I64, 8),
        (Dtype::BF16, 2),
    ] {
        for tensor in ["in.w", "out.h", "grad.v", "cot.h"] {
            let spoil = |case: &mut CaseFolder| {
                let stored = case.tensors.get_mut(tensor).expect("the tensor to spoil");
                let elements: usize = stored.shape.iter().product();
                stored.dtype = dtype;
                stored.data = vec![0; elements * bytes];
            };
            let words = ["tensors.safetensors", tensor, "wanted F32"];
            assert_spoilt("attnres/n9", spoil, &words);
        }
    }
}

#[test]
fn a_tensor_whose_shape_contradicts_the_others() {
    let wrong: [(&str, &str, &[usize]); 11] = [
        ("kda/small", "in.q", &[2, 70, 32]),
        ("kda/small", "in.k", &[2, 70, 1, 32]),
        ("kda/small", "in.v", &[2, 35, 4, 16]),
        ("kda/small", "in.g", &[2, 70, 4, 8]),
        ("kda/small", "in.beta", &[2, 2, 70]),
        ("kda/small", "in.s0", &[2, 2, 8, 32]),
        ("kda_gate/softplus", "in.dt_bias", &[8, 3]),
        ("attnres/n9", "in.gamma", &[2, 16]),
        ("attnres_stack/full", "in.W", &[3, 32, 16]),
        ("attnres_stack/full", "in.w", &[16, 7]),
        ("muon/wide", "in.grads", &[6, 80, 16]),
    ];
    for (fixture, tensor, shape) in wrong {
        let spoil = |case: &mut CaseFolder| {
            case.tensors.get_mut(tensor).expect("the tensor").shape = shape.to_vec();
        };
        let words = [
            "tensors.safetensors",
            tensor,
            &format!("{shape:?}"),
            "wanted",
        ];
        assert_spoilt(fixture, spoil, &words);
    }
}

#[test]
fn value_heads_that_are_no_multiple_of_the_heads() {
    let spoil = |case: &mut CaseFolder| {
        case.insert_floats("in.v", &[2, 70, 3, 16], &[0.5; 2 * 70 * 3 * 16]);
    };
    assert_spoilt(
        "kda/small",
        spoil,
        &["in.v", "[2, 70, 3, 16]", "multiple of the 2"],
    );
}

#[test]
fn an_empty_axis_where_nothing_could_be_computed() {
    let empty: [(&str, &str, &[usize]); 7] = [
        ("kda/small", "in.q", &[0, 70, 2, 16]),
        ("kda/small", "in.q", &[2, 70, 2, 0]),
        ("kda/small", "in.v", &[2, 70, 2, 0]),
        ("attnres/n9", "in.v", &[0, 2, 7, 32]),
        ("attnres_stack/full", "in.x", &[0, 4, 16]),
        ("attnres_stack/full", "in.x", &[2, 4, 0]),
        ("muon/wide", "in.w0", &[0, 80]),
    ];
    for (fixture, tensor, shape) in empty {
        let spoil = |case: &mut CaseFolder| {
            case.insert_floats(tensor, shape, &[]);
        };
        assert_spoilt(fixture, spoil, &[tensor, &format!("{shape:?}"), "at least"]);
    }
}

#[test]
fn an_impossible_number_of_sublayers() {
    let spoil = |case: &mut CaseFolder| {
        case.set("sublayers", usize::MAX);
    };
    assert_spoilt("attnres_stack/full", spoil, &["in.W", "[6, 16, 16]"]);
}

#[test]
fn a_cotangent_of_another_shape_than_its_output() {
    let spoil = |case: &mut CaseFolder| {
        case.tensors.get_mut("cot.h").expect("the cotangent").shape = vec![7, 2, 32];
    };
    assert_spoilt("attnres/n9", spoil, &["cot.h", "[7, 2, 32]", "out.h"]);
}

#[test]
fn a_gradient_of_an_input_that_is_not_there() {
    let spoil = |case: &mut CaseFolder| {
        case.insert_floats("grad.x", &[1], &[0.0]);
    };
    assert_spoilt("attnres/n9", spoil, &["`in.x` is missing"]);
}

#[test]
fn a_truncated_tensor_file() {
    let length = |bytes: &[u8]| bytes.len();
    for keep in [0, 4, 8, 100] {
        assert_spoilt_file(
            "tensors.safetensors",
            |bytes| bytes[..keep].to_vec(),
            &["tensors.safetensors", "not a safetensors file"],
        );
    }
    assert_spoilt_file(
        "tensors.safetensors",
        |bytes| bytes[..length(&bytes) - 1].to_vec(),
        &["tensors.safetensors", "not a safetensors file"],
    );
}

#[test]
fn a_tensor_file_with_a_hostile_header() {
    let header = |length: u64, text: &str| [&length.to_le_bytes(), text.as_bytes()].concat();
    let overlong =
        r#"{"in.v":{"dtype":"F32","shape":[4611686018427387904,4],"data_offsets":[0,0]}}"#;
    let outside = r#"{"in.v":{"dtype":"F32","shape":[2],"data_offsets":[100,108]}}"#;
    for spoilt in [
        header(u64::MAX, "{}"),
        header(2, "[]"),
        header(2, "{\u{7f}"),
        header(overlong.len() as u64, overlong),
        header(outside.len() as u64, outside),
    ] {
        assert_spoilt_file(
            "tensors.safetensors",
            |_| spoilt,
            &["tensors.safetensors", "not a safetensors file"],
        );
    }
}
