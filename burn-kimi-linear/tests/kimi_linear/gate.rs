use burn::tensor::{DType, Device, Tensor, TensorData};
use burn_kimi_linear::{ForgetGate, kda_gate};

use crate::closeness::{assert_close, values};
use crate::engines::kernels;
use crate::kda_cases::Numbers;

const SHAPE: [usize; 4] = [2, 5, 3, 4];
const GATES: [ForgetGate; 2] = [ForgetGate::Softplus, ForgetGate::LowerBound(-5.0)];

fn formula(gate: ForgetGate, x: f64, rate: f64) -> f64 {
    match gate {
        ForgetGate::Softplus => {
            -rate
                * if x > 0.0 {
                    x + (-x).exp().ln_1p()
                } else {
                    x.exp().ln_1p()
                }
        }
        ForgetGate::LowerBound(bound) => bound / (1.0 + (-rate * x).exp()),
    }
}

struct Inputs {
    x: Vec<f64>,
    a_log: Vec<f64>,
    dt_bias: Vec<f64>,
}

impl Inputs {
    fn new(amplitude: f64) -> Self {
        let mut numbers = Numbers(1);
        let x = numbers.symmetric(SHAPE.iter().product());
        Self {
            x: x.iter().map(|x| x * amplitude).collect(),
            a_log: numbers.symmetric(SHAPE[2]),
            dt_bias: numbers.symmetric(SHAPE[2] * SHAPE[3]),
        }
    }

    fn formula(&self, gate: ForgetGate) -> Vec<f64> {
        let [_, _, heads, key] = SHAPE;
        let at = |i: usize| {
            let bias = self.dt_bias[i % (heads * key)];
            let rate = self.a_log[i / key % heads].exp();
            formula(gate, self.x[i] + bias, rate)
        };
        (0..self.x.len()).map(at).collect()
    }

    fn tensors(&self, to: (&Device, DType)) -> (Tensor<4>, Tensor<1>, Tensor<2>) {
        let [_, _, heads, key] = SHAPE;
        (
            Tensor::from_data(TensorData::new(self.x.clone(), SHAPE), to),
            Tensor::from_data(TensorData::new(self.a_log.clone(), [heads]), to),
            Tensor::from_data(TensorData::new(self.dt_bias.clone(), [heads, key]), to),
        )
    }
}

#[test]
fn both_gates_match_their_formula_at_any_amplitude() {
    for engine in kernels() {
        // Exponential and logarithm of software Vulkan are polynomials.
        let tolerance = if engine.is_gpu() { 1e-5 } else { 1e-6 };
        for gate in GATES {
            for amplitude in [0.0, 0.1, 3.0, 30.0, 300.0] {
                let inputs = Inputs::new(amplitude);
                let (x, a_log, dt_bias) = inputs.tensors((&engine.device, DType::F32));
                let got = values(kda_gate(x, Some(a_log), dt_bias, gate));
                let what = format!("{gate:?} x {amplitude} on {}", engine.name);
                assert_close(&what, &got, &inputs.formula(gate), tolerance);
            }
        }
    }
}

/// `log(1 + exp(x))` rounds to zero there, and the gate would be stuck without a gradient.
#[test]
fn a_very_negative_projection_still_decays() {
    for engine in kernels() {
        for x in [-10f64, -30.0] {
            let device = &engine.device;
            let g = kda_gate(
                Tensor::<4>::full([1, 1, 1, 1], x, device),
                None,
                Tensor::zeros([1, 1], device),
                ForgetGate::Softplus,
            );
            let want = -x.exp().ln_1p();
            assert_close(engine.name, &values(g), &[want], 1e-5);
        }
    }
}

#[test]
fn missing_a_log_is_a_rate_of_one() {
    for engine in kernels() {
        for gate in GATES {
            let inputs = Inputs::new(1.0);
            let (x, a_log, dt_bias) = inputs.tensors((&engine.device, DType::F32));
            let with = kda_gate(x.clone(), Some(a_log.zeros_like()), dt_bias.clone(), gate);
            let without = kda_gate(x, None, dt_bias, gate);
            // The device's exponential of 0 need not be exactly 1.
            assert_close(engine.name, &values(with), &values(without), 1e-6);
        }
    }
}

