//! A small stack of sub-layers `tanh(rms_norm(x) W_l)`, run with AttnRes and with plain residual sums.

use burn::module::Param;
use burn::tensor::{DType, Device, Tensor};
use burn_attnres::{AttnRes, AttnResConfig, BlockPlan};

use crate::numbers::{numbers, tensor, to_f64};

pub(crate) const D: usize = 6;

/// The parameters shared by both residual schemes, and one batch of embeddings.
pub(crate) struct Network {
    pub(crate) embedding: Tensor<3>,
    pub(crate) weights: Vec<Tensor<2>>,
    pub(crate) norm_eps: f64,
}

/// The gradients of one loss with respect to the embedding and to the weights.
pub(crate) struct SharedGradients {
    pub(crate) embedding: Vec<f64>,
    pub(crate) weights: Vec<Vec<f64>>,
}

impl Network {
    /// In f64, on an autodiff device, with gradients for everything.
    pub(crate) fn new(sublayers: usize, norm_eps: f64, device: &Device) -> Self {
        let weight = |l: usize| {
            tensor(&numbers(100 + l as u64, D * D), [D, D], DType::F64, device).require_grad()
        };
        let embedding = tensor(&numbers(99, 2 * 3 * D), [2, 3, D], DType::F64, device);
        Self {
            embedding: embedding.require_grad(),
            weights: (0..sublayers).map(weight).collect(),
            norm_eps,
        }
    }

    pub(crate) fn sublayer(&self, l: usize, h: Tensor<3>) -> Tensor<3> {
        rms_norm(h, self.norm_eps)
            .matmul(self.weights[l].clone().unsqueeze())
            .tanh()
    }

    /// The output of the stack, before the final norm.
    pub(crate) fn with_attn_res(&self, attn_res: &AttnRes) -> Tensor<3> {
        let mut stream = attn_res.start(self.embedding.clone());
        for l in 0..self.weights.len() {
            let h = stream.read(attn_res);
            stream.write(self.sublayer(l, h));
        }
        stream.finish(attn_res)
    }

    /// The output of the same stack with `x + f(x)`, before the final norm.
    pub(crate) fn with_residual_sums(&self) -> Tensor<3> {
        (0..self.weights.len()).fold(self.embedding.clone(), |x, l| {
            x.clone() + self.sublayer(l, x)
        })
    }

    /// The gradients of `sum(output * g)` for a fixed `g`.
    pub(crate) fn gradients(&self, output: Tensor<3>) -> SharedGradients {
        let g = tensor(
            &numbers(98, 2 * 3 * D),
            [2, 3, D],
            DType::F64,
            &output.device(),
        );
        let gradients = (output * g).sum().backward();
        SharedGradients {
            embedding: to_f64(self.embedding.grad(&gradients).expect("embedding")),
            weights: self
                .weights
                .iter()
                .map(|w| to_f64(w.grad(&gradients).expect("weight")))
                .collect(),
        }
    }
}

pub(crate) fn rms_norm(x: Tensor<3>, eps: f64) -> Tensor<3> {
    let rms = (x.clone().square().mean_dim(2) + eps).sqrt();
    x / rms
}

pub(crate) fn attn_res(sublayers: usize, plan: BlockPlan, device: &Device) -> AttnRes {
    AttnResConfig::new(D, sublayers)
        .with_plan(plan)
        .init(device)
}

/// As [`attn_res`], with queries and key scales as training might leave them, in f64.
pub(crate) fn trained_attn_res(sublayers: usize, plan: BlockPlan, device: &Device) -> AttnRes {
    let mut attn_res = attn_res(sublayers, plan, device);
    let parameter = |seed: usize, offset: f64| {
        let values: Vec<f64> = numbers(seed as u64, D).iter().map(|x| x + offset).collect();
        Param::from_tensor(tensor(&values, [D], DType::F64, device))
    };
    for (i, read) in attn_res.reads.iter_mut().enumerate() {
        read.query = parameter(200 + i, 0.0);
        read.gamma = parameter(300 + i, 1.0);
    }
    attn_res
}
