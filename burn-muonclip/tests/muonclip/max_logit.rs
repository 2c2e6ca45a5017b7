//! The largest logits against the naive maximum over all pairs.

use burn::tensor::{Bool, DType, Device, Distribution, FloatDType, Tensor, TensorData};
use burn_muonclip::{MaxLogitOptions, max_logit, max_logit_bound};
use proptest::prelude::*;

#[derive(Clone, Copy, Debug)]
struct Shape {
    batch: usize,
    heads: usize,
    group: usize,
    queries: usize,
    keys: usize,
    dim: usize,
}

impl Shape {
    fn q(self) -> [usize; 4] {
        [self.batch, self.heads, self.queries, self.dim]
    }

    fn k(self) -> [usize; 4] {
        [self.batch, self.heads / self.group, self.keys, self.dim]
    }
}

/// The devices of this build that have a kernel.
fn devices() -> Vec<Device> {
    vec![
        Device::flex(),
        #[cfg(feature = "wgpu")]
        Device::wgpu(burn::tensor::DeviceKind::DefaultDevice),
    ]
}

/// Drawn by the CPU: on software Vulkan every further kernel of Burn's costs seconds of compiling.
fn random(device: &Device, shape: [usize; 4]) -> Tensor<4> {
    let drawn = Tensor::<4>::random(shape, Distribution::Normal(0.0, 2.0), &Device::flex());
    Tensor::from_data(drawn.into_data(), device)
}

/// What is not the kernel goes through Burn's operations, the same on every device.
fn with_primitives(device: &Device) -> bool {
    *device == Device::flex()
}

fn numbers<const D: usize>(x: Tensor<D>) -> Vec<f64> {
    x.into_data().iter::<f64>().collect()
}

fn f64s(x: &Tensor<4>) -> Tensor<4> {
    x.clone().cast(DType::F64)
}

/// As they are, and in f64 where the device has it, which goes through primitive operations.
fn in_every_precision(q: &Tensor<4>, k: &Tensor<4>) -> Vec<(Tensor<4>, Tensor<4>)> {
    let mut both = vec![(q.clone(), k.clone())];
    if with_primitives(&q.device()) {
        both.push((f64s(q), f64s(k)));
    }
    both
}

/// Every pair, one by one, in f64.
fn naive(q: &Tensor<4>, k: &Tensor<4>, options: &MaxLogitOptions) -> Vec<f64> {
    let [batch, heads, queries, dim] = q.dims();
    let [_, key_heads, keys, _] = k.dims();
    let (q, k) = (numbers(q.clone()), numbers(k.clone()));
    let scale = options.scale.unwrap_or(1.0 / (dim as f64).sqrt());
    let mask = options.mask.clone().map(|mask| {
        let mask = mask.expand([batch, heads, queries, keys]);
        mask.into_data().iter::<bool>().collect::<Vec<_>>()
    });
    let mut largest = vec![f64::NEG_INFINITY; heads];
    for b in 0..batch {
        for h in 0..heads {
            let g = h / (heads / key_heads);
            for i in 0..queries {
                for j in 0..keys {
                    let later = options.causal && j + queries > i + keys;
                    let place = ((b * heads + h) * queries + i) * keys + j;
                    if later || mask.as_ref().is_some_and(|mask| mask[place]) {
                        continue;
                    }
                    let row = &q[((b * heads + h) * queries + i) * dim..][..dim];
                    let column = &k[((b * key_heads + g) * keys + j) * dim..][..dim];
                    let product: f64 = row.iter().zip(column).map(|(x, y)| x * y).sum();
                    let logit = product * scale;
                    let logit = if logit.is_nan() { f64::INFINITY } else { logit };
                    largest[h] = largest[h].max(logit);
                }
            }
        }
    }
    largest
}

fn assert_close(found: Tensor<1>, wanted: &[f64], tolerance: f64) {
    let found = numbers(found);
    assert_eq!(found.len(), wanted.len());
    for (head, (x, y)) in found.iter().zip(wanted).enumerate() {
        let same = x == y || (x - y).abs() <= tolerance * y.abs().max(1.0);
        assert!(same, "head {head}: {x} instead of {y}");
    }
}

/// The kernel in f32, and primitive operations in f64.
fn check(q: &Tensor<4>, k: &Tensor<4>, options: &MaxLogitOptions) {
    let wanted = naive(q, k, options);
    assert_close(max_logit(q.clone(), k.clone(), options), &wanted, 1e-5);
    if !with_primitives(&q.device()) {
        return;
    }
    assert_close(max_logit(f64s(q), f64s(k), options), &wanted, 1e-12);
    let bound = numbers(max_logit_bound(q.clone(), k.clone(), options));
    let largest = numbers(max_logit(q.clone(), k.clone(), options));
    for (bound, largest) in bound.iter().zip(largest) {
        assert!(*bound >= largest, "{bound} is below {largest}");
    }
}

