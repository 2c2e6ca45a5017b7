//! MuonClip in place of AdamW, in a training loop that stays as it is.

use burn::module::Module;
use burn::nn::{Linear, LinearConfig};
use burn::optim::{AdamWConfig, GradientsParams, ModuleOptimizer};
use burn::tensor::{Device, Distribution, Tensor, activation::relu};
use burn_muonclip::{MuonClipConfig, Route};

use crate::{Shown, fell};

#[derive(Module, Debug)]
struct Perceptron {
    hidden: Linear,
    head: Linear,
}

impl Perceptron {
    fn new(device: &Device) -> Self {
        Self {
            hidden: LinearConfig::new(8, 32).init(device),
            head: LinearConfig::new(32, 1).init(device),
        }
    }

    fn loss(&self, x: Tensor<2>) -> Tensor<1> {
        let wanted = x.clone().sin().sum_dim(1);
        let y = self.head.forward(relu(self.hidden.forward(x)));
        (y - wanted).square().mean()
    }
}

fn train(mut model: Perceptron, mut optimizer: ModuleOptimizer, device: &Device) -> Vec<f32> {
    let x = Tensor::random([64, 8], Distribution::Normal(0.0, 1.0), device);
    let mut losses = Vec::new();
    for _ in 0..150 {
        let loss = model.loss(x.clone());
        losses.push(loss.clone().into_scalar());
        let gradients = GradientsParams::from_grads(loss.backward(), &model);
        model = optimizer.step(1e-2, model, gradients);
    }
    losses
}

pub(crate) fn show(device: &Device) -> Shown {
    let model = Perceptron::new(device);
    let plan = MuonClipConfig::new()
        .plan(&model)
        .map_err(|error| error.to_string())?;
    if plan.paths(Route::Muon) != ["hidden.weight"] {
        return Err(format!("an unexpected plan:\n{plan}"));
    }

    let adamw = train(model.clone(), AdamWConfig::new().init(), device);
    let muonclip = train(model.clone(), MuonClipConfig::new().init(&model), device);
    let (adamw, muonclip) = (fell(&adamw, 0.5)?, fell(&muonclip, 0.5)?);
    Ok(format!("AdamW {adamw}; MuonClip {muonclip}"))
}
