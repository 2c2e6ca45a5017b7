//! Newton-Schulz against the f64 formula, and its invariants.

use burn::tensor::{DType, Tensor};
use burn_muonclip::{NewtonSchulzConfig, newton_schulz};
use proptest::prelude::*;

use crate::models::{matrix, noise, tensor, values};
use crate::reference::{self, Matrix, STANDARD, relative_error};

fn standard() -> NewtonSchulzConfig {
    NewtonSchulzConfig::new()
}

fn stack(matrices: &[Matrix]) -> Tensor<3> {
    let all: Vec<f64> = matrices.iter().flat_map(|m| m.values.clone()).collect();
    tensor(
        &all,
        [matrices.len(), matrices[0].rows, matrices[0].columns],
    )
}

fn orthogonalized(matrix: &Matrix) -> Vec<f64> {
    values(&newton_schulz(
        stack(std::slice::from_ref(matrix)),
        &standard(),
    ))
}

fn wanted(matrix: &Matrix) -> Vec<f64> {
    // The input as the tensor holds it.
    let rounded = matrix.values.iter().map(|&v| f64::from(v as f32)).collect();
    let rounded = Matrix::new(matrix.rows, matrix.columns, rounded);
    reference::newton_schulz(&rounded, &[STANDARD; 5]).values
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn equals_the_formula_for_any_shape_and_scale(
        batch in 1usize..4,
        n in 1usize..24,
        m in 1usize..24,
        exponent in -14i32..=12,
        seed in 0u64..1000,
    ) {
        let matrices: Vec<Matrix> = (0..batch as u64)
            .map(|i| matrix(seed * 10 + i, n, m).scaled(10f64.powi(exponent)))
            .collect();
        let got = values(&newton_schulz(stack(&matrices), &standard()));
        for (got, matrix) in got.chunks(n * m).zip(&matrices) {
            let error = relative_error(got, &wanted(matrix));
            // Rounding in the smallest singular values grows by up to 3.4445^5 = 485.
            prop_assert!(error < 2e-4, "{n}x{m} at 1e{exponent}: {error}");
        }
    }
}

#[test]
fn result_is_the_same_at_every_scale() {
    let base = matrix(1, 64, 64);
    let unit = base.scaled(1.0 / base.norm());
    let want = orthogonalized(&unit);
    for exponent in [-38, -30, -20, -14, -11, -8, -4, 4, 8, 12, 19, 25, 30, 36] {
        let got = orthogonalized(&unit.scaled(10f64.powi(exponent)));
        let error = relative_error(&got, &want);
        assert!(error < 1e-5, "1e{exponent}: {error}");
    }
}

#[test]
fn zero_gives_exactly_zero() {
    for (n, m) in [(1, 1), (1, 7), (7, 1), (5, 9), (9, 5)] {
        let got = orthogonalized(&Matrix::zeros(n, m));
        assert!(got.iter().all(|&v| v == 0.0), "{n}x{m}: {got:?}");
    }
}

#[test]
fn zero_matrix_in_a_batch_leaves_the_others() {
    let (a, b) = (matrix(1, 6, 9), matrix(2, 6, 9));
    let got = values(&newton_schulz(
        stack(&[a.clone(), Matrix::zeros(6, 9), b.clone()]),
        &standard(),
    ));
    let parts: Vec<&[f64]> = got.chunks(54).collect();
    assert!(relative_error(parts[0], &wanted(&a)) < 1e-5);
    assert!(parts[1].iter().all(|&v| v == 0.0));
    assert!(relative_error(parts[2], &wanted(&b)) < 1e-5);
}

#[test]
fn each_matrix_of_a_batch_equals_itself_alone() {
    for (n, m) in [(16, 16), (8, 40), (40, 8)] {
        let matrices: Vec<Matrix> = (0..4)
            .map(|i| matrix(i, n, m).scaled(10f64.powi(3 * i as i32)))
            .collect();
        let batch = values(&newton_schulz(stack(&matrices), &standard()));
        for (got, matrix) in batch.chunks(n * m).zip(&matrices) {
            let error = relative_error(got, &orthogonalized(matrix));
            assert!(error < 1e-6, "{n}x{m}: {error}");
        }
    }
}

#[test]
fn transposing_before_equals_transposing_after() {
    let wide = stack(&[matrix(3, 12, 31), matrix(4, 12, 31)]);
    let a = newton_schulz(wide.clone(), &standard()).swap_dims(1, 2);
    let b = newton_schulz(wide.swap_dims(1, 2), &standard());
    assert_eq!(values(&a), values(&b));
}

#[test]
fn singular_values_end_near_one() {
    // A diagonal matrix of norm one keeps its singular vectors, so its diagonal shows the singular values.
    let sigma = [0.8, 0.5, 0.3, 0.1, 0.05, 0.01, 0.003];
    let n = sigma.len();
    let mut diagonal = Matrix::zeros(n, n);
    for (i, s) in sigma.iter().enumerate() {
        diagonal.values[i * n + i] = *s;
    }
    let got = Matrix::new(n, n, orthogonalized(&diagonal));
    for (i, sigma) in sigma.iter().enumerate() {
        for j in 0..n {
            let value = got.at(i, j);
            if i == j {
                assert!((0.68..1.21).contains(&value), "sigma {sigma}: {value}");
            } else {
                assert!(value.abs() < 1e-6, "{i},{j}: {value}");
            }
        }
    }
}