/// A checkpoint trained with one gate repeats itself under the other: they are not a function and its clamp.
#[test]
fn the_gates_are_different_functions() {
    for engine in kernels() {
        let device = &engine.device;
        let at = |gate| {
            let x = Tensor::<4>::zeros([1, 1, 1, 1], device);
            values(kda_gate(x, None, Tensor::zeros([1, 1], device), gate))[0]
        };
        assert_close(
            "softplus",
            &[at(ForgetGate::Softplus)],
            &[-std::f64::consts::LN_2],
            1e-6,
        );
        assert_close(
            "bounded",
            &[at(ForgetGate::LowerBound(-5.0))],
            &[-2.5],
            1e-6,
        );
    }
}

#[test]
fn gradients_match_finite_differences() {
    const STEP: f64 = 1e-6;
    for gate in GATES {
        let mut inputs = Inputs::new(4.0);
        inputs.x[0] = 0.0;
        inputs.dt_bias[0] = 0.0;
        let weights = Numbers(5).symmetric(inputs.x.len());
        let loss = |inputs: &Inputs| -> f64 {
            inputs
                .formula(gate)
                .iter()
                .zip(&weights)
                .map(|(g, w)| g * w)
                .sum()
        };

        let mut differences = |select: fn(&mut Inputs) -> &mut Vec<f64>| -> Vec<f64> {
            (0..select(&mut inputs).len())
                .map(|at| {
                    let start = select(&mut inputs)[at];
                    select(&mut inputs)[at] = start + STEP;
                    let above = loss(&inputs);
                    select(&mut inputs)[at] = start - STEP;
                    let below = loss(&inputs);
                    select(&mut inputs)[at] = start;
                    (above - below) / (2.0 * STEP)
                })
                .collect()
        };
        let want = [
            differences(|i| &mut i.x),
            differences(|i| &mut i.a_log),
            differences(|i| &mut i.dt_bias),
        ];

        let exact = ("f64", Device::flex(), DType::F64, 1e-7);
        let single = kernels().into_iter().map(|engine| {
            let tolerance = if engine.is_gpu() { 5e-5 } else { 1e-5 };
            (engine.name, engine.device, DType::F32, tolerance)
        });
        for (on, device, dtype, tolerance) in single.chain([exact]) {
            let device = device.autodiff();
            let (x, a_log, dt_bias) = inputs.tensors((&device, dtype));
            let (x, a_log, dt_bias) = (
                x.require_grad(),
                a_log.require_grad(),
                dt_bias.require_grad(),
            );
            let g = kda_gate(x.clone(), Some(a_log.clone()), dt_bias.clone(), gate);
            let weighting = TensorData::new(weights.clone(), SHAPE);
            let grads = (g * Tensor::from_data(weighting, (&device, dtype)))
                .sum()
                .backward();
            let got = [
                values(x.grad(&grads).unwrap()),
                values(a_log.grad(&grads).unwrap()),
                values(dt_bias.grad(&grads).unwrap()),
            ];
            for ((name, got), want) in ["dx", "dA_log", "ddt_bias"].iter().zip(&got).zip(&want) {
                let what = format!("{name} of {gate:?} on {on}");
                assert_close(&what, got, want, tolerance);
            }
        }
    }
}

#[test]
#[should_panic(expected = "the lower bound must be a negative number, got 5")]
fn a_positive_lower_bound_is_refused() {
    let device = Device::flex();
    let x = Tensor::<4>::zeros([1, 1, 1, 1], &device);
    kda_gate(
        x,
        None,
        Tensor::zeros([1, 1], &device),
        ForgetGate::LowerBound(5.0),
    );
}

#[test]
#[should_panic(expected = "assert_shape!(dt_bias, [heads, key_dim])")]
fn an_offset_per_head_is_refused() {
    let device = Device::flex();
    let x = Tensor::<4>::zeros([1, 1, 2, 4], &device);
    kda_gate(
        x,
        None,
        Tensor::zeros([2, 1], &device),
        ForgetGate::Softplus,
    );
}
