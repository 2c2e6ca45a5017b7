//! The forward pass: chunk by chunk through every head of every sequence.
//!
//! A token and head costs `6 K V` operations for the three products with the state, and about `(3 K + 4 V) C / 2` within the
//! chunk. Heads are independent, and so are the columns of their values: where there are fewer heads than threads, the columns are
//! shared out, each part doing the work within the chunks over.
//!
//! From memory come `4 (3 K + V) + 4` bytes a token and head and `4 V` go there, some 40 operations a byte at widths of 128: arithmetic decides. So a
//! head's state, 64 KiB at these widths, stays in the second cache with the chunk's matrices, and products are blocked for registers.

use std::ops::Range;

use macerator::Simd;

use super::chunk::{Chunk, Needs};
use super::prepare::fill;
use super::problem::{Dims, Head, Problem, padded};
use super::rows::SharedRows;
use super::solve::solve;
use burn_kimi_kernels::cpu::lanes::ALIGNMENT;
use burn_kimi_kernels::cpu::product::{Left, Replace, ScaleAndAdd, Size, Subtract, multiply};
use burn_kimi_kernels::cpu::shared::SharedValues;
use burn_kimi_kernels::cpu::threads::{for_each, workers};
use burn_kimi_kernels::cpu::tile::Tile;

/// Writes the outputs of all tokens and the states after them.
pub(super) fn forward(problem: &Problem, o: SharedRows, states: SharedValues) {
    let dims = &problem.dims;
    let heads = problem.plan.sequences.len() * dims.heads;
    let parts = value_parts(dims.value, workers().div_ceil(heads.max(1)));
    for_each(
        heads * parts.len(),
        || Workspace::new(dims),
        |workspace, task| {
            let (head, part) = (task / parts.len(), task % parts.len());
            let head = problem.head(head / dims.heads, head % dims.heads);
            run(problem, head, parts[part].clone(), workspace, o, states);
        },
    );
}

/// Splits the value columns into about `count` parts that begin at whole registers.
pub(super) fn value_parts(width: usize, count: usize) -> Vec<Range<usize>> {
    let part = width.div_ceil(count).next_multiple_of(ALIGNMENT);
    let starts = (0..width).step_by(part);
    starts
        .map(|start| start..(start + part).min(width))
        .collect()
}

struct Workspace {
    chunk: Chunk,
    state: Tile,
    errors: Tile,
    writes: Tile,
    outputs: Tile,
}

impl Workspace {
    fn new(dims: &Dims) -> Self {
        let values = || Tile::zeros(dims.chunk, dims.value);
        Self {
            chunk: Chunk::new(dims),
            state: Tile::zeros(dims.key, dims.value),
            errors: values(),
            writes: values(),
            outputs: values(),
        }
    }
}

#[macerator::with_simd]
fn run<'a, S: Simd>(
    problem: &Problem<'a>,
    head: Head,
    columns: Range<usize>,
    workspace: &mut Workspace,
    o: SharedRows<'a>,
    states: SharedValues<'a>,
) {
    let Dims {
        key, value, chunk, ..
    } = problem.dims;
    let Workspace {
        chunk: tokens,
        state,
        errors,
        writes,
        outputs,
    } = workspace;
    let start = problem.state_range(head).start;
    let state_row = |d: usize| {
        let row = start + d * value;
        row + columns.start..row + columns.end
    };
    for d in 0..key {
        // SAFETY: no other task has this head and these columns.
        fill(state.row_mut(d), unsafe { states.part(state_row(d)) });
    }
    for first in (0..head.sequence.len).step_by(chunk) {
        let len = chunk.min(head.sequence.len - first);
        tokens.load::<S>(problem, head, first, len, Needs::KeysAndQueries);
        for t in 0..len {
            let row = problem.v.row(head.value_row(first + t));
            fill(errors.row_mut(t), &row[columns.clone()]);
        }
        read_errors::<S>(tokens, state, padded(columns.len()), errors);
        multiply::<S, _>(
            Size {
                rows: len,
                depth: key,
                width: padded(columns.len()),
            },
            Left::rows(tokens.q_of_start.values(), tokens.q_of_start.stride()),
            (state.values(), state.stride()),
            outputs.parts_mut(),
            Replace,
        );
        solve::<S>(tokens, padded(columns.len()), errors, writes, Some(outputs));
        advance::<S>(tokens, writes, padded(columns.len()), state);
        for t in 0..len {
            // SAFETY: no other task has this head and these columns.
            let row = unsafe { o.part(head.value_row(first + t), columns.clone()) };
            row.copy_from_slice(&outputs.row(t)[..columns.len()]);
        }
    }
    for d in 0..key {
        // SAFETY: as above.
        let row = unsafe { states.part(state_row(d)) };
        row.copy_from_slice(&state.row(d)[..columns.len()]);
    }
}

/// What the values are off from what the state says: `errors - K_start S`.
#[inline(always)]
pub(super) fn read_errors<S: Simd>(chunk: &Chunk, state: &Tile, width: usize, errors: &mut Tile) {
    multiply::<S, _>(
        Size {
            rows: chunk.len,
            depth: chunk.key_dim(),
            width,
        },
        Left::rows(chunk.k_of_start.values(), chunk.k_of_start.stride()),
        (state.values(), state.stride()),
        errors.parts_mut(),
        Subtract,
    );
}

/// The state behind the chunk in place of the one before it: `Diag(whole decay) S + K_end^T U`.
#[inline(always)]
pub(super) fn advance<S: Simd>(chunk: &Chunk, writes: &Tile, width: usize, state: &mut Tile) {
    multiply::<S, _>(
        Size {
            rows: chunk.key_dim(),
            depth: chunk.len,
            width,
        },
        Left::columns(chunk.k_at_end.values(), chunk.k_at_end.stride()),
        (writes.values(), writes.stride()),
        state.parts_mut(),
        ScaleAndAdd(chunk.whole_decay()),
    );
}
