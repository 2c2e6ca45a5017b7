//! Small modules with every kind of parameter, and deterministic values for them.

use burn::module::{Module, ModuleMapper, ModuleVisitor, Param, ParamId};
use burn::nn::conv::{Conv1d, Conv1dConfig};
use burn::nn::{
    Embedding, EmbeddingConfig, LayerNorm, LayerNormConfig, Linear, LinearConfig, LinearLayout,
};
use burn::optim::GradientsParams;
use burn::tensor::{DType, Device, FloatDType, Int, Tensor, TensorData};
use std::collections::BTreeMap;

use crate::reference::Matrix;

/// Where plain tensors live.
pub(crate) fn device() -> Device {
    Device::flex()
}

/// Where modules live that are trained.
pub(crate) fn training_device() -> Device {
    device().autodiff()
}

/// Values between -1 and 1 that look random and depend on nothing but `seed`.
pub(crate) fn noise(seed: u64, count: usize) -> Vec<f64> {
    let mut state = seed
        .wrapping_mul(0x9E37_79B9_7F4A_7C15)
        .wrapping_add(0x2545_F491_4F6C_DD1D);
    (0..count)
        .map(|_| {
            state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
            let mut z = state;
            z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
            z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
            z ^= z >> 31;
            (z >> 11) as f64 / (1u64 << 52) as f64 - 1.0
        })
        .collect()
}

pub(crate) fn matrix(seed: u64, rows: usize, columns: usize) -> Matrix {
    Matrix::new(rows, columns, noise(seed, rows * columns))
}

pub(crate) fn tensor<const D: usize>(values: &[f64], shape: [usize; D]) -> Tensor<D> {
    let values: Vec<f32> = values.iter().map(|&v| v as f32).collect();
    Tensor::from_data(TensorData::new(values, shape), &device())
}

pub(crate) fn values<const D: usize>(tensor: &Tensor<D>) -> Vec<f64> {
    tensor.clone().inner().into_data().iter::<f64>().collect()
}

pub(crate) fn bits<const D: usize>(tensor: &Tensor<D>) -> Vec<u8> {
    tensor.clone().inner().into_data().as_bytes().to_vec()
}

/// One parameter of every kind that the rules know, without shared ids.
#[derive(Module, Debug)]
pub(crate) struct Mixed {
    pub(crate) embedding: Embedding,
    pub(crate) layers: Vec<Block>,
    pub(crate) norm: LayerNorm,
    pub(crate) conv: Conv1d,
    pub(crate) head: Linear,
}

#[derive(Module, Debug)]
pub(crate) struct Block {
    pub(crate) up: Linear,
    pub(crate) down: Linear,
}

impl Mixed {
    pub(crate) fn new(device: &Device) -> Self {
        let block = || Block {
            up: LinearConfig::new(6, 10).init(device),
            down: LinearConfig::new(10, 6).with_bias(false).init(device),
        };
        Self {
            embedding: EmbeddingConfig::new(12, 6).init(device),
            layers: vec![block(), block()],
            norm: LayerNormConfig::new(6).init(device),
            conv: Conv1dConfig::new(6, 6, 3).with_groups(6).init(device),
            head: LinearConfig::new(6, 12).with_bias(false).init(device),
        }
    }

    pub(crate) fn forward(&self, tokens: Tensor<2, Int>) -> Tensor<3> {
        let mut x = self.embedding.forward(tokens);
        for block in &self.layers {
            x = x.clone() + block.down.forward(block.up.forward(x).tanh());
        }
        self.head.forward(self.norm.forward(x))
    }
}

/// Two uses of one weight, as in tied layers, and one of its own.
#[derive(Module, Debug)]
pub(crate) struct Tied {
    pub(crate) first: Linear,
    pub(crate) between: Linear,
    pub(crate) second: Linear,
}

impl Tied {
    pub(crate) fn new(device: &Device) -> Self {
        let first = LinearConfig::new(6, 6).with_bias(false).init(device);
        Self {
            second: first.clone(),
            between: LinearConfig::new(6, 6).init(device),
            first,
        }
    }

    pub(crate) fn forward(&self, x: Tensor<2>) -> Tensor<2> {
        self.second
            .forward(self.between.forward(self.first.forward(x)).tanh())
    }
}

/// Weights of a mixture of experts as a raw stack.
#[derive(Module, Debug)]
pub(crate) struct MixtureOfExperts {
    pub(crate) router: Linear,
    pub(crate) experts: Param<Tensor<3>>,
}

impl MixtureOfExperts {
    pub(crate) fn new(device: &Device) -> Self {
        let stack = tensor(&noise(5, 4 * 5 * 7), [4, 5, 7]);
        Self {
            router: LinearConfig::new(5, 4).with_bias(false).init(device),
            experts: Param::from_tensor(match device.is_autodiff() {
                true => Tensor::from_inner(stack),
                false => stack,
            }),
        }
    }
}

