//! Five Newton-Schulz steps on batches of equal matrices.
//!
//! Throughput counts the operations of the standard form, `5 (4 n^2 m + 2 n^3)` a matrix with `n <= m`, so
//! forms that need fewer show as faster. Criterion prints it as elements a second: `Gelem/s` reads as GFLOP/s.

use std::hint::black_box;
use std::time::Duration;

use burn::tensor::{Device, Distribution, Tensor};
use burn_muonclip::{NewtonSchulzConfig, newton_schulz};
use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};

const SHAPES: [[usize; 3]; 3] = [[4, 1024, 1024], [8, 512, 512], [4, 512, 2048]];

fn operations([batch, n, m]: [usize; 3], steps: usize) -> u64 {
    let (n, m) = (n.min(m), n.max(m));
    (batch * steps * (4 * n * n * m + 2 * n * n * n)) as u64
}

fn newton_schulz_benchmark(c: &mut Criterion) {
    let device = Device::default();
    let config = NewtonSchulzConfig::new();
    let mut group = c.benchmark_group("newton_schulz");
    group.sample_size(10).warm_up_time(Duration::from_secs(1));
    for shape in SHAPES {
        let [batch, n, m] = shape;
        let x = Tensor::<3>::random(shape, Distribution::Normal(0.0, 1.0), &device);
        group.throughput(Throughput::Elements(operations(shape, config.steps)));
        group.bench_function(
            BenchmarkId::new("primitive", format!("{batch}x{n}x{m}")),
            |b| {
                b.iter(|| {
                    // Reading the bytes is what waits for the work to be done.
                    let out = newton_schulz(x.clone(), &config).into_data();
                    black_box(out.as_bytes().last().copied())
                });
            },
        );
    }
    group.finish();
}

criterion_group!(benches, newton_schulz_benchmark);
criterion_main!(benches);
