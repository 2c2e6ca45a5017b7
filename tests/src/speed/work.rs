//! A call's inputs, and the time it takes.

use std::hint::black_box;
use std::time::Instant;

use burn::tensor::{DType, Device, Distribution, Tensor};
use burn_kimi_linear::kda::{KdaGate, KdaProjections, kda_projected};
use burn_kimi_linear::{ForgetGate, KdaOptions};

use super::batch::Batch;
use super::cost::Pass;

/// How often a call is made.
#[derive(Clone, Copy, Debug)]
pub struct Repeats {
    /// Calls before the clock starts.
    pub warm_up: usize,
    /// Measurements, of which the median counts.
    pub samples: usize,
    /// Calls in one measurement, behind each other on the device.
    pub calls: usize,
}

/// The operator with everything that prepares its inputs inside: unit length, the gate with a lower bound, the sigmoid.
pub struct Work {
    projections: KdaProjections,
    gate: KdaGate,
    options: KdaOptions,
    pass: Pass,
}

impl Work {
    /// Random inputs for `heads` heads of `width`.
    #[must_use]
    pub fn new(
        device: &Device,
        dtype: DType,
        batch: &Batch,
        [heads, width]: [usize; 2],
        pass: Pass,
    ) -> Self {
        let device = match pass {
            Pass::Forward => device.clone(),
            Pass::ForwardBackward => device.clone().autodiff(),
        };
        let tokens = batch.lengths.iter().sum();
        let wide = [1, tokens, heads, width];
        Self {
            projections: KdaProjections {
                q: random(wide, &device, dtype),
                k: random(wide, &device, dtype),
                v: random(wide, &device, dtype),
                decay: random(wide, &device, dtype),
                write: random([1, tokens, heads], &device, dtype),
            },
            gate: KdaGate {
                gate: ForgetGate::LowerBound(-5.0),
                a_log: Some(random([heads], &device, DType::F32)),
                dt_bias: random([heads, width], &device, DType::F32),
                allow_negative_eigenvalues: false,
            },
            options: KdaOptions::new().with_cumulative_lengths(batch.offsets()),
            pass,
        }
    }

    /// The median time of a call in seconds.
    #[must_use]
    pub fn time(&self, repeats: Repeats) -> f64 {
        self.calls(repeats.warm_up.max(1));
        let calls = repeats.calls.max(1);
        let samples = (0..repeats.samples.max(1)).map(|_| {
            let start = Instant::now();
            self.calls(calls);
            start.elapsed().as_secs_f64() / calls as f64
        });
        let mut samples: Vec<f64> = samples.collect();
        samples.sort_by(f64::total_cmp);
        samples[samples.len() / 2]
    }

    /// Makes so many calls and waits until the device is done with the last.
    fn calls(&self, count: usize) {
        let mut last = None;
        for _ in 0..count {
            last = Some(self.call());
        }
        if let Some(result) = last {
            let [_, tokens, heads, width] = result.dims();
            // A few numbers of what was written last: to read them all would take longer than the call.
            let few = result.slice([0..1, tokens - 1..tokens, heads - 1..heads, 0..width]);
            black_box(few.into_data().iter::<f32>().sum::<f32>());
        }
    }

    /// The output, or the gradient of the queries.
    fn call(&self) -> Tensor<4> {
        let x = &self.projections;
        let (o, _) = kda_projected(x.clone(), self.gate.clone(), None, &self.options);
        match self.pass {
            Pass::Forward => o,
            Pass::ForwardBackward => x.q.grad(&o.backward()).expect("the queries are tracked"),
        }
    }
}

/// Normal numbers, tracked where the device tracks.
fn random<const D: usize>(shape: [usize; D], device: &Device, dtype: DType) -> Tensor<D> {
    let normal = Distribution::Normal(0.0, 1.0);
    let x = Tensor::<D>::random(shape, normal, (device, DType::F32)).cast(dtype);
    match device.is_autodiff() {
        true => x.require_grad(),
        false => x,
    }
}
