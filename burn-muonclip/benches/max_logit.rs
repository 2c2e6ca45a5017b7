//! The largest attention logits: in blocks, from the matrix of all of them, and what the lengths of queries and keys allow.
//! `cargo bench -p burn-muonclip --bench max_logit`. One element is one operation of the products that count: half of them for causal attention.
//! Flex computes at once, so nothing is read to end the clock.

use std::hint::black_box;

use burn::tensor::{Bool, Device, Distribution, Tensor};
use burn_muonclip::{MaxLogitOptions, max_logit, max_logit_bound};
use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};

const HEADS: usize = 8;
const DIM: usize = 128;

fn max_logits(criterion: &mut Criterion) {
    let device = Device::default();
    let mut group = criterion.benchmark_group("max_logit");
    group.sample_size(10);
    for tokens in [512, 2048] {
        let shape = [1, HEADS, tokens, DIM];
        let random = || Tensor::<4>::random(shape, Distribution::Normal(0.0, 1.0), &device);
        let (q, k) = (random(), random());
        let options = MaxLogitOptions::new().with_causal(true);
        let size = format!("B1 H{HEADS} T{tokens} D{DIM} causal");
        let pairs = HEADS * tokens * (tokens + 1) / 2;
        group.throughput(Throughput::Elements((2 * pairs * DIM) as u64));
        group.bench_function(BenchmarkId::new("blocks", &size), |bencher| {
            bencher.iter(|| black_box(max_logit(q.clone(), k.clone(), &options)));
        });
        group.bench_function(BenchmarkId::new("all logits", &size), |bencher| {
            bencher.iter(|| black_box(from_all_logits(q.clone(), k.clone())));
        });
        group.bench_function(BenchmarkId::new("bound", &size), |bencher| {
            bencher.iter(|| black_box(max_logit_bound(q.clone(), k.clone(), &options)));
        });
    }
    group.finish();
}

/// As an attention layer would take it that has its scores.
fn from_all_logits(q: Tensor<4>, k: Tensor<4>) -> Tensor<1> {
    let [_, heads, tokens, dim] = q.dims();
    let future = Tensor::<2, Bool>::tril_mask([tokens, tokens], 0, &q.device());
    q.matmul(k.swap_dims(2, 3))
        .mul_scalar((dim as f64).powf(-0.5))
        .mask_fill(future.unsqueeze(), f32::NEG_INFINITY)
        .max_dim(3)
        .max_dim(2)
        .max_dim(0)
        .reshape([heads])
}

criterion_group!(benches, max_logits);
criterion_main!(benches);
