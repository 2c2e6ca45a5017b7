//! The gradient of the loss with respect to every parameter, against finite differences.

use burn::module::{Module, ModuleMapper, ModuleVisitor, Param};
use burn::optim::GradientsParams;
use burn::tensor::{DType, Device, Distribution, Tensor};
use burn_kimi_model::Decoder;

use crate::decoder::{compositions, tokens, with_queries};

/// Differences need more digits than `f32` has. Burn's norm still rounds to `f32` inside, which sets step and tolerance.
struct Widen;

impl ModuleMapper for Widen {
    fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
        let (id, value, mapper) = param.consume();
        let value = value.inner().cast(DType::F64);
        Param::from_mapped_value(id, Tensor::from_inner(value).require_grad(), mapper)
    }
}

/// Moves one parameter, by its place in the visit, along a direction.
struct Move {
    place: usize,
    at: usize,
    direction: Vec<f64>,
    step: f64,
}

impl ModuleMapper for Move {
    fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
        let place = self.at;
        self.at += 1;
        if place != self.place {
            return param;
        }
        let (id, value, mapper) = param.consume();
        let shape = value.dims();
        let data = burn::tensor::TensorData::new(self.direction.clone(), shape);
        let direction = Tensor::<D>::from_data(data, (&value.device(), value.dtype()));
        Param::from_mapped_value(id, value + direction * self.step, mapper)
    }
}

/// What finite differences need to know of each parameter: its path, a direction, and the slope along it.
#[derive(Default)]
struct Directional<'a> {
    grads: Option<&'a GradientsParams>,
    path: Vec<String>,
    found: Vec<(String, Vec<f64>, f64)>,
}

impl ModuleVisitor for Directional<'_> {
    fn enter_module(&mut self, name: &str, _container: &str) {
        self.path.push(name.into());
    }

    fn exit_module(&mut self, _name: &str, _container: &str) {
        self.path.pop();
    }

    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        let value = param.val().inner();
        let unit = |x: Tensor<D>| {
            let length = x.clone().square().sum().sqrt() + 1e-12;
            x / length.unsqueeze()
        };
        let random = unit(value.random_like(Distribution::Normal(0.0, 1.0)));
        let grad = self.grads.and_then(|grads| grads.get::<D>(param.id));
        let grad = grad.unwrap_or_else(|| value.zeros_like());
        // Half along the gradient, for a slope well above the rounding, and half anywhere, to notice what is missing in it.
        let direction = unit(grad.clone()) + random;
        let slope = (grad * direction.clone()).sum().into_scalar::<f64>();
        let direction = direction.into_data().iter::<f64>().collect();
        self.found.push((self.path.join("."), direction, slope));
    }
}

fn loss(model: &Decoder, device: &Device) -> Tensor<1> {
    let text = [[3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8]];
    let logits = model.forward(tokens(&text, device));
    burn::tensor::activation::log_softmax(logits, 2)
        .narrow(2, 1, 3)
        .square()
        .sum()
}

#[test]
fn every_parameter_matches_finite_differences() {
    const NOISE: f64 = 5e-3;
    const STEPS: [f64; 4] = [1e-3, 1e-4, 1e-2, 1e-5];
    let (mut checked, mut parameters) = (0, 0);
    let device = Device::flex().autodiff();
    for config in compositions() {
        let model = with_queries(config.init(&device)).map(&mut Widen);
        let grads = GradientsParams::from_grads(loss(&model, &device).backward(), &model);
        let mut directional = Directional {
            grads: Some(&grads),
            ..Directional::default()
        };
        model.visit(&mut directional);
        for (place, (path, direction, slope)) in directional.found.into_iter().enumerate() {
            let at = |step| {
                let moved = model.valid().map(&mut Move {
                    place,
                    at: 0,
                    direction: direction.clone(),
                    step,
                });
                loss(&moved, &Device::flex()).into_scalar::<f64>()
            };
            // How far the loss is straight depends on the parameter: norms of short keys bend it within a thousandth, and rates
            // move it so little that a short step drowns in rounding. A wrong slope agrees at none of the steps.
            let measured = |step: f64| (at(step) - at(-step)) / (2.0 * step);
            let agrees = |step| {
                let want = measured(step);
                (slope - want).abs() <= 1e-2 * want.abs() + NOISE
            };
            assert!(
                STEPS.into_iter().any(agrees),
                "{} {}: {path}: {slope} instead of {:?}",
                config.attention,
                config.residual,
                STEPS.map(measured)
            );
            checked += usize::from(slope.abs() > 4.0 * NOISE);
            parameters += 1;
        }
    } // The first read has one source, whatever its query, and some rates hardly matter to twelve tokens.
    assert!(
        10 * checked > 9 * parameters,
        "{checked} of {parameters} slopes stand out"
    );
}
