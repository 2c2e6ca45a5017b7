//! One depth-attention read on Flex: 9 sources of width 1024, 2048 tokens, f32.
//!
//! `cargo bench -p burn-attnres`. Flex computes at once, so nothing is read to end the clock. Throughput counts the bytes that any implementation must move: forward reads
//! the sources and writes `h`, `(n+1) d` numbers a token; backward reads the sources and the gradient of `h` and
//! writes the gradients of the sources, `(2n+1) d` more.

use std::hint::black_box;
use std::time::Duration;

use burn::tensor::{Device, Distribution, Tensor};
use burn_attnres::depth_attention;
use criterion::measurement::WallTime;
use criterion::{BenchmarkGroup, Criterion, Throughput, criterion_group, criterion_main};

#[path = "../src/depth_attention/reference.rs"]
mod reference;

/// Keeps freed memory. The system's allocator gives tensors of this size back, and a new one then costs the kernel a fault for every
/// page, which takes longer than to compute what is in it.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

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

    fn read_primitive(&self) -> Tensor<3> {
        let u = self.query.clone() * self.gamma.clone();
        reference::forward(self.sources.clone(), u, EPS).0
    }
}

/// The bytes of this many vectors for every token.
fn bytes(vectors: usize) -> Throughput {
    Throughput::Bytes((vectors * WIDTH * TOKENS * size_of::<f32>()) as u64)
}

/// The operator, and the same from primitive operations.
type Read = fn(&Inputs) -> Tensor<3>;
const FORMS: [(&str, Read); 2] = [
    ("flex", Inputs::read),
    ("primitive", Inputs::read_primitive),
];

fn forward(criterion: &mut Criterion) {
    let mut group = group(criterion, "attnres/forward", SOURCES + 1);
    let inputs = Inputs::new(&Device::flex());
    for (name, read) in FORMS {
        group.bench_function(name, |bencher| {
            bencher.iter(|| black_box(read(&inputs)));
        });
    }
}

fn forward_backward(criterion: &mut Criterion) {
    let mut group = group(criterion, "attnres/forward_backward", 3 * SOURCES + 2);
    let inputs = Inputs::new(&Device::flex().autodiff()).require_grad();
    for (name, read) in FORMS {
        group.bench_function(name, |bencher| {
            bencher.iter(|| {
                let gradients = (read(&inputs) * inputs.cotangent.clone()).sum().backward();
                let last = inputs.sources.last().expect("sources");
                black_box(last.grad(&gradients).expect("gradient"))
            });
        });
    }
}

/// What the machine can do: as many bytes as the forward read moves, half of them read and half written, by all threads.
fn copy(criterion: &mut Criterion) {
    let mut group = group(criterion, "attnres/copy", SOURCES + 1);
    let from = vec![1.0f32; SOURCES.div_ceil(2) * WIDTH * TOKENS];
    let mut to = vec![0.0f32; from.len()];
    let part = from.len().div_ceil(rayon::current_num_threads());
    group.bench_function("flex", |bencher| {
        bencher.iter(|| {
            rayon::scope(|scope| {
                for (to, from) in to.chunks_mut(part).zip(from.chunks(part)) {
                    scope.spawn(move |_| to.copy_from_slice(from));
                }
            });
            black_box(&mut to);
        });
    });
}

fn group<'a>(
    criterion: &'a mut Criterion,
    name: &str,
    vectors: usize,
) -> BenchmarkGroup<'a, WallTime> {
    let mut group = criterion.benchmark_group(name);
    group.sample_size(20);
    group.measurement_time(Duration::from_secs(10));
    group.throughput(bytes(vectors));
    group
}

criterion_group!(benches, forward, forward_backward, copy);
criterion_main!(benches);