#[test]
fn equals_the_naive_maximum_at_every_edge_of_a_block() {
    for device in devices() {
        for (queries, keys) in [
            (1, 1),
            (1, 130),
            (63, 65),
            (64, 64),
            (65, 63),
            (129, 200),
            (300, 600),
        ] {
            for dim in [1, 3, 16, 100] {
                let shape = Shape {
                    batch: 2,
                    heads: 4,
                    group: 2,
                    queries,
                    keys,
                    dim,
                };
                let (q, k) = (random(&device, shape.q()), random(&device, shape.k()));
                check(&q, &k, &MaxLogitOptions::new());
                check(
                    &q,
                    &k,
                    &MaxLogitOptions::new().with_causal(true).with_scale(3.0),
                );
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]
    #[test]
    fn equals_the_naive_maximum(
        batch in 1usize..3, key_heads in 1usize..4, group in 1usize..4, queries in 1usize..80, keys in 1usize..80,
        dim in 1usize..40, causal: bool, mask_axes in prop::option::of(any::<[bool; 4]>()), seed: u64,
    ) {
        for device in devices() {
            Device::flex().seed(seed);
            let shape = Shape { batch, heads: key_heads * group, group, queries, keys, dim };
            let (q, k) = (random(&device, shape.q()), random(&device, shape.k()));
            let mut options = MaxLogitOptions::new().with_causal(causal);
            if let Some(axes) = mask_axes {
                let mut dims = [batch, shape.heads, queries, keys];
                for (dim, whole) in dims.iter_mut().zip(axes) {
                    if !whole {
                        *dim = 1;
                    }
                }
                let mask = random(&Device::flex(), dims).greater_elem(0.5);
                options = options.with_mask(Tensor::from_data(mask.into_data(), &device));
            }
            check(&q, &k, &options);
        }
    }
}

#[test]
fn hidden_rows_may_hold_anything() {
    for device in devices() {
        let options = MaxLogitOptions::new();
        let (q, k) = (random(&device, [1, 2, 5, 8]), random(&device, [1, 2, 7, 8]));
        let wanted = naive(&q, &k, &options);
        let broken = |count| Tensor::<4>::full([1, 2, count, 8], f32::NAN, &device);
        let k = Tensor::cat(vec![k, broken(3)], 2);
        let pad: Vec<bool> = (0..10).map(|j| j >= 7).collect();
        let pad = Tensor::<1, Bool>::from_data(TensorData::from(pad.as_slice()), &device);
        let options = options.with_mask(pad.reshape([1, 1, 1, 10]));
        for (q, k) in in_every_precision(&q, &k) {
            assert_close(max_logit(q, k, &options), &wanted, 1e-5);
        }
    }
}

#[test]
fn visible_nan_and_infinity_are_infinite() {
    for device in devices() {
        for bad in [f32::NAN, f32::INFINITY] {
            let (q, k) = (
                random(&device, [1, 2, 3, 4]).abs(),
                random(&device, [1, 2, 3, 4]).abs(),
            );
            let q = q.slice_assign([0..1, 1..2, 1..2, 0..1], Tensor::full([1; 4], bad, &device));
            for (q, k) in in_every_precision(&q, &k) {
                for found in [
                    max_logit(q.clone(), k.clone(), &MaxLogitOptions::new()),
                    max_logit_bound(q.clone(), k.clone(), &MaxLogitOptions::new()),
                ] {
                    let found = numbers(found);
                    assert!(found[0].is_finite(), "{found:?}");
                    assert_eq!(found[1], f64::INFINITY);
                }
            }
        }
    }
}

#[test]
fn without_visible_pairs_it_is_minus_infinity() {
    for device in devices() {
        let none = [f64::NEG_INFINITY; 2];
        let options = MaxLogitOptions::new();
        for (q, k) in [
            ([1, 2, 0, 4], [1, 2, 3, 4]),
            ([1, 2, 3, 4], [1, 2, 0, 4]),
            ([0, 2, 3, 4], [0, 2, 3, 4]),
        ] {
            let (q, k) = (Tensor::zeros(q, &device), Tensor::zeros(k, &device));
            assert_eq!(numbers(max_logit(q.clone(), k.clone(), &options)), none);
            assert_eq!(numbers(max_logit_bound(q, k, &options)), none);
        }
        let (q, k) = (random(&device, [1, 2, 3, 4]), random(&device, [1, 2, 3, 4]));
        let all = options.with_mask(Tensor::<4, Bool>::ones([1; 4], &device));
        for (q, k) in in_every_precision(&q, &k) {
            assert_eq!(numbers(max_logit(q, k, &all)), none);
        }
        // More queries than keys: the first ones see nothing.
        check(
            &random(&device, [1, 2, 9, 4]),
            &random(&device, [1, 2, 3, 4]),
            &MaxLogitOptions::new().with_causal(true),
        );
    }
}

#[test]
fn views_are_read_as_they_are_seen() {
    for device in devices() {
        let (q, k) = (
            random(&device, [2, 70, 4, 24]),
            random(&device, [2, 90, 2, 24]),
        );
        let (q, k) = (q.swap_dims(1, 2), k.swap_dims(1, 2));
        let (q, k) = (q.narrow(3, 4, 16), k.narrow(3, 8, 16));
        check(&q, &k, &MaxLogitOptions::new().with_causal(true));
        let one = random(&device, [1, 1, 90, 16]);
        check(&q, &one.expand([2, 2, 90, 16]), &MaxLogitOptions::new());
    }
}

#[test]
fn sixteen_bit_queries_are_computed_in_f32() {
    for device in devices() {
        for (dtype, float) in [
            (DType::BF16, FloatDType::BF16),
            (DType::F16, FloatDType::F16),
        ] {
            if !device.supports_dtype(float) {
                continue;
            }
            let (q, k) = (
                random(&device, [1, 2, 40, 32]).cast(dtype),
                random(&device, [1, 2, 40, 32]).cast(dtype),
            );
            let found = max_logit(q.clone(), k.clone(), &MaxLogitOptions::new());
            assert_eq!(found.dtype(), DType::F32);
            assert_close(found, &naive(&q, &k, &MaxLogitOptions::new()), 1e-5);
            let bound = numbers(max_logit_bound(q, k, &MaxLogitOptions::new()));
            assert!(bound.iter().all(|bound| bound.is_finite()));
        }
    }
}

#[test]
fn the_bound_holds_where_it_is_reached() {
    for device in devices() {
        for dim in [1, 7, 64, 256] {
            let q = random(&device, [1, 3, 20, dim]);
            let options = MaxLogitOptions::new();
            let largest = numbers(max_logit(q.clone(), q.clone(), &options));
            let bound = numbers(max_logit_bound(q.clone(), q, &options));
            for (largest, bound) in largest.iter().zip(bound) {
                assert!(
                    *largest <= bound && bound < largest * 1.001,
                    "{largest} {bound}"
                );
            }
        }
    }
}

#[test]
fn nothing_of_it_is_differentiated() {
    for device in devices() {
        let q = random(&device, [1, 2, 3, 4]);
        let tracked = Tensor::<4>::from_inner(q.clone()).require_grad();
        let found = max_logit(tracked.clone(), tracked.clone(), &MaxLogitOptions::new());
        assert!(!found.is_autodiff());
        assert_eq!(
            numbers(found),
            numbers(max_logit(q.clone(), q, &MaxLogitOptions::new()))
        );
    }
}

#[test]
#[should_panic(expected = "max_logit: 3 query heads are not a multiple of 2 key heads")]
fn heads_that_do_not_fit_are_refused() {
    let device = Device::flex();
    max_logit(
        random(&device, [1, 3, 2, 4]),
        random(&device, [1, 2, 2, 4]),
        &MaxLogitOptions::new(),
    );
}

#[test]
#[should_panic(expected = "must agree in the first and the last axis")]
fn widths_that_do_not_fit_are_refused() {
    let device = Device::flex();
    max_logit(
        random(&device, [1, 2, 2, 4]),
        random(&device, [1, 2, 2, 5]),
        &MaxLogitOptions::new(),
    );
}

#[test]
#[should_panic(expected = "a mask [1, 1, 1, 3] does not fit [1, 2, 2, 2]")]
fn masks_that_do_not_fit_are_refused() {
    let device = Device::flex();
    let mask = Tensor::<4, Bool>::zeros([1, 1, 1, 3], &device);
    let options = MaxLogitOptions::new().with_mask(mask);
    max_logit(
        random(&device, [1, 2, 2, 4]),
        random(&device, [1, 2, 2, 4]),
        &options,
    );
}

#[test]
#[should_panic(expected = "`scale` must be positive and finite, got -1")]
fn scales_that_turn_the_order_round_are_refused() {
    let device = Device::flex();
    let options = MaxLogitOptions::new().with_scale(-1.0);
    max_logit(
        random(&device, [1, 2, 2, 4]),
        random(&device, [1, 2, 2, 4]),
        &options,
    );
}
