//! The forms of Newton-Schulz: large matrices, long ones, sets of coefficients, and what rounding may not do.

use burn::tensor::{Device, Tensor, TensorData};
use burn_muonclip::{
    NewtonSchulzConfig, POLAR_EXPRESS_COEFFICIENTS, STANDARD_COEFFICIENTS, TWO_STAGE_COEFFICIENTS,
    newton_schulz,
};

use crate::models::{matrix, noise, tensor, values};
use crate::reference::{self, Matrix, relative_error};

fn orthogonalized(matrices: &[Matrix], config: &NewtonSchulzConfig) -> Vec<Vec<f64>> {
    let all: Vec<f64> = matrices.iter().flat_map(|m| m.values.clone()).collect();
    let (rows, columns) = (matrices[0].rows, matrices[0].columns);
    let x = tensor(&all, [matrices.len(), rows, columns]);
    let result = values(&newton_schulz(x, config));
    let parts = result.chunks(rows * columns);
    parts.map(<[f64]>::to_vec).collect()
}

/// Of both forms, on one block and on several, with operands as they lie and brought together; and of matrices that share out their
/// blocks over the threads, which single ones do.
#[test]
fn shapes_around_every_block_equal_the_formula() {
    let shapes = [
        (127, 127),
        (129, 130),
        (96, 97),
        (40, 130),
        (128, 384),
        (256, 257),
        (257, 260),
        (260, 600),
        (16, 1000),
    ];
    for (n, m) in shapes {
        for matrix in [matrix(1, n, m), matrix(1, m, n)] {
            let rounded = matrix.values.iter().map(|&v| f64::from(v as f32)).collect();
            let rounded = Matrix::new(matrix.rows, matrix.columns, rounded);
            let want = reference::newton_schulz(&rounded, &[STANDARD_COEFFICIENTS; 5]).values;
            for copies in [1, 5] {
                let batch = vec![matrix.clone(); copies];
                for got in orthogonalized(&batch, &NewtonSchulzConfig::new()) {
                    let error = relative_error(&got, &want);
                    assert!(error < 5e-5, "{n}x{m}, {copies} of them: {error}");
                }
            }
        }
    }
}

#[test]
fn results_do_not_depend_on_the_number_of_threads() {
    for (n, m) in [(130, 140), (60, 300), (300, 300)] {
        let batch: Vec<_> = (0..3).map(|i| matrix(i, n, m)).collect();
        let with_threads = |threads: usize| {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build();
            let config = NewtonSchulzConfig::new();
            pool.expect("threads")
                .install(|| orthogonalized(&batch, &config))
        };
        let one = with_threads(1);
        for threads in [2, 3, 8] {
            assert!(with_threads(threads) == one, "{n}x{m}, {threads} threads");
        }
    }
}

/// A matrix with these singular values, between two random rotations, `n x m` with `n` as many as there are values.
fn with_spectrum(spectrum: &[f64], m: usize) -> Matrix {
    let n = spectrum.len();
    let (u, v) = (rotation(1, n), rotation(2, m));
    let mut scaled = Matrix::zeros(n, m);
    for (i, sigma) in spectrum.iter().enumerate() {
        scaled.values[i * m..(i + 1) * m].copy_from_slice(
            &v.values[i * m..(i + 1) * m]
                .iter()
                .map(|x| x * sigma)
                .collect::<Vec<_>>(),
        );
    }
    u.times(&scaled)
}

/// An orthogonal matrix: a product of reflections.
fn rotation(seed: u64, n: usize) -> Matrix {
    let mut product = Matrix::zeros(n, n);
    (0..n).for_each(|i| product.values[i * n + i] = 1.0);
    for k in 0..4 {
        let direction = noise(100 * seed + k, n);
        let square: f64 = direction.iter().map(|x| x * x).sum();
        let mut next = product.clone();
        for j in 0..n {
            let along: f64 = (0..n).map(|i| direction[i] * product.at(i, j)).sum();
            for (i, x) in direction.iter().enumerate() {
                next.values[i * n + j] -= 2.0 / square * along * x;
            }
        }
        product = next;
    }
    product
}

