//! Five Newton-Schulz steps on batches of equal matrices.
//!
//! Throughput counts the operations of the standard form, `5 (4 n^2 m + 2 n^3)` a matrix with `n <= m`, so
//! forms that need fewer show as faster. Criterion prints it as elements a second: `Gelem/s` reads as GFLOP/s.

use std::hint::black_box;
use std::time::Duration;

use burn::tensor::{Device, Distribution, Tensor};
use burn_muonclip::{NewtonSchulzConfig, STANDARD_COEFFICIENTS, newton_schulz};
use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};

/// The last two are the hidden matrices of `train-lm`.
const SHAPES: [[usize; 3]; 5] = [
    [4, 1024, 1024],
    [8, 512, 512],
    [4, 512, 2048],
    [12, 128, 384],
    [13, 128, 128],
];

fn operations([batch, n, m]: [usize; 3], steps: usize) -> u64 {
    let (n, m) = (n.min(m), n.max(m));
    (batch * steps * (4 * n * n * m + 2 * n * n * n)) as u64
}

/// The five steps as they are written, from Burn's operations: what the crate had before it had forms, frozen for comparison.
fn plain(x: Tensor<3>, config: &NewtonSchulzConfig) -> Tensor<3> {
    let [_, n, _] = x.dims();
    let norm = x.clone().square().sum_dim(2).sum_dim(1).sqrt();
    let identity = Tensor::<2>::eye(n, &x.device()).unsqueeze::<3>();
    (0..config.steps).fold(x.div(norm), |x, _| {
        let [a, b, c] = STANDARD_COEFFICIENTS;
        let gram = x.clone().matmul(x.clone().swap_dims(1, 2));
        let inner = gram.clone().mul_scalar(c) + identity.clone().mul_scalar(b);
        let polynomial = gram.matmul(inner) + identity.clone().mul_scalar(a);
        polynomial.matmul(x)
    })
}

type Form = fn(Tensor<3>, &NewtonSchulzConfig) -> Tensor<3>;
const FORMS: [(&str, Form); 2] = [("flex", newton_schulz), ("plain", plain)];

fn newton_schulz_benchmark(c: &mut Criterion) {
    let device = Device::default();
    let config = NewtonSchulzConfig::new();
    let mut group = c.benchmark_group("newton_schulz");
    group.sample_size(10).warm_up_time(Duration::from_secs(1));
    for shape in SHAPES {
        let [batch, n, m] = shape;
        let x = Tensor::<3>::random(shape, Distribution::Normal(0.0, 1.0), &device);
        group.throughput(Throughput::Elements(operations(shape, config.steps)));
        for (name, form) in FORMS {
            group.bench_function(BenchmarkId::new(name, format!("{batch}x{n}x{m}")), |b| {
                b.iter(|| {
                    // Reading the bytes is what waits for the work to be done.
                    let out = form(x.clone(), &config).into_data();
                    black_box(out.as_bytes().last().copied())
                });
            });
        }
    }
    group.finish();
}

criterion_group!(benches, newton_schulz_benchmark);
criterion_main!(benches);
