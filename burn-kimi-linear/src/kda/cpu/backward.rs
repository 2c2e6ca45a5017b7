//! The backward pass: forward once more for the states between chunks, then back through the chunks.
//!
//! Nothing was saved but the inputs. For each head the forward walk leaves the state that entered every chunk, `T / C` matrices
//! `[K, V]`, and what every token corrected, `[T, V]`; both are freed with the call, and as many exist at a time as there are threads.
//! The walk back costs `12 K V` operations a token on top of the `4 K V` of the walk forward.
//!
//! With the letters of [`super::super::primitive`] and `E` for the errors, `U = Diag(beta) E`:
//!
//! ```text
//! dU  = B^T dO + K_end dS1                 dR = (I + Diag(beta) A)^-T dU,  dP = Diag(beta) dR = dV
//! dB  = dO U^T                             dA = -dP U^T                     dbeta_t = <dR_t, E_t>
//! dS0 = Diag(e^{G_C}) dS1 + Q_start^T dO - K_start^T dP
//! ```

use macerator::Simd;

use super::chunk::{Chunk, Needs};
use super::forward::{advance, read_errors};
use super::pairs::ChunkGradients;
use super::prepare::{Gate, fill, scale, unit_length_backward, write_strength_backward};
use super::problem::{Dims, Head, Problem, padded};
use super::rows::{Rows, SharedRows};
use super::solve::{solve, solve_transposed};
use super::states::{copy_rows, fill_rows};
use crate::kda::plan::Preparation;
use burn_kimi_kernels::cpu::lanes::{dot, load, registers, splat, store};
use burn_kimi_kernels::cpu::product::{Left, Replace, ScaleAndAdd, Size, Subtract, multiply};
use burn_kimi_kernels::cpu::shared::SharedValues;
use burn_kimi_kernels::cpu::threads::for_each;
use burn_kimi_kernels::cpu::tile::Tile;

/// What the backward pass is given beside the inputs.
#[derive(Clone, Copy)]
pub(super) struct Given<'a> {
    /// The states that the sequences started from, `[S, HV, K, V]`.
    pub(super) states: &'a [f32],
    /// The gradient of the output.
    pub(super) o: Rows<'a>,
}

/// Where the gradients go.
#[derive(Clone, Copy)]
pub(super) struct Gradients<'a> {
    pub(super) q: SharedRows<'a>,
    pub(super) k: SharedRows<'a>,
    pub(super) v: SharedRows<'a>,
    pub(super) g: SharedRows<'a>,
    pub(super) beta: SharedRows<'a>,
    /// `[S, HV, K, V]`: on entry the gradients of the states that were left behind.
    pub(super) states: SharedValues<'a>,
    /// `[N, HV]`, a row for every sequence.
    pub(super) a_log: SharedValues<'a>,
    /// `[N, HV, K]`.
    pub(super) dt_bias: SharedValues<'a>,
}

/// Writes the gradients. The value heads that share queries and keys are one task, so that their sums have an order.
pub(super) fn backward(problem: &Problem, given: Given, gradients: Gradients) {
    let dims = &problem.dims;
    let key_heads = dims.heads / dims.group;
    for_each(
        problem.plan.sequences.len() * key_heads,
        || Workspace::new(dims),
        |workspace, task| {
            let (sequence, key_head) = (task / key_heads, task % key_heads);
            for member in 0..dims.group {
                let value_head = key_head * dims.group + member;
                let head = problem.head(sequence, value_head);
                let task = Task {
                    head,
                    parameters: sequence * dims.heads + value_head,
                    is_first_of_group: member == 0,
                };
                run(problem, task, workspace, given, gradients);
            }
        },
    );
}

/// One value head of one sequence.
#[derive(Clone, Copy)]
struct Task {
    head: Head,
    /// Its place in `[N, HV]`.
    parameters: usize,
    /// Whether the gradients of its queries and keys are still to be set rather than added to.
    is_first_of_group: bool,
}

struct Workspace {
    chunk: Chunk,
    state: Tile,
    writes: Tile,
    output_gradients: Tile,
    /// `dR`.
    error_gradients: Tile,
    /// `dP`, which is `dV` too.
    value_gradients: Tile,
    /// `[V, 2 C]`: the last two transposed, side by side.
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
}

impl Workspace {
    fn new(dims: &Dims) -> Self {
        let values = || Tile::zeros(dims.chunk, dims.value);
        let row = || Tile::zeros(1, dims.key);
        let columns = dims.padded_chunk();
        Self {
            chunk: Chunk::new(dims),
            state: Tile::zeros(dims.key, dims.value),
            writes: values(),
            output_gradients: values(),
            error_gradients: values(),
            value_gradients: values(),
            side_by_side: Tile::zeros(dims.value, 2 * columns),
            writes_transposed: Tile::zeros(dims.value, columns),
            reads: Tile::zeros(dims.key, 2 * columns),
            ends: Tile::zeros(dims.key, columns),
            pairs: ChunkGradients::new(dims),
            through: row(),
            bias: row(),
            bias_gradient: row(),
            input: row(),
        }
    }
}

