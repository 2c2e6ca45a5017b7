//! KDA by the kernel and from primitive operations, at the sizes of the project's targets:
//! `cargo bench -p burn-kimi-linear --bench kda`. One element is one token of one head. Flex computes at once, so nothing is read to
//! end the clock.

use std::hint::black_box;

use burn::tensor::{Device, Distribution, Tensor, activation::log_sigmoid};
use burn_kimi_linear::kda::KdaPath;
use burn_kimi_linear::{KdaOptions, KdaState, kda};
use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};

/// Keeps freed memory. The system's allocator gives tensors of this size back, and a new one then costs the kernel a fault for every page.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const TOKENS: usize = 2048;
const HEADS: usize = 4;
const HEAD_DIM: usize = 128;
const PATHS: [(&str, KdaPath); 2] = [("flex", KdaPath::Kernel), ("primitive", KdaPath::Primitive)];

struct Inputs {
    q: Tensor<4>,
    k: Tensor<4>,
    v: Tensor<4>,
    g: Tensor<4>,
    beta: Tensor<3>,
}

impl Inputs {
    fn random(tokens: usize, heads: usize, device: &Device) -> Self {
        let normal = Distribution::Normal(0.0, 1.0);
        let wide = [1, tokens, heads, HEAD_DIM];
        let unit = |x: Tensor<4>| x.clone() / x.square().sum_dim(3).sqrt();
        Self {
            q: unit(Tensor::random(wide, normal, device)),
            k: unit(Tensor::random(wide, normal, device)),
            v: Tensor::random(wide, normal, device),
            g: log_sigmoid(Tensor::random(wide, normal, device)),
            beta: Tensor::random([1, tokens, heads], Distribution::Uniform(0.0, 1.0), device),
        }
    }

    fn tracked(self) -> Self {
        Self {
            q: self.q.require_grad(),
            k: self.k.require_grad(),
            v: self.v.require_grad(),
            g: self.g.require_grad(),
            beta: self.beta.require_grad(),
        }
    }

    fn run(&self, state: Option<KdaState>, options: &KdaOptions) -> (Tensor<4>, KdaState) {
        kda(
            self.q.clone(),
            self.k.clone(),
            self.v.clone(),
            self.g.clone(),
            self.beta.clone(),
            state,
            options,
        )
    }

    /// Forward and backward, with the sum of the outputs by row as the loss.
    fn train(&self, options: &KdaOptions) {
        let gradients = self.run(None, options).0.sum_dim(3).sum().backward();
        black_box(self.g.grad(&gradients).expect("g is tracked"));
    }
}

/// So that criterion's time over its throughput is the figure of the targets.
fn token_heads(tokens: usize, heads: usize) -> Throughput {
    Throughput::Elements((tokens * heads) as u64)
}

fn forward(c: &mut Criterion) {
    let mut group = c.benchmark_group("kda/forward");
    group.sample_size(10).throughput(token_heads(TOKENS, HEADS));
    let inputs = Inputs::random(TOKENS, HEADS, &Device::flex());
    for (name, path) in PATHS {
        for chunk_size in [16, 32, 64] {
            let options = KdaOptions::new()
                .with_chunk_size(chunk_size)
                .with_path(path);
            let size = format!("B1 T{TOKENS} H{HEADS} D{HEAD_DIM} chunk {chunk_size}");
            group.bench_function(BenchmarkId::new(name, size), |b| {
                b.iter(|| inputs.run(None, &options).0)
            });
        }
    }
    group.finish();
}

fn forward_backward(c: &mut Criterion) {
    let mut group = c.benchmark_group("kda/forward_backward");
    group.sample_size(10).throughput(token_heads(TOKENS, HEADS));
    let inputs = Inputs::random(TOKENS, HEADS, &Device::flex().autodiff()).tracked();
    for (name, path) in PATHS {
        for chunk_size in [16, 32, 64] {
            let options = KdaOptions::new()
                .with_chunk_size(chunk_size)
                .with_path(path);
            let size = format!("B1 T{TOKENS} H{HEADS} D{HEAD_DIM} chunk {chunk_size}");
            group.bench_function(BenchmarkId::new(name, size), |b| {
                b.iter(|| inputs.train(&options))
            });
        }
    }
    group.finish();
}

/// Time against length: the quotient must not grow.
fn length(c: &mut Criterion) {
    let mut group = c.benchmark_group("kda/length");
    group.sample_size(10);
    for tokens in [1 << 10, 1 << 12, 1 << 14, 1 << 16] {
        group.throughput(token_heads(tokens, HEADS));
        let inputs = Inputs::random(tokens, HEADS, &Device::flex().autodiff()).tracked();
        let size = format!("B1 T{tokens} H{HEADS} D{HEAD_DIM}");
        group.bench_function(BenchmarkId::new("flex", size), |b| {
            b.iter(|| inputs.train(&KdaOptions::new()))
        });
    }
    group.finish();
}

/// One token from one state again and again, and from 32 states in turn, which no cache holds.
fn decode(c: &mut Criterion) {
    const DECODE_HEADS: usize = 32;
    let mut group = c.benchmark_group("kda/decode");
    group.throughput(token_heads(1, DECODE_HEADS));
    let device = Device::flex();
    let inputs = Inputs::random(1, DECODE_HEADS, &device);
    for (name, path) in PATHS {
        let options = KdaOptions::new().with_path(path);
        for states in [1, 32] {
            let size = format!("B1 H{DECODE_HEADS} D{HEAD_DIM} states {states}");
            group.bench_function(BenchmarkId::new(name, size), |b| {
                let shape = [1, DECODE_HEADS, HEAD_DIM, HEAD_DIM];
                let mut pool: Vec<_> = (0..states)
                    .map(|_| Some(KdaState::zeros(shape, &device)))
                    .collect();
                let mut turn = 0;
                b.iter(|| {
                    let (o, state) = inputs.run(pool[turn].take(), &options);
                    pool[turn] = Some(state);
                    turn = (turn + 1) % states;
                    o
                })
            });
        }
    }
    group.finish();
}

criterion_group!(benches, forward, forward_backward, decode, length);
criterion_main!(benches);
