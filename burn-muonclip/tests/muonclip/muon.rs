//! Muon for one parameter against the f64 formula.

use burn::optim::{ModuleOptimizer, Optimizer};
use burn::tensor::{DType, Tensor};
use burn_muonclip::{MuonConfig, MuonState};
use proptest::prelude::*;

use crate::models::{matrix, noise, tensor, values};
use crate::reference::{self, Matrix, MuonRule, relative_error};

fn config(rule: &MuonRule) -> MuonConfig {
    MuonConfig::new()
        .with_momentum(rule.momentum)
        .with_nesterov(rule.nesterov)
        .with_weight_decay(rule.weight_decay as f32)
}

fn as_tensor(matrix: &Matrix) -> Tensor<2> {
    tensor(&matrix.values, [matrix.rows, matrix.columns])
}

fn run(config: &MuonConfig, lr: f64, weight: &Matrix, grads: &[Matrix]) -> Vec<Vec<f64>> {
    let muon = config.build();
    let mut weight = as_tensor(weight);
    let mut state = None;
    grads
        .iter()
        .map(|grad| {
            let (new, new_state) = muon.step(lr, weight.clone(), as_tensor(grad), state.take());
            (weight, state) = (new, new_state);
            values(&weight)
        })
        .collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn equals_the_formula_over_several_steps(
        n in 2usize..20,
        m in 2usize..20,
        steps in 1usize..5,
        exponent in -14i32..=12,
        nesterov in any::<bool>(),
        decays in any::<bool>(),
        seed in 0u64..1000,
    ) {
        let rule = MuonRule { momentum: 0.95, nesterov, weight_decay: if decays { 0.1 } else { 0.0 } };
        let weight = matrix(seed, n, m);
        let grads: Vec<Matrix> = (0..steps as u64)
            .map(|i| matrix(seed * 10 + i + 1, n, m).scaled(10f64.powi(exponent)))
            .collect();
        let got = run(&config(&rule), 0.02, &weight, &grads);
        let want = reference::muon(&rule, 0.02, &weight, &grads);
        for (got, want) in got.iter().zip(&want) {
            let error = relative_error(got, &want.values);
            prop_assert!(error < 2e-5, "{n}x{m} at 1e{exponent}: {error}");
        }
    }
}

#[test]
fn stack_is_independent_matrices() {
    let muon = MuonConfig::new().build();
    let (weights, grads) = (noise(1, 3 * 6 * 8), noise(2, 3 * 6 * 8));
    // Scales six orders apart: a norm over the whole stack would flatten two of the three.
    let grads: Vec<f64> = grads
        .iter()
        .enumerate()
        .map(|(i, g)| g * [1.0, 1e3, 1e6][i / 48])
        .collect();
    let (stacked, state) = muon.step(
        0.1,
        tensor(&weights, [3, 6, 8]),
        tensor(&grads, [3, 6, 8]),
        None,
    );
    assert_eq!(state.unwrap().momentum_buffer.dims(), [3, 6, 8]);
    let stacked = values(&stacked);
    for e in 0..3 {
        let part = e * 48..(e + 1) * 48;
        let (alone, _) = muon.step(
            0.1,
            tensor(&weights[part.clone()], [6, 8]),
            tensor(&grads[part.clone()], [6, 8]),
            None,
        );
        assert!(relative_error(&stacked[part], &values(&alone)) < 1e-6);
    }
}

#[test]
fn full_rank_updates_have_the_rms_of_adamw() {
    // Moonlight's check: between 0.16 and 0.22 for the shapes of a small transformer.
    for (n, m) in [(128, 128), (128, 344), (344, 128), (128, 16), (16, 128)] {
        let zero = Matrix::zeros(n, m);
        let config = MuonConfig::new().with_weight_decay(0.0);
        let got = run(&config, 1.0, &zero, &[matrix(3, n, m)]).remove(0);
        let rms = Matrix::new(n, m, got).rms();
        assert!((0.15..0.23).contains(&rms), "{n}x{m}: {rms}");
    }
}