#[test]
fn all_equal_elements_stay_all_equal() {
    let got = orthogonalized(&Matrix::new(6, 10, vec![3.5; 60]));
    // Rank one with singular value one: p(1) applied five times, over sqrt(60).
    let p = |x: f64| STANDARD[0] * x + STANDARD[1] * x.powi(3) + STANDARD[2] * x.powi(5);
    let want = (0..5).fold(1.0, |x, _| p(x)) / 60f64.sqrt();
    // The Gram form takes this from a matrix that is 41 off the one direction in the second segment.
    assert!(relative_error(&got, &[want; 60]) < 41.0 * 1e-6, "{got:?}");
}

#[test]
fn long_and_thin_matrices_work_both_ways() {
    let tall = matrix(9, 4096, 8);
    let got = Matrix::new(4096, 8, orthogonalized(&tall));
    let gram = got.transposed().times(&got);
    for i in 0..8 {
        assert!((0.4..1.5).contains(&gram.at(i, i)), "{}", gram.at(i, i));
    }
    let wide = orthogonalized(&tall.transposed());
    assert!(relative_error(&wide, &got.transposed().values) < 1e-6);
}

#[test]
fn half_precision_neither_overflows_nor_vanishes() {
    let base = matrix(5, 32, 48);
    for (dtype, scales, tolerance) in [
        // Elements near 300 have squares near 9e4, above f16's 65504.
        (DType::F16, vec![1e-3, 1.0, 300.0, 30000.0], 2e-3),
        (DType::BF16, vec![1e-14, 1.0, 1e12, 1e30], 2e-2),
    ] {
        let want = orthogonalized(&base);
        for scale in scales {
            let x = stack(&[base.scaled(scale)]).cast(dtype);
            let out = newton_schulz(x, &standard());
            assert_eq!(out.dtype(), dtype);
            let error = relative_error(&values(&out), &want);
            assert!(error < tolerance, "{dtype:?} at {scale}: {error}");
        }
    }
}

#[test]
fn rank_deficient_bf16_stays_finite() {
    let column = noise(6, 24);
    let row = noise(7, 24);
    let outer = column
        .iter()
        .flat_map(|c| row.iter().map(move |r| c * r))
        .collect();
    let x = stack(&[Matrix::new(24, 24, outer)]).cast(DType::BF16);
    let out = values(&newton_schulz(x, &standard()));
    let norm = Matrix::new(24, 24, out.clone()).norm();
    assert!(out.iter().all(|v| v.is_finite()));
    // Rounding to bf16 makes it full rank, with singular values far below the first.
    assert!((0.6..6.0).contains(&norm), "{norm}");
}

#[test]
fn double_precision_is_kept() {
    let base = matrix(8, 10, 20);
    let x = Tensor::<3>::from_data(
        burn::tensor::TensorData::new(base.values.clone(), [1, 10, 20]),
        (&crate::models::device(), DType::F64),
    );
    let out = newton_schulz(x, &standard());
    assert_eq!(out.dtype(), DType::F64);
    let want = reference::newton_schulz(&base, &[STANDARD; 5]).values;
    assert!(relative_error(&values(&out), &want) < 1e-12);
}

#[test]
fn coefficients_can_change_from_step_to_step_and_the_last_repeats() {
    let schedule = vec![[3.4445, -4.7750, 2.0315], [2.0, -1.5, 0.5]];
    let config = NewtonSchulzConfig::new()
        .with_steps(4)
        .with_coefficients(schedule.clone());
    let base = matrix(11, 9, 14);
    let got = values(&newton_schulz(stack(std::slice::from_ref(&base)), &config));
    let steps = [schedule[0], schedule[1], schedule[1], schedule[1]];
    assert!(relative_error(&got, &reference::newton_schulz(&base, &steps).values) < 1e-5);
}

#[test]
fn strided_views_are_read_correctly() {
    let base = matrix(12, 20, 10);
    let view = stack(std::slice::from_ref(&base))
        .swap_dims(1, 2)
        .slice([0..1, 0..10, 4..16]);
    let copy: Vec<f64> = (0..10)
        .flat_map(|i| (4..16).map(move |j| (i, j)))
        .map(|(i, j)| base.at(j, i))
        .collect();
    let got = values(&newton_schulz(view, &standard()));
    assert!(relative_error(&got, &wanted(&Matrix::new(10, 12, copy))) < 1e-5);
}

#[test]
fn empty_batches_and_matrices_pass_through() {
    for shape in [[0, 3, 4], [2, 0, 4], [2, 3, 0]] {
        let out = newton_schulz(Tensor::zeros(shape, &crate::models::device()), &standard());
        assert_eq!(out.dims(), shape);
    }
}

#[test]
#[should_panic(expected = "`coefficients` needs at least one")]
fn no_coefficients_is_refused() {
    let config = NewtonSchulzConfig::new().with_coefficients(Vec::new());
    newton_schulz(stack(&[matrix(1, 2, 2)]), &config);
}
