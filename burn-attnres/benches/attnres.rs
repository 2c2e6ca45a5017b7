//! One depth-attention read on Flex: 9 sources of width 1024, 2048 tokens, f32.
//!
//! `cargo bench -p burn-attnres`. Throughput counts the bytes that any implementation must move: forward reads
//! the sources and writes `h`, `(n+1) d` numbers a token; backward reads the sources and the gradient of `h` and
//! writes the gradients of the sources, `(2n+1) d` more.

use std::hint::black_box;
use std::time::Duration;

use burn::tensor::{Device, Distribution, Tensor};
use burn_attnres::depth_attention;
use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};

const SOURCES: usize = 9;
const WIDTH: usize = 1024;
const TOKENS: usize = 2048;
const EPS: f64 = 1e-6;

struct Inputs {
    sources: Vec<Tensor<3>>,
    query: Tensor<1>,
    gamma: Tensor<1>,
    cotangent: Tensor<3>,
}

impl Inputs {
    fn new(device: &Device) -> Self {
        let normal = Distribution::Normal(0.0, 1.0);
        let vectors = || Tensor::random([1, TOKENS, WIDTH], normal, device);
        Self {
            sources: (0..SOURCES).map(|_| vectors()).collect(),
            query: Tensor::random([WIDTH], Distribution::Normal(0.0, 0.03), device),
            gamma: Tensor::ones([WIDTH], device),
            cotangent: vectors(),
        }
    }

    fn require_grad(self) -> Self {
        Self {
            sources: self.sources.into_iter().map(|v| v.require_grad()).collect(),
            query: self.query.require_grad(),
            gamma: self.gamma.require_grad(),
            cotangent: self.cotangent,
        }
    }

    fn read(&self) -> Tensor<3> {
        depth_attention(&self.sources, self.query.clone(), self.gamma.clone(), EPS)
    }
}

/// The bytes of this many vectors for every token.
fn bytes(vectors: usize) -> Throughput {
    Throughput::Bytes((vectors * WIDTH * TOKENS * size_of::<f32>()) as u64)
}

fn attnres(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("attnres");
    group.sample_size(20);
    group.measurement_time(Duration::from_secs(10));

    group.throughput(bytes(SOURCES + 1));
    let inputs = Inputs::new(&Device::flex());
    group.bench_function(BenchmarkId::new("primitive", "forward"), |bencher| {
        bencher.iter(|| black_box(inputs.read().into_data()));
    });

    group.throughput(bytes(3 * SOURCES + 2));
    let inputs = Inputs::new(&Device::flex().autodiff()).require_grad();
    group.bench_function(
        BenchmarkId::new("primitive", "forward_backward"),
        |bencher| {
            bencher.iter(|| {
                let loss = (inputs.read() * inputs.cotangent.clone()).sum();
                let gradients = loss.backward();
                let last = inputs.sources.last().expect("sources");
                black_box(last.grad(&gradients).expect("gradient").into_data())
            });
        },
    );
    group.finish();
}

criterion_group!(benches, attnres);
criterion_main!(benches);
