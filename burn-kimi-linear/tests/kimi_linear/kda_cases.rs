//! Inputs for the operator: what they look like is data, how they reach it is [`run`], or [`results`] with gradients.

use burn::tensor::{DType, Device, Tensor, TensorData};
use burn_kimi_linear::{KdaOptions, KdaState, kda};

use crate::closeness::values;
use crate::engines::Engine;
use crate::kda_oracle::{Dims, Inputs, Outputs};

/// What the gates of a case look like.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Gates {
    /// Zero: KDA is DeltaNet.
    Open,
    /// Between 0 and `-strength`.
    Random { strength: f64 },
    /// The same everywhere.
    Constant(f64),
    /// Random, but with this probability -1000: the memory of that channel is wiped.
    Resets { probability: f64 },
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Keys {
    /// Unit length in random directions.
    Random,
    /// One direction for every token, the worst for the inverse inside a chunk.
    Equal,
    /// Unit length, all channels positive.
    Positive,
}

/// Deterministic numbers in `[0, 1)` (splitmix64).
pub(crate) struct Numbers(pub u64);

impl Numbers {
    pub(crate) fn unit(&mut self) -> f64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        ((z ^ (z >> 31)) >> 11) as f64 / (1u64 << 53) as f64
    }

    pub(crate) fn symmetric(&mut self, count: usize) -> Vec<f64> {
        (0..count).map(|_| 2.0 * self.unit() - 1.0).collect()
    }
}

pub(crate) fn inputs(dims: Dims, gates: Gates, keys: Keys, max_beta: f64, seed: u64) -> Inputs {
    let mut numbers = Numbers(seed);
    let size = |shape: &[usize]| shape.iter().product::<usize>();
    let q = unit_rows(numbers.symmetric(size(&dims.keys())), dims.key);
    let k = match keys {
        Keys::Random => numbers.symmetric(size(&dims.keys())),
        Keys::Positive => numbers
            .symmetric(size(&dims.keys()))
            .iter()
            .map(|x| x.abs())
            .collect(),
        Keys::Equal => {
            let row = numbers.symmetric(dims.key);
            row.iter()
                .copied()
                .cycle()
                .take(size(&dims.keys()))
                .collect()
        }
    };
    let v = numbers.symmetric(size(&dims.values()));
    let g = (0..size(&dims.gates()))
        .map(|_| match gates {
            Gates::Open => 0.0,
            Gates::Constant(g) => g,
            Gates::Random { strength } => -strength * numbers.unit(),
            Gates::Resets { probability } => match numbers.unit() < probability {
                true => -1000.0,
                false => -numbers.unit(),
            },
        })
        .collect();
    let beta = (0..size(&dims.betas()))
        .map(|_| max_beta * numbers.unit())
        .collect();
    let state = numbers.symmetric(size(&dims.state()));
    Inputs {
        dims,
        scale: (dims.key as f64).powf(-0.5),
        parts: [q, unit_rows(k, dims.key), v, g, beta, state],
    }
}

/// `inputs` with the tokens from `first` on replaced by those of `other`, in every row of the batch.
pub(crate) fn with_other_tokens(inputs: &Inputs, other: &Inputs, first: usize) -> Inputs {
    let Dims { batch, tokens, .. } = inputs.dims;
    let mut changed = inputs.clone();
    for part in 0..5 {
        let width = changed.parts[part].len() / (batch * tokens);
        for row in 0..batch {
            let tail = (row * tokens + first) * width..(row + 1) * tokens * width;
            changed.parts[part][tail.clone()].copy_from_slice(&other.parts[part][tail]);
        }
    }
    changed
}

fn unit_rows(mut x: Vec<f64>, width: usize) -> Vec<f64> {
    for row in x.chunks_mut(width) {
        let length = row.iter().map(|x| x * x).sum::<f64>().sqrt().max(1e-12);
        row.iter_mut().for_each(|x| *x /= length);
    }
    x
}

/// The tensors of `inputs`, rounded to `dtype`; the state in `f32` at least.
#[derive(Clone)]
pub(crate) struct Tensors {
    pub q: Tensor<4>,
    pub k: Tensor<4>,
    pub v: Tensor<4>,
    pub g: Tensor<4>,
    pub beta: Tensor<3>,
    pub state: Tensor<4>,
}

impl Tensors {
    pub(crate) fn new(inputs: &Inputs, device: &Device, dtype: DType) -> Self {
        fn tensor<const D: usize>(x: &[f64], shape: [usize; D], to: (&Device, DType)) -> Tensor<D> {
            Tensor::from_data(TensorData::new(x.to_vec(), shape), to)
        }
        let [q, k, v, g, beta, state] = &inputs.parts;
        let (dims, to) = (inputs.dims, (device, dtype));
        let memory = match dtype {
            DType::F64 => DType::F64,
            _ => DType::F32,
        };
        Self {
            q: tensor(q, dims.keys(), to),
            k: tensor(k, dims.keys(), to),
            v: tensor(v, dims.values(), to),
            g: tensor(g, dims.gates(), to),
            beta: tensor(beta, dims.betas(), to),
            state: tensor(state, dims.state(), (device, memory)),
        }
    }