#[derive(Module, Debug)]
pub(crate) struct Empty;

pub(crate) fn linear(rows: usize, columns: usize, layout: LinearLayout, device: &Device) -> Linear {
    LinearConfig::new(rows, columns)
        .with_bias(false)
        .with_layout(layout)
        .init(device)
}

/// Gives every parameter values that depend on its path only.
pub(crate) fn seeded<M: Module>(module: M) -> M {
    struct Seed {
        path: Vec<String>,
    }
    impl ModuleMapper for Seed {
        fn enter_module(&mut self, name: &str, _container_type: &str) {
            self.path.push(name.to_owned());
        }
        fn exit_module(&mut self, _name: &str, _container_type: &str) {
            self.path.pop();
        }
        fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
            let seed = self
                .path
                .join(".")
                .bytes()
                .fold(7u64, |h, b| h.wrapping_mul(31).wrapping_add(b.into()));
            let dims = param.base().dims();
            with_value(param, tensor(&noise(seed, dims.iter().product()), dims))
        }
    }
    module.map(&mut Seed { path: Vec::new() })
}

/// A made-up gradient for every parameter, of its dtype; `seed` chooses it, `scale` multiplies it.
pub(crate) fn made_up_gradients<M: Module>(module: &M, seed: u64, scale: f64) -> GradientsParams {
    struct MakeUp {
        grads: GradientsParams,
        seed: u64,
        scale: f64,
        count: u64,
    }
    impl ModuleVisitor for MakeUp {
        fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
            self.count += 1;
            if self.grads.get::<D>(param.id).is_some() {
                return;
            }
            let (dims, dtype): ([usize; D], DType) = (param.base().dims(), param.base().dtype());
            let values: Vec<f64> = noise(self.seed * 1000 + self.count, dims.iter().product())
                .iter()
                .map(|v| v * self.scale)
                .collect();
            let data = TensorData::new(values, dims);
            let grad = Tensor::<D>::from_data(data, (&device(), dtype));
            self.grads.register(param.id, grad);
        }
    }
    let mut visitor = MakeUp {
        grads: GradientsParams::new(),
        seed,
        scale,
        count: 0,
    };
    module.visit(&mut visitor);
    visitor.grads
}

/// The bytes of every parameter by path.
pub(crate) fn snapshot<M: Module>(module: &M) -> BTreeMap<String, Vec<u8>> {
    collect(module, |bytes, _| bytes)
}

/// The values of every parameter by path.
pub(crate) fn numbers<M: Module>(module: &M) -> BTreeMap<String, Vec<f64>> {
    collect(module, |_, values| values)
}

fn collect<M: Module, T>(module: &M, pick: impl Fn(Vec<u8>, Vec<f64>) -> T) -> BTreeMap<String, T> {
    struct Collect<F, T> {
        path: Vec<String>,
        found: BTreeMap<String, T>,
        pick: F,
    }
    impl<F: Fn(Vec<u8>, Vec<f64>) -> T, T> ModuleVisitor for Collect<F, T> {
        fn enter_module(&mut self, name: &str, _container_type: &str) {
            self.path.push(name.to_owned());
        }
        fn exit_module(&mut self, _name: &str, _container_type: &str) {
            self.path.pop();
        }
        fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
            let tensor = param.base();
            let value = (self.pick)(bits(&tensor), values(&tensor));
            self.found.insert(self.path.join("."), value);
        }
    }
    let mut visitor = Collect {
        path: Vec::new(),
        found: BTreeMap::new(),
        pick,
    };
    module.visit(&mut visitor);
    visitor.found
}

/// The same values under ids of their own.
pub(crate) fn with_new_ids<M: Module>(module: M) -> M {
    struct Rename;
    impl ModuleMapper for Rename {
        fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
            Param::initialized(ParamId::new(), param.into_value())
        }
    }
    module.map(&mut Rename)
}

/// The module with all its parameters in `dtype`.
pub(crate) fn in_dtype<M: Module>(module: M, dtype: FloatDType) -> M {
    struct Convert(FloatDType);
    impl ModuleMapper for Convert {
        fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
            let value = param.base().inner().cast(self.0);
            with_value(param, value)
        }
    }
    module.map(&mut Convert(dtype))
}

/// The parameter with another plain value, trainable as before.
pub(crate) fn with_value<const D: usize>(
    param: Param<Tensor<D>>,
    value: Tensor<D>,
) -> Param<Tensor<D>> {
    param.map(|old| match old.is_autodiff() {
        true => Tensor::from_inner(value).set_require_grad(old.is_require_grad()),
        false => value,
    })
}