/// The forward walk's traces: the state before every chunk, and the errors of every token.
struct Traces {
    states: Tile,
    errors: Tile,
}

#[macerator::with_simd]
fn run<'a, S: Simd>(
    problem: &Problem<'a>,
    task: Task,
    workspace: &mut Workspace,
    given: Given<'a>,
    gradients: Gradients<'a>,
) {
    let Dims {
        key, value, chunk, ..
    } = problem.dims;
    let Task {
        head, parameters, ..
    } = task;
    let range = problem.state_range(head);
    let mut traces = walk_forward::<S>(problem, head, workspace, &given.states[range.clone()]);

    // SAFETY, here and below: no other task has this head.
    let state_gradient = unsafe { gradients.states.part(range) };
    fill_rows(&mut workspace.state, 0, state_gradient, value);
    fill(workspace.bias.row_mut(0), problem.bias(head));
    workspace.bias_gradient.row_mut(0).fill(0.0);
    let mut a_log_gradient = 0.0;
    for first in (0..head.sequence.len).step_by(chunk).rev() {
        let len = chunk.min(head.sequence.len - first);
        let span = Span {
            first,
            len,
            states: first / chunk * key,
        };
        a_log_gradient += walk_back::<S>(
            problem,
            task,
            span,
            workspace,
            &mut traces,
            given,
            gradients,
        );
    }
    copy_rows(&workspace.state, state_gradient, value);
    if problem.plan.preparation != Preparation::None {
        // SAFETY: as above.
        unsafe {
            gradients.a_log.part(parameters..parameters + 1)[0] = a_log_gradient;
            let bias = gradients
                .dt_bias
                .part(parameters * key..(parameters + 1) * key);
            bias.copy_from_slice(&workspace.bias_gradient.row(0)[..key]);
        }
    }
}

/// The tokens of a chunk.
#[derive(Clone, Copy)]
struct Span {
    first: usize,
    len: usize,
    /// The first row of the state that entered, in the traces.
    states: usize,
}

#[inline(always)]
fn walk_forward<S: Simd>(
    problem: &Problem,
    head: Head,
    workspace: &mut Workspace,
    state: &[f32],
) -> Traces {
    let Dims {
        key, value, chunk, ..
    } = problem.dims;
    let width = padded(value);
    let chunks = head.sequence.len.div_ceil(chunk);
    let mut traces = Traces {
        states: Tile::zeros(chunks * key, value),
        errors: Tile::zeros(head.sequence.len, value),
    };
    let Workspace {
        chunk: tokens,
        state: current,
        writes,
        output_gradients: errors,
        ..
    } = workspace;
    fill_rows(current, 0, state, value);
    for (at, first) in (0..head.sequence.len).step_by(chunk).enumerate() {
        let len = chunk.min(head.sequence.len - first);
        traces.states.copy_rows_from(at * key, current, 0, key);
        tokens.load::<S>(problem, head, first, len, Needs::Keys);
        for t in 0..len {
            fill(errors.row_mut(t), problem.v.row(head.value_row(first + t)));
        }
        read_errors::<S>(tokens, current, width, errors);
        solve::<S>(tokens, width, errors, writes, None);
        traces.errors.copy_rows_from(first, errors, 0, len);
        advance::<S>(tokens, writes, width, current);
    }
    traces
}

