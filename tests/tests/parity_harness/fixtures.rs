//! Every copied case passes.

use burn_kimi_model::DeviceName;
use tests::parity::{Outcome, Parity};

use crate::case_folder::fixtures;

#[track_caller]
fn assert_all_pass(kind: &str, cases: usize, checks: usize) {
    let folder = fixtures().join(kind);
    let found = std::fs::read_dir(&folder)
        .expect("the fixtures of the kind")
        .count();
    assert_eq!(found, cases, "cases in {}", folder.display());

    let parity = Parity {
        device: DeviceName::Flex
            .open()
            .expect("flex is in the default build"),
        tensor: None,
        folders: vec![folder],
    };
    let (mut out, mut errors) = (Vec::new(), Vec::new());
    let outcome = parity
        .run(&mut out, &mut errors)
        .expect("a vector takes any text");
    let [out, errors] = [out, errors].map(|bytes| String::from_utf8(bytes).expect("UTF-8"));
    assert_eq!(outcome, Outcome::Passed, "{out}{errors}");
    assert!(
        out.ends_with(&format!("\n{checks} passed, 0 failed\n")),
        "{out}"
    );
}

#[test]
fn kda() {
    // Two outputs and six gradients each.
    assert_all_pass("kda", 11, 11 * 8);
}

#[test]
fn kda_gate() {
    assert_all_pass("kda_gate", 3, 3 * 4);
}

#[test]
fn attnres() {
    assert_all_pass("attnres", 6, 6 * 5);
}

#[test]
fn attnres_stack() {
    assert_all_pass("attnres_stack", 4, 4 * 5);
}

#[test]
fn muon() {
    assert_all_pass("muon", 6, 6);
}

#[test]
fn qk_clip() {
    assert_all_pass("qk_clip", 2, 2 * 4);
}
