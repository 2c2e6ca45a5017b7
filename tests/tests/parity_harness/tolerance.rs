//! When two tensors agree.

use tests::parity::{StoredTensor, Tolerance, Values, compare};

fn floats(values: &[f32]) -> StoredTensor {
    StoredTensor {
        shape: vec![values.len()],
        values: Values::Float(values.to_vec()),
    }
}

fn ints(values: &[i64]) -> StoredTensor {
    StoredTensor {
        shape: vec![values.len()],
        values: Values::Int(values.to_vec()),
    }
}

fn relative(limit: f64) -> Tolerance {
    Tolerance {
        absolute: None,
        relative: Some(limit),
    }
}

fn absolute(limit: f64) -> Tolerance {
    Tolerance {
        absolute: Some(limit),
        relative: None,
    }
}

#[test]
fn relative_error_is_over_the_rms_of_the_expected_tensor() {
    // rms(want) = 5, rms(got - want) = 0.5.
    let (got, want) = (floats(&[5.5, -5.5]), floats(&[5.0, -5.0]));
    let comparison = compare(&got, &want, relative(0.11));
    assert!(comparison.agrees());
    assert!((comparison.error.unwrap() - 0.1).abs() < 1e-12);
    assert!(!compare(&got, &want, relative(0.09)).agrees());
}

#[test]
fn one_element_may_not_be_off_by_more_than_ten_tolerances() {
    // One element of 10,000 off by 0.2 of the rms: the rms error is 0.002.
    let want = vec![1.0; 10_000];
    let mut got = want.clone();
    got[1234] = 1.2;
    let comparison = compare(&floats(&got), &floats(&want), relative(0.01));
    let failure = comparison.failure.expect("0.2 is more than ten times 0.01");
    assert!(failure.contains("element 1234"), "{failure}");
    assert!(comparison.error.unwrap() < 0.01);
    assert!(compare(&floats(&got), &floats(&want), relative(0.021)).agrees());
}

#[test]
fn where_zero_is_wanted_the_rms_is_bounded_itself() {
    let zeros = floats(&[0.0; 4]);
    let small = floats(&[0.0, 0.0, 0.0, 2e-4]); // rms 1e-4
    assert!(compare(&small, &zeros, relative(1.1e-4)).agrees());
    assert!(!compare(&small, &zeros, relative(0.9e-4)).agrees());
    assert!(!compare(&small, &zeros, Tolerance::EXACT).agrees());
    assert!(compare(&zeros, &zeros, Tolerance::EXACT).agrees());
}

#[test]
fn absolute_error_is_of_the_worst_element() {
    let (got, want) = (floats(&[1.0, 2.25]), floats(&[1.0, 2.0]));
    assert!(compare(&got, &want, absolute(0.25)).agrees());
    assert!(!compare(&got, &want, absolute(0.2)).agrees());
}

#[test]
fn with_both_tolerances_each_must_hold() {
    let (got, want) = (floats(&[100.5]), floats(&[100.0]));
    let both = |absolute, relative| Tolerance {
        absolute: Some(absolute),
        relative: Some(relative),
    };
    assert!(compare(&got, &want, both(0.6, 0.006)).agrees());
    assert!(!compare(&got, &want, both(0.4, 0.006)).agrees());
    assert!(!compare(&got, &want, both(0.6, 0.004)).agrees());
}

#[test]
fn nan_and_infinity_never_agree_on_either_side() {
    for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
        for tolerance in [relative(1e30), absolute(1e30)] {
            assert!(!compare(&floats(&[bad]), &floats(&[1.0]), tolerance).agrees());
            assert!(!compare(&floats(&[1.0]), &floats(&[bad]), tolerance).agrees());
            assert!(!compare(&floats(&[bad]), &floats(&[bad]), tolerance).agrees());
        }
    }
}

#[test]
fn integers_are_equal_or_not() {
    assert!(compare(&ints(&[1, -2]), &ints(&[1, -2]), relative(0.0)).agrees());
    let comparison = compare(&ints(&[1, -2, 4]), &ints(&[1, -2, 3]), absolute(1e9));
    assert_eq!(comparison.error, Some(1.0));
    let failure = comparison.failure.expect("4 is not 3");
    assert!(failure.contains("is 4, wanted 3"), "{failure}");
}

#[test]
fn shape_and_element_type_must_match() {
    let mut reshaped = floats(&[1.0, 2.0]);
    reshaped.shape = vec![2, 1];
    assert!(!compare(&reshaped, &floats(&[1.0, 2.0]), relative(1.0)).agrees());
    assert!(!compare(&ints(&[1]), &floats(&[1.0]), relative(1.0)).agrees());
}

#[test]
fn empty_tensors_agree() {
    assert!(compare(&floats(&[]), &floats(&[]), relative(1e-5)).agrees());
}

#[test]
fn nothing_agrees_without_a_tolerance() {
    let none = Tolerance {
        absolute: None,
        relative: None,
    };
    assert!(!compare(&floats(&[1.0]), &floats(&[1.0]), none).agrees());
}