#[test]
fn update_rms_scales_the_update() {
    let (zero, grad) = (Matrix::zeros(8, 12), matrix(4, 8, 12));
    let base = MuonConfig::new();
    let a = run(&base, 0.1, &zero, std::slice::from_ref(&grad)).remove(0);
    let b = run(&base.with_update_rms(0.18), 0.1, &zero, &[grad]).remove(0);
    let want: Vec<f64> = a.iter().map(|v| v * 0.9).collect();
    assert!(relative_error(&b, &want) < 1e-6);
}

#[test]
fn momentum_accumulates_and_is_f32_for_half_precision() {
    let muon = MuonConfig::new().build();
    let grad = matrix(5, 4, 6);
    let weight = as_tensor(&matrix(6, 4, 6)).cast(DType::BF16);
    let (weight, state) = muon.step(0.1, weight, as_tensor(&grad).cast(DType::BF16), None);
    let (weight, state) = muon.step(0.1, weight, as_tensor(&grad).cast(DType::BF16), state);
    assert_eq!(weight.dtype(), DType::BF16);
    let momentum = state.unwrap().momentum_buffer;
    assert_eq!(momentum.dtype(), DType::F32);
    let want: Vec<f64> = values(&as_tensor(&grad).cast(DType::BF16))
        .iter()
        .map(|g| 1.95 * g)
        .collect();
    assert!(relative_error(&values(&momentum), &want) < 1e-6);
}

#[test]
fn momentum_saved_in_another_dtype_is_accepted() {
    let muon = MuonConfig::new().build();
    let (weight, grad) = (as_tensor(&matrix(1, 4, 6)), as_tensor(&matrix(2, 4, 6)));
    let (_, state) = muon.step(0.1, weight.clone(), grad.clone(), None);
    let momentum = state.unwrap().momentum_buffer;
    let halved = MuonState {
        momentum_buffer: momentum.clone().cast(DType::BF16),
    };
    let (a, _) = muon.step(0.1, weight.clone(), grad.clone(), Some(halved));
    let (b, _) = muon.step(
        0.1,
        weight,
        grad,
        Some(MuonState {
            momentum_buffer: momentum,
        }),
    );
    assert!(relative_error(&values(&a), &values(&b)) < 1e-2);
}

#[test]
fn gradient_and_weight_of_the_caller_are_not_changed() {
    let muon = MuonConfig::new().build();
    let (weight, grad) = (as_tensor(&matrix(1, 4, 6)), as_tensor(&matrix(2, 4, 6)));
    let before = (values(&weight), values(&grad));
    let first = muon.step(0.1, weight.clone(), grad.clone(), None).0;
    let second = muon.step(0.1, weight.clone(), grad.clone(), None).0;
    assert_eq!(values(&first), values(&second));
    assert_eq!((values(&weight), values(&grad)), before);
}

#[test]
fn works_as_a_module_optimizer_of_its_own() {
    use burn::module::{Param, ParamId};
    use burn::optim::GradientsParams;
    let weight = Tensor::from_inner(as_tensor(&matrix(1, 5, 3))).require_grad();
    let weight = Param::initialized(ParamId::new(), weight);
    let mut grads = GradientsParams::new();
    grads.register(weight.id, as_tensor(&matrix(2, 5, 3)));
    let mut optimizer = ModuleOptimizer::from(MuonConfig::new().build());
    let weight = optimizer.step(0.1, weight, grads);
    let rule = MuonRule {
        momentum: 0.95,
        nesterov: true,
        weight_decay: 0.1,
    };
    let want = reference::muon(&rule, 0.1, &matrix(1, 5, 3), &[matrix(2, 5, 3)]);
    assert!(relative_error(&values(&weight.val()), &want[0].values) < 2e-5);
}

#[test]
#[should_panic(
    expected = "expected a matrix [n, m] or a stack of matrices [E, n, m], got a parameter of shape [4]"
)]
fn vectors_are_refused() {
    let x: Tensor<1> = tensor(&noise(1, 4), [4]);
    MuonConfig::new().build().step(0.1, x.clone(), x, None);
}
