//! The kernel for Burn's CPU backend.
//!
//! A task is a run of rows. A row is read twice while it is in the first cache, so memory sees every number once: 12 bytes a number forward,
//! 20 backward, which computes everything again.

use burn::backend::tensor::FloatTensor;
use burn::backend::{Flex, TensorMetadata};
use burn_flex::FlexTensor;
use macerator::Simd;

use super::definition::GatedNormOps;
use burn_kimi_kernels::cpu::lanes::{load_part, registers, sigmoid, splat, store_part};
use burn_kimi_kernels::cpu::shared::SharedValues;
use burn_kimi_kernels::cpu::tensors::{Unwritten, cast, contiguous, sum_of_parts, values};
use burn_kimi_kernels::cpu::threads::for_each;

/// Rows of a task.
const ROWS: usize = 64;

impl GatedNormOps for Flex {
    fn gated_norm(x: FlexTensor, gate: FlexTensor, weight: FlexTensor, epsilon: f64) -> FlexTensor {
        let storage = x.dtype();
        let [x, gate, weight] = [x, gate, weight].map(contiguous);
        let problem = Problem::new([&x, &gate, &weight], epsilon);
        let mut y = Unwritten::new(x.shape());
        let rows = y.shared();
        for_each(
            problem.tasks(),
            || (),
            |(), task| forward(&problem, task, rows),
        );
        // SAFETY: the tasks write every row.
        cast(unsafe { y.written() }, storage)
    }

    fn gated_norm_backward(
        x: FlexTensor,
        gate: FlexTensor,
        weight: FlexTensor,
        gradient: FlexTensor,
        epsilon: f64,
    ) -> (FloatTensor<Self>, FloatTensor<Self>, FloatTensor<Self>) {
        let [x_type, gate_type, weight_type] = [&x, &gate, &weight].map(FlexTensor::dtype);
        let [x, gate, weight, gradient] = [x, gate, weight, gradient].map(contiguous);
        let problem = Problem::new([&x, &gate, &weight], epsilon);
        let [mut of_x, mut of_gate] = [&x, &gate].map(|x| Unwritten::new(x.shape()));
        // A row a task: they are added at the end, in their order.
        let mut of_weight = vec![0.0; problem.tasks() * problem.width()];
        let results = Gradients {
            x: of_x.shared(),
            gate: of_gate.shared(),
            weight: SharedValues::of_slice(&mut of_weight),
        };
        for_each(
            problem.tasks(),
            || (),
            |(), task| {
                backward(&problem, task, values(&gradient), results);
            },
        );
        // SAFETY: the tasks write every row.
        let (of_x, of_gate) = unsafe { (of_x.written(), of_gate.written()) };
        let sums = sum_of_parts(&of_weight, weight.shape());
        (
            cast(of_x, x_type),
            cast(of_gate, gate_type),
            cast(sums, weight_type),
        )
    }
}

struct Problem<'a> {
    x: &'a [f32],
    gate: &'a [f32],
    /// `[D]`.
    weight: &'a [f32],
    epsilon: f32,
}

#[derive(Clone, Copy)]
struct Gradients<'a> {
    x: SharedValues<'a>,
    gate: SharedValues<'a>,
    weight: SharedValues<'a>,
}

impl<'a> Problem<'a> {
    fn new([x, gate, weight]: [&'a FlexTensor; 3], epsilon: f64) -> Self {
        Self {
            x: values(x),
            gate: values(gate),
            weight: values(weight),
            epsilon: epsilon as f32,
        }
    }

    fn width(&self) -> usize {
        self.weight.len()
    }

    fn rows(&self) -> usize {
        self.x.len() / self.width()
    }

    fn tasks(&self) -> usize {
        self.rows().div_ceil(ROWS)
    }

    /// `1 / sqrt(mean(x^2) + epsilon)`.
    #[inline(always)]
    fn scale<S: Simd>(&self, x: &[f32]) -> f32 {
        let mut squares = splat::<S>(0.0);
        for at in registers::<S>(x.len()) {
            let x = load_part::<S>(x, at);
            squares = x.mul_add(x, squares);
        }
        (squares.reduce_add() / x.len() as f32 + self.epsilon)
            .sqrt()
            .recip()
    }
}

#[macerator::with_simd]
fn forward<'a, S: Simd>(problem: &Problem<'a>, task: usize, y: SharedValues<'a>) {
    let width = problem.width();
    for row in task * ROWS..problem.rows().min((task + 1) * ROWS) {
        let start = row * width;
        let (x, gate) = (
            &problem.x[start..][..width],
            &problem.gate[start..][..width],
        );
        // SAFETY: no other task has this row.
        let y = unsafe { y.part(start..start + width) };
        let scale = splat::<S>(problem.scale::<S>(x));
        for at in registers::<S>(width) {
            let normed = load_part::<S>(x, at) * scale * load_part(problem.weight, at);
            store_part(y, at, normed * sigmoid(load_part(gate, at)));
        }
    }
}

/// With `n = x r`, `p = d weight sigmoid(gate)` and `d` the gradient of the result: that of `x` is `r (p - n mean(p n))`, that of the gate
/// `d weight n sigmoid(gate) (1 - sigmoid(gate))`, that of the weight the sum of `d n sigmoid(gate)`.
#[macerator::with_simd]
fn backward<'a, S: Simd>(
    problem: &Problem<'a>,
    task: usize,
    gradient: &[f32],
    results: Gradients<'a>,
) {
    let width = problem.width();
    // SAFETY: no other task has this row of sums, nor the rows below.
    let of_weight = unsafe { results.weight.part(task * width..(task + 1) * width) };
    for row in task * ROWS..problem.rows().min((task + 1) * ROWS) {
        let start = row * width;
        let (x, gate) = (
            &problem.x[start..][..width],
            &problem.gate[start..][..width],
        );
        let d = &gradient[start..][..width];
        let (of_x, of_gate) = unsafe {
            (
                results.x.part(start..start + width),
                results.gate.part(start..start + width),
            )
        };
        let scale = splat::<S>(problem.scale::<S>(x));
        let mut along = splat::<S>(0.0);
        for at in registers::<S>(width) {
            let normed = load_part::<S>(x, at) * scale;
            let (gate, d) = (load_part::<S>(gate, at), load_part::<S>(d, at));
            let weight = load_part::<S>(problem.weight, at);
            let open = sigmoid(gate);
            let of_weighted = d * open;
            let of_normed = of_weighted * weight;
            along = of_normed.mul_add(normed, along);
            store_part(of_x, at, of_normed);
            store_part(of_gate, at, of_normed * normed * (splat::<S>(1.0) - open));
            store_part(
                of_weight,
                at,
                of_weighted.mul_add(normed, load_part(of_weight, at)),
            );
        }
        let mean = splat::<S>(-along.reduce_add() / width as f32);
        for at in registers::<S>(width) {
            let normed = load_part::<S>(x, at) * scale;
            let across = normed.mul_add(mean, load_part(of_x, at));
            store_part(of_x, at, across * scale);
        }
    }
}