    /// The same numbers on `device`, with gradients.
    pub(crate) fn tracked(&self, device: &Device) -> Self {
        let tracked =
            |x: &Tensor<4>| Tensor::from_data(x.clone().into_data(), device).require_grad();
        Self {
            q: tracked(&self.q),
            k: tracked(&self.k),
            v: tracked(&self.v),
            g: tracked(&self.g),
            beta: Tensor::from_data(self.beta.clone().into_data(), device).require_grad(),
            state: tracked(&self.state),
        }
    }

    /// `len` tokens of one row, from token `start` on.
    pub(crate) fn cut(&self, row: usize, start: usize, len: usize) -> Self {
        let part = self.tokens(start, len);
        Self {
            q: part.q.narrow(0, row, 1),
            k: part.k.narrow(0, row, 1),
            v: part.v.narrow(0, row, 1),
            g: part.g.narrow(0, row, 1),
            beta: part.beta.narrow(0, row, 1),
            state: part.state,
        }
    }

    /// `len` tokens of every row, from token `start` on.
    pub(crate) fn tokens(&self, start: usize, len: usize) -> Self {
        let cut = |x: &Tensor<4>| x.clone().narrow(1, start, len);
        Self {
            q: cut(&self.q),
            k: cut(&self.k),
            v: cut(&self.v),
            g: cut(&self.g),
            beta: self.beta.clone().narrow(1, start, len),
            state: self.state.clone(),
        }
    }

    /// One row of the batch, with its state.
    pub(crate) fn row(&self, row: usize) -> Self {
        let [_, tokens, ..] = self.v.dims();
        let state = self.state.clone().narrow(0, row, 1);
        self.cut(row, 0, tokens).with_state(state)
    }

    pub(crate) fn with_state(self, state: Tensor<4>) -> Self {
        Self { state, ..self }
    }

    pub(crate) fn run(&self, options: &KdaOptions) -> (Tensor<4>, Tensor<4>) {
        let (o, state) = kda(
            self.q.clone(),
            self.k.clone(),
            self.v.clone(),
            self.g.clone(),
            self.beta.clone(),
            Some(KdaState::from_key_value(self.state.clone())),
            options,
        );
        (o, state.into_key_value())
    }

    /// In two calls, the second from token `at` on.
    pub(crate) fn run_in_two(&self, options: &KdaOptions, at: usize) -> (Tensor<4>, Tensor<4>) {
        let [_, tokens, ..] = self.v.dims();
        let (first, state) = self.tokens(0, at).run(options);
        let second = self.tokens(at, tokens - at).with_state(state);
        let (second, state) = second.run(options);
        (Tensor::cat(vec![first, second], 1), state)
    }
}

pub(crate) fn options(inputs: &Inputs, chunk_size: usize) -> KdaOptions {
    KdaOptions::new()
        .with_scale(inputs.scale)
        .with_chunk_size(chunk_size)
}

/// The operator in `f32`.
pub(crate) fn run(engine: &Engine, inputs: &Inputs, chunk_size: usize) -> Outputs {
    let tensors = Tensors::new(inputs, &engine.device, DType::F32);
    let options = engine.options().with_chunk_size(chunk_size);
    let (o, state) = tensors.run(&options.with_scale(inputs.scale));
    Outputs {
        o: values(o),
        state: values(state),
    }
}

/// Numbers by name.
pub(crate) type Results = Vec<(&'static str, Vec<f64>)>;

/// Output, state, and the gradients of the sum of their squares: those of a sequence do not know of others.
pub(crate) fn results(
    engine: &Engine,
    x: &Tensors,
    run: impl Fn(&Tensors) -> (Tensor<4>, Tensor<4>),
) -> Results {
    let x = x.tracked(&engine.device.clone().autodiff());
    let (o, state) = run(&x);
    let grads = (o.clone().square().sum() + state.clone().square().sum()).backward();
    vec![
        ("o", values(o)),
        ("state", values(state)),
        ("dq", values(x.q.grad(&grads).unwrap())),
        ("dk", values(x.k.grad(&grads).unwrap())),
        ("dv", values(x.v.grad(&grads).unwrap())),
        ("dg", values(x.g.grad(&grads).unwrap())),
        ("dbeta", values(x.beta.grad(&grads).unwrap())),
        ("dstate", values(x.state.grad(&grads).unwrap())),
    ]
}
