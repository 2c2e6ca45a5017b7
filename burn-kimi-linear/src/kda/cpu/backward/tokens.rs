//! The gradients of a chunk's tokens, from what the walks know of it: `6 K V` operations a token in products with the states on either side, which are read
//! in rows, and the pairs ([`super::super::pairs`]).

use burn_kimi_kernels::cpu::lanes::{dot, load, registers, splat, store};
use burn_kimi_kernels::cpu::product::{Left, Replace, Size, multiply};
use burn_kimi_kernels::cpu::tile::Tile;
use macerator::Simd;

use super::super::chunk::Chunk;
use super::super::pairs::ChunkGradients;
use super::super::prepare::{Gate, fill, scale, unit_length_backward, write_strength_backward};
use super::super::problem::{Dims, Problem, padded};
use super::walk::At;
use super::{Given, Gradients, Span, Task};
use crate::kda::plan::Preparation;

/// What the walks know of a chunk.
#[derive(Clone, Copy)]
pub(super) struct View<'a> {
    /// The state that entered it.
    pub(super) entered: At<'a>,
    /// The gradient of the state behind it.
    pub(super) left_gradient: At<'a>,
    pub(super) errors: At<'a>,
    /// `dR`.
    pub(super) error_gradients: At<'a>,
    /// `dP`, which is `dV` too.
    pub(super) value_gradients: At<'a>,
}

/// The gradients of a head's gate.
pub(super) struct ParameterGradients {
    a_log: f32,
    /// `[K]`.
    bias: Vec<f32>,
}

impl ParameterGradients {
    pub(super) fn new(key_dim: usize) -> Self {
        Self {
            a_log: 0.0,
            bias: vec![0.0; key_dim],
        }
    }

    pub(super) fn add(&mut self, other: &Self) {
        self.a_log += other.a_log;
        for (sum, term) in self.bias.iter_mut().zip(&other.bias) {
            *sum += term;
        }
    }

    /// To `K + 1` numbers.
    pub(super) fn copy_to(&self, numbers: &mut [f32]) {
        numbers[0] = self.a_log;
        numbers[1..].copy_from_slice(&self.bias);
    }

    pub(super) fn copy_of(numbers: &[f32]) -> Self {
        Self {
            a_log: numbers[0],
            bias: numbers[1..].to_vec(),
        }
    }

    /// As the gradients of a head.
    pub(super) fn write(&self, problem: &Problem, task: Task, gradients: Gradients) {
        if problem.plan.preparation == Preparation::None {
            return;
        }
        let (place, key) = (task.parameters, self.bias.len());
        // SAFETY: no other task has this head.
        unsafe {
            gradients.a_log.part(place..place + 1)[0] = self.a_log;
            let bias = gradients.dt_bias.part(place * key..(place + 1) * key);
            bias.copy_from_slice(&self.bias);
        }
    }
}

/// Room for the work on one chunk.
pub(super) struct Tokens {
    writes: Tile,
    output_gradients: Tile,
    /// `[V, 2 C]`: the gradients of values and outputs, transposed, side by side.
    side_by_side: Tile,
    /// `[V, C]`: `U` transposed.
    writes_transposed: Tile,
    /// `[K, 2 C]`: the gradients of what reads the state.
    reads: Tile,
    /// `[K, C]`: the gradients of what is written to it.
    ends: Tile,
    pairs: ChunkGradients,
    /// By channel: `sum_v S0 dS1` times the whole decay.
    through: Tile,
    bias: Tile,
    bias_gradient: Tile,
    input: Tile,
    /// What the chunk adds to the gradients of the gate.
    pub(super) parameters: ParameterGradients,
}

impl Tokens {
    pub(super) fn new(dims: &Dims) -> Self {
        let values = || Tile::zeros(dims.chunk, dims.value);
        let row = || Tile::zeros(1, dims.key);
        let columns = dims.padded_chunk();
        Self {
            writes: values(),
            output_gradients: values(),
            side_by_side: Tile::zeros(dims.value, 2 * columns),
            writes_transposed: Tile::zeros(dims.value, columns),
            reads: Tile::zeros(dims.key, 2 * columns),
            ends: Tile::zeros(dims.key, columns),
            pairs: ChunkGradients::new(dims),
            through: row(),
            bias: row(),
            bias_gradient: row(),
            input: row(),
            parameters: ParameterGradients::new(dims.key),
        }
    }

