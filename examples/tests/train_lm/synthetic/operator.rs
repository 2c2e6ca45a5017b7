//! Gated linear attention against its recurrence, token by token, with gradients.

use std::ops::Range;

use burn::tensor::{DType, Device, Tensor, TensorData};
use examples::synthetic::gated_linear_attention;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

const DIMS: [usize; 4] = [2, 3, 5, 4]; // Batch, heads, key width, value width.

/// The inputs of a sequence.
struct Inputs {
    q: Tensor<4>,
    k: Tensor<4>,
    v: Tensor<4>,
    g: Tensor<4>,
    beta: Tensor<3>,
}

impl Inputs {
    fn random(tokens: usize, gates: Range<f64>, device: &Device) -> Self {
        let [batch, heads, key_dim, value_dim] = DIMS;
        let mut rng = StdRng::seed_from_u64(tokens as u64);
        let mut random = |width: usize, range: Range<f64>| {
            let shape = [batch, tokens, heads, width];
            let numbers: Vec<f64> = (0..shape.iter().product::<usize>())
                .map(|_| rng.random_range(range.clone()))
                .collect();
            let data = TensorData::new(numbers, shape);
            Tensor::<4>::from_data(data, (device, DType::F64))
        };
        let beta: Tensor<3> = random(1, 0.0..1.0).squeeze_dim(3);
        Self {
            q: random(key_dim, -1.0..1.0).require_grad(),
            k: random(key_dim, -1.0..1.0).require_grad(),
            v: random(value_dim, -1.0..1.0).require_grad(),
            g: random(key_dim, gates).require_grad(),
            beta: beta.require_grad(),
        }
    }

    fn operator(&self) -> Tensor<4> {
        gated_linear_attention(
            self.q.clone(),
            self.k.clone(),
            self.v.clone(),
            self.g.clone(),
            self.beta.clone(),
        )
    }

    /// `S_t = Diag(exp(g_t)) S_{t-1} + beta_t k_t v_t^T`, `o_t = S_t^T q_t K^-1/2`.
    fn recurrence(&self) -> Tensor<4> {
        let [batch, heads, key_dim, value_dim] = DIMS;
        let tokens = self.q.dims()[1];
        let mut memory = Tensor::<4>::zeros(
            [batch, heads, key_dim, value_dim],
            (&self.q.device(), DType::F64),
        );
        let mut outputs = Vec::new();
        for t in 0..tokens {
            let column = |x: &Tensor<4>| {
                x.clone()
                    .narrow(1, t, 1)
                    .reshape([batch, heads, key_dim, 1])
            };
            let v = self.v.clone().narrow(1, t, 1);
            let v = v.reshape([batch, heads, 1, value_dim]);
            let beta = self.beta.clone().narrow(1, t, 1);
            let written = column(&self.k) * v * beta.reshape([batch, heads, 1, 1]);
            memory = memory * column(&self.g).exp() + written;
            let read = column(&self.q) * memory.clone();
            let o = read.sum_dim(2) * (key_dim as f64).powf(-0.5);
            outputs.push(o.reshape([batch, 1, heads, value_dim]));
        }
        Tensor::cat(outputs, 1)
    }

    /// The output, and the gradients of its sum with fixed weights with respect to every input.
    fn results(&self, o: Tensor<4>) -> [Vec<f64>; 6] {
        let count = o.shape().num_elements() as i64;
        let weights = Tensor::arange(0..count, &o.device())
            .float()
            .cast(DType::F64);
        let weights = (weights * 0.7).sin().reshape(o.dims());
        let gradients = (o.clone() * weights).sum().backward();
        let of = |x: &Tensor<4>| numbers(x.grad(&gradients).expect("a gradient"));
        [
            numbers(o),
            of(&self.q),
            of(&self.k),
            of(&self.v),
            of(&self.g),
            numbers(self.beta.grad(&gradients).expect("a gradient")),
        ]
    }
}

fn numbers<const D: usize>(x: Tensor<D>) -> Vec<f64> {
    x.into_data().iter::<f64>().collect()
}

fn assert_agrees(tokens: usize, gates: Range<f64>) {
    let inputs = Inputs::random(tokens, gates.clone(), &Device::flex().autodiff());
    let found = inputs.results(inputs.operator());
    let wanted = inputs.results(inputs.recurrence());
    for (index, name) in ["o", "dq", "dk", "dv", "dg", "dbeta"].iter().enumerate() {
        for (found, wanted) in found[index].iter().zip(&wanted[index]) {
            let error = (found - wanted).abs();
            assert!(
                error <= 1e-12 * wanted.abs().max(1.0),
                "{name} with {tokens} tokens and {gates:?}: {found} instead of {wanted}"
            );
        }
        let largest = wanted[index].iter().fold(0.0, |m: f64, x| m.max(x.abs()));
        let may_vanish = *name == "dg" && tokens == 1; // The first gate decays an empty memory.
        assert!(
            largest > 1e-3 || may_vanish,
            "{name} is not tested by {largest}"
        );
    }
}

#[test]
fn agrees_with_the_recurrence_for_every_remainder_of_a_chunk() {
    for tokens in [1, 2, 7, 8, 9, 16, 21] {
        assert_agrees(tokens, -1.0..0.0);
    }
}

#[test]
fn strong_and_absent_decay_are_no_trouble() {
    assert_agrees(19, -1e-9..0.0);
    assert_agrees(19, -60.0..0.0);
    let device = Device::flex().autodiff();
    let inputs = Inputs::random(19, -2000.0..-1000.0, &device);
    for part in inputs.results(inputs.operator()) {
        assert!(part.iter().all(|x| x.is_finite()));
    }
}