/// From the gradient of the state behind a chunk to that of the state before it, and the gradients of its tokens. Returns its part of
/// the gradient of `A_log`.
#[inline(always)]
fn walk_back<S: Simd>(
    problem: &Problem,
    task: Task,
    span: Span,
    workspace: &mut Workspace,
    traces: &mut Traces,
    given: Given,
    gradients: Gradients,
) -> f32 {
    let Dims { key, value, .. } = problem.dims;
    let (width, columns) = (padded(value), problem.dims.padded_chunk());
    let Span { first, len, .. } = span;
    let head = task.head;
    let entered = &traces.states.values()[span.states * traces.states.stride()..];
    let entered = (entered, traces.states.stride());
    let w = &mut *workspace;
    w.chunk
        .load::<S>(problem, head, first, len, Needs::KeysAndQueries);
    for t in 0..len {
        fill(
            w.output_gradients.row_mut(t),
            given.o.row(head.value_row(first + t)),
        );
        let beta = splat::<S>(w.chunk.beta[t]);
        let (error, write) = (traces.errors.row(first + t), w.writes.row_mut(t));
        for at in registers::<S>(width) {
            store(write, at, load::<S>(error, at) * beta);
        }
    }
    multiply::<S, _>(
        Size {
            rows: len,
            depth: key,
            width,
        },
        Left::rows(w.chunk.k_at_end.values(), w.chunk.k_at_end.stride()),
        (w.state.values(), w.state.stride()),
        w.error_gradients.parts_mut(),
        Replace,
    );
    solve_transposed::<S>(
        &w.chunk,
        width,
        &w.output_gradients,
        &mut w.error_gradients,
        &mut w.value_gradients,
    );

    // The products with states have the state on the left, so that it is read in rows whichever way it is used.
    transpose(&w.value_gradients, len, value, &mut w.side_by_side, 0);
    transpose(
        &w.output_gradients,
        len,
        value,
        &mut w.side_by_side,
        columns,
    );
    transpose(&w.writes, len, value, &mut w.writes_transposed, 0);
    let query_rows = rows_of(&w.output_gradients);
    let key_rows = rows_of(&w.value_gradients);
    against::<S>(
        len,
        query_rows,
        &w.writes_transposed,
        value,
        columns,
        &mut w.pairs.query_pairs,
    );
    against::<S>(
        len,
        key_rows,
        &w.writes_transposed,
        value,
        columns,
        &mut w.pairs.key_pairs,
    );
    let entered_rows = Left::rows(entered.0, entered.1);
    against::<S>(
        key,
        entered_rows,
        &w.side_by_side,
        value,
        2 * columns,
        &mut w.reads,
    );
    against::<S>(
        key,
        rows_of(&w.state),
        &w.writes_transposed,
        value,
        columns,
        &mut w.ends,
    );

    for d in 0..key {
        let entered = &entered.0[d * entered.1..][..width];
        let through = dot::<S>(entered, &w.state.row(d)[..width]);
        w.through.row_mut(0)[d] = through * w.chunk.whole_decay()[d];
    }
    multiply::<S, _>(
        Size {
            rows: key,
            depth: len,
            width,
        },
        Left::columns(w.chunk.q_of_start.values(), w.chunk.q_of_start.stride()),
        (w.output_gradients.values(), w.output_gradients.stride()),
        w.state.parts_mut(),
        ScaleAndAdd(w.chunk.whole_decay()),
    );
    multiply::<S, _>(
        Size {
            rows: key,
            depth: len,
            width,
        },
        Left::columns(w.chunk.k_of_start.values(), w.chunk.k_of_start.stride()),
        (w.value_gradients.values(), w.value_gradients.stride()),
        w.state.parts_mut(),
        Subtract,
    );

    w.pairs
        .collect::<S>(&w.chunk, &w.reads, &w.ends, w.through.row(0));
    write_out::<S>(problem, task, span, w, &traces.errors, gradients)
}

fn rows_of(tile: &Tile) -> Left<'_> {
    Left::rows(tile.values(), tile.stride())
}

/// `out = left right`, with the columns of the values between them.
#[inline(always)]
fn against<S: Simd>(
    rows: usize,
    left: Left,
    right: &Tile,
    depth: usize,
    width: usize,
    out: &mut Tile,
) {
    let size = Size { rows, depth, width };
    let right = (right.values(), right.stride());
    multiply::<S, _>(size, left, right, out.parts_mut(), Replace);
}

/// The chain rule through the preparation, and out.
#[inline(always)]
fn write_out<S: Simd>(
    problem: &Problem,
    task: Task,
    span: Span,
    w: &mut Workspace,
    errors: &Tile,
    gradients: Gradients,
) -> f32 {
    let Dims { key, value, .. } = problem.dims;
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
        let (key_row, value_row) = (head.key_row(span.first + t), head.value_row(span.first + t));
        let q = &mut w.pairs.q.row_mut(t)[..width];
        scale::<S>(q, problem.plan.scale as f32);
        let k = &mut w.pairs.k.row_mut(t)[..width];
        let g = &mut w.pairs.g.row_mut(t)[..width];
        if preparation != Preparation::None {
            let [q_factor, k_factor] = w.chunk.unit_factors[t];
            unit_length_backward::<S>(k, &w.chunk.k.row(t)[..width], k_factor);
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
        let (error_gradient, error) = (w.error_gradients.row(t), errors.row(span.first + t));
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
                .copy_from_slice(&w.value_gradients.row(t)[..value]);
            gradients.beta.row(value_row)[0] =
                write_strength_backward(preparation, beta_input, beta);
        }
    }
    a_log_gradient
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
fn transpose(from: &Tile, rows: usize, width: usize, to: &mut Tile, column: usize) {
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