/// The singular values of `u^T o v` for the rotations above: what became of each one.
fn singular_values(o: &[f64], n: usize, m: usize) -> Vec<f64> {
    let (u, v) = (rotation(1, n), rotation(2, m));
    let o = Matrix::new(n, m, o.to_vec());
    let turned = u.transposed().times(&o).times(&v.transposed());
    (0..n).map(|i| turned.at(i, i)).collect()
}

/// The published ranges of singular values (research on the standard set, Polar Express and two stages), for values from 0.3 % of the norm on.
#[test]
fn every_set_of_coefficients_ends_where_it_should() {
    let sets = [
        (NewtonSchulzConfig::new(), 0.68, 1.21),
        (NewtonSchulzConfig::polar_express(), 0.83, 1.17),
        (NewtonSchulzConfig::two_stage(), 0.95, 1.05),
    ];
    let spectrum: Vec<f64> = (0..24)
        .map(|i| 0.003f64.powf(f64::from(i) / 23.0))
        .collect();
    let norm: f64 = spectrum.iter().map(|x| x * x).sum::<f64>().sqrt();
    for m in [24, 28, 100] {
        let x = with_spectrum(&spectrum, m);
        for (config, least, most) in &sets {
            let o = &orthogonalized(std::slice::from_ref(&x), config)[0];
            for (sigma, value) in spectrum.iter().zip(singular_values(o, 24, m)) {
                if sigma / norm < 0.003 {
                    continue;
                }
                assert!(
                    (*least..*most).contains(&value),
                    "{sigma} became {value} by {config:?} with m = {m}"
                );
            }
        }
    }
}

#[test]
fn sets_have_their_steps() {
    let sets = [
        (
            NewtonSchulzConfig::polar_express(),
            POLAR_EXPRESS_COEFFICIENTS.to_vec(),
        ),
        (
            NewtonSchulzConfig::two_stage(),
            TWO_STAGE_COEFFICIENTS.to_vec(),
        ),
    ];
    for (config, steps) in sets {
        assert_eq!(config.steps, steps.len());
        for (n, m) in [(12, 12), (12, 40)] {
            let x = matrix(4, n, m);
            let want = reference::newton_schulz(&x, &steps).values;
            let got = &orthogonalized(&[x], &config)[0];
            let error = relative_error(got, &want);
            assert!(error < 1e-3, "{n}x{m}: {error}");
        }
    }
}

/// On a Gram matrix rounding makes the eigenvalues that should be 0 negative, and each step without a new start multiplies them by up to twelve: ten in a row
/// would break out.
#[test]
fn directions_that_are_not_there_stay_small_over_many_steps() {
    let mut spectrum = vec![0.0; 40];
    spectrum[..3].copy_from_slice(&[1.0, 0.5, 0.2]);
    let x = with_spectrum(&spectrum, 200);
    for config in [
        NewtonSchulzConfig::new(),
        NewtonSchulzConfig::polar_express(),
        NewtonSchulzConfig::two_stage(),
        NewtonSchulzConfig::new().with_steps(15),
    ] {
        let o = Matrix::new(
            40,
            200,
            orthogonalized(std::slice::from_ref(&x), &config)[0].clone(),
        );
        // Three singular values of at most 1.21; the others come from rounding of the input, and five steps may make them large.
        let largest = (0..40).fold(0.0f64, |max, i| {
            let row: f64 = (0..200).map(|j| o.at(i, j).powi(2)).sum();
            max.max(row.sqrt())
        });
        assert!(largest < 1.3, "{largest} by {config:?}");
    }
}

/// On other devices both forms come from primitive operations, as on this one for tensors with gradients.
#[test]
fn primitive_forms_equal_the_kernel() {
    for (n, m) in [(20, 20), (20, 30), (20, 90), (90, 20)] {
        let x = matrix(6, n, m);
        for config in [NewtonSchulzConfig::new(), NewtonSchulzConfig::two_stage()] {
            let kernel = &orthogonalized(std::slice::from_ref(&x), &config)[0];
            let device = Device::flex().autodiff();
            let numbers: Vec<f32> = x.values.iter().map(|&x| x as f32).collect();
            let tracked = Tensor::from_data(TensorData::new(numbers, [1, n, m]), &device);
            assert!(tracked.device().is_autodiff());
            let primitive = values(&newton_schulz(tracked, &config));
            let error = relative_error(kernel, &primitive);
            assert!(error < 2e-4, "{n}x{m}: {error}");
        }
    }
}
