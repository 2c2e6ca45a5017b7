//! Inputs for the operator: what they look like is data, how they reach it is [`run`].

use burn::tensor::{DType, Device, Tensor, TensorData};
use burn_kimi_linear::{KdaOptions, KdaState, kda};

use crate::closeness::values;
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

fn unit_rows(mut x: Vec<f64>, width: usize) -> Vec<f64> {
    for row in x.chunks_mut(width) {
        let length = row.iter().map(|x| x * x).sum::<f64>().sqrt().max(1e-12);
        row.iter_mut().for_each(|x| *x /= length);
    }
    x
}

/// The tensors of `inputs`, rounded to `dtype`.
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
        Self {
            q: tensor(q, dims.keys(), to),
            k: tensor(k, dims.keys(), to),
            v: tensor(v, dims.values(), to),
            g: tensor(g, dims.gates(), to),
            beta: tensor(beta, dims.betas(), to),
            state: tensor(state, dims.state(), to),
        }
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
}

pub(crate) fn options(inputs: &Inputs, chunk_size: usize) -> KdaOptions {
    KdaOptions::new()
        .with_scale(inputs.scale)
        .with_chunk_size(chunk_size)
}

/// The operator in `f32` on Flex.
pub(crate) fn run(inputs: &Inputs, chunk_size: usize) -> Outputs {
    let tensors = Tensors::new(inputs, &Device::flex(), DType::F32);
    let (o, state) = tensors.run(&options(inputs, chunk_size));
    Outputs {
        o: values(o),
        state: values(state),
    }
}