    /// Writes the gradients of a chunk that is loaded.
    #[inline(always)]
    pub(super) fn run<S: Simd>(
        &mut self,
        problem: &Problem,
        task: Task,
        span: Span,
        chunk: &Chunk,
        view: View,
        given: Given,
        gradients: Gradients,
    ) {
        let Dims { key, value, .. } = problem.dims;
        let (width, columns) = (padded(value), problem.dims.padded_chunk());
        let len = span.len;
        for t in 0..len {
            let place = task.head.value_row(span.first + t);
            fill(self.output_gradients.row_mut(t), given.o.row(place));
            let beta = splat::<S>(chunk.beta[t]);
            let (error, write) = (view.errors.row(t), self.writes.row_mut(t));
            for at in registers::<S>(width) {
                store(write, at, load::<S>(error, at) * beta);
            }
        }
        // The products with states have the state on the left, so that it is read in rows whichever way it is used.
        let output_gradients = At::new(&self.output_gradients, 0);
        transpose(view.value_gradients, len, value, &mut self.side_by_side, 0);
        transpose(
            output_gradients,
            len,
            value,
            &mut self.side_by_side,
            columns,
        );
        let writes = At::new(&self.writes, 0);
        transpose(writes, len, value, &mut self.writes_transposed, 0);
        let writes = (&self.writes_transposed, columns);
        let pairs = &mut self.pairs;
        against::<S>(
            len,
            output_gradients.rows(),
            writes,
            value,
            &mut pairs.query_pairs,
        );
        against::<S>(
            len,
            view.value_gradients.rows(),
            writes,
            value,
            &mut pairs.key_pairs,
        );
        against::<S>(
            key,
            view.entered.rows(),
            (&self.side_by_side, 2 * columns),
            value,
            &mut self.reads,
        );
        against::<S>(
            key,
            view.left_gradient.rows(),
            writes,
            value,
            &mut self.ends,
        );
        for d in 0..key {
            let (entered, left) = (view.entered.row(d), view.left_gradient.row(d));
            let through = dot::<S>(&entered[..width], &left[..width]);
            self.through.row_mut(0)[d] = through * chunk.whole_decay()[d];
        }
        pairs.collect::<S>(chunk, &self.reads, &self.ends, self.through.row(0));
        self.write_out::<S>(problem, task, span, chunk, view, gradients);
    }

    /// The chain rule through the preparation, and out.
    #[inline(always)]
    fn write_out<S: Simd>(
        &mut self,
        problem: &Problem,
        task: Task,
        span: Span,
        chunk: &Chunk,
        view: View,
        gradients: Gradients,
    ) {
        let Dims { key, value, .. } = problem.dims;
        let w = self;
        fill(w.bias.row_mut(0), problem.bias(task.head));
        w.bias_gradient.row_mut(0).fill(0.0);
        let (width, values) = (padded(key), padded(value));
        let Task {
            head,
            is_first_of_group,
            ..
        } = task;
        let preparation = problem.plan.preparation;
        let gate = Gate::new(
            preparation,
            problem.a_log[head.value],
            &w.bias.row(0)[..width],
        );
        let mut a_log_gradient = 0.0;
        for t in 0..span.len {
            let (key_row, value_row) =
                (head.key_row(span.first + t), head.value_row(span.first + t));
            let q = &mut w.pairs.q.row_mut(t)[..width];
            scale::<S>(q, problem.plan.scale as f32);
            let k = &mut w.pairs.k.row_mut(t)[..width];
            let g = &mut w.pairs.g.row_mut(t)[..width];
            if preparation != Preparation::None {
                let [q_factor, k_factor] = chunk.unit_factors[t];
                unit_length_backward::<S>(k, &chunk.k.row(t)[..width], k_factor);
                // The chunk's queries are scaled, and the scale would enter twice: their direction is taken from the inputs.
                let unit = &mut w.input.row_mut(0)[..width];
                fill(unit, problem.q.row(key_row));
                scale::<S>(unit, q_factor);
                unit_length_backward::<S>(q, unit, q_factor);

                let input = &mut w.input.row_mut(0)[..width];
                fill(input, problem.g.row(value_row));
                a_log_gradient += gate.backward::<S>(input, g);
                let bias = &mut w.bias_gradient.row_mut(0)[..width];
                for at in registers::<S>(width) {
                    store(bias, at, load::<S>(bias, at) + load(g, at));
                }
            }
            let (error_gradient, error) = (view.error_gradients.row(t), view.errors.row(t));
            let beta = dot::<S>(&error_gradient[..values], &error[..values]);
            let beta_input = problem.beta.row(value_row)[0];
            // SAFETY: this task has these value rows, and the rows of queries and keys that they share.
            unsafe {
                set_or_add(gradients.q.row(key_row), q, is_first_of_group);
                set_or_add(gradients.k.row(key_row), k, is_first_of_group);
                gradients.g.row(value_row).copy_from_slice(&g[..key]);
                gradients
                    .v
                    .row(value_row)
                    .copy_from_slice(&view.value_gradients.row(t)[..value]);
                gradients.beta.row(value_row)[0] =
                    write_strength_backward(preparation, beta_input, beta);
            }
        }
        w.parameters.a_log = a_log_gradient;
        w.parameters
            .bias
            .copy_from_slice(&w.bias_gradient.row(0)[..key]);
    }
}

/// `out = left right`, with the columns of the values between them; the right side with its width.
#[inline(always)]
fn against<S: Simd>(
    rows: usize,
    left: Left,
    (right, width): (&Tile, usize),
    depth: usize,
    out: &mut Tile,
) {
    let size = Size { rows, depth, width };
    let right = (right.values(), right.stride());
    multiply::<S, _>(size, left, right, out.parts_mut(), Replace);
}

fn set_or_add(to: &mut [f32], from: &[f32], set: bool) {
    if set {
        to.copy_from_slice(&from[..to.len()]);
    } else {
        to.iter_mut().zip(from).for_each(|(to, from)| *to += from);
    }
}

/// Columns of `to`, from `column` on, from the first `rows` rows of `from`.
#[inline(always)]
fn transpose(from: At, rows: usize, width: usize, to: &mut Tile, column: usize) {
    const BLOCK: usize = 8;
    for block in (0..width).step_by(BLOCK) {
        for row in 0..rows {
            let source = &from.row(row)[block..block + BLOCK];
            for (at, value) in source.iter().enumerate().take(width - block) {
                to.row_mut(block + at)[column + row] = *value;
            }
        }
    }
}
