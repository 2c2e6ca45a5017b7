//! The walks from chunk to chunk, in some columns of the values: forward `4 K V` operations a token, back `6 K V`, from a state in the second cache.

use std::ops::Range;

use burn_kimi_kernels::cpu::product::{Left, Replace, ScaleAndAdd, Size, Subtract, multiply};
use burn_kimi_kernels::cpu::shared::SharedValues;
use burn_kimi_kernels::cpu::tile::Tile;
use macerator::Simd;

use super::super::chunk::{Chunk, Needs};
use super::super::forward::{advance, read_errors};
use super::super::prepare::fill;
use super::super::problem::{Dims, Head, Problem, padded};
use super::super::solve::{solve, solve_transposed};
use super::{Given, Gradients, Span};

/// What the walks of one head leave.
pub(super) struct Traces {
    /// `[T / C * K, V]`: the states that entered the chunks.
    pub(super) states: Tile,
    /// `[T, V]`.
    pub(super) errors: Tile,
    /// `[T / C * K, V]`: the gradients of the states behind the chunks. This one and the next two are empty where they are used on the way.
    pub(super) state_gradients: Tile,
    /// `dR`, `[T, V]`.
    pub(super) error_gradients: Tile,
    /// `dP`, which is `dV` too, `[T, V]`.
    pub(super) value_gradients: Tile,
}

impl Traces {
    /// No room yet.
    pub(super) fn new(dims: &Dims) -> Self {
        let none = || Tile::zeros(0, dims.value);
        Self {
            states: none(),
            errors: none(),
            state_gradients: none(),
            error_gradients: none(),
            value_gradients: none(),
        }
    }

    /// Room for the walk forward of a head, which is what an earlier head had if that is enough.
    pub(super) fn make_room(&mut self, problem: &Problem, head: Head) {
        let (states, tokens) = rows(problem, head);
        for (tile, rows) in [(&mut self.states, states), (&mut self.errors, tokens)] {
            if tile.rows() < rows {
                *tile = Tile::zeros(rows, problem.dims.value);
            }
        }
    }

    /// Room for both walks of a head.
    pub(super) fn of_both_walks(problem: &Problem, head: Head) -> Self {
        let (states, tokens) = rows(problem, head);
        let room = |rows| Tile::zeros(rows, problem.dims.value);
        Self {
            states: room(states),
            errors: room(tokens),
            state_gradients: room(states),
            error_gradients: room(tokens),
            value_gradients: room(tokens),
        }
    }

    pub(super) fn shared(&mut self) -> SharedTraces<'_> {
        SharedTraces {
            states: SharedTile::of(&mut self.states),
            errors: SharedTile::of(&mut self.errors),
            state_gradients: SharedTile::of(&mut self.state_gradients),
            error_gradients: SharedTile::of(&mut self.error_gradients),
            value_gradients: SharedTile::of(&mut self.value_gradients),
        }
    }
}

fn rows(problem: &Problem, head: Head) -> (usize, usize) {
    let Dims { key, chunk, .. } = problem.dims;
    let tokens = head.sequence.len;
    (tokens.div_ceil(chunk) * key, tokens)
}

/// The same to write, each walk its own columns.
pub(super) struct SharedTraces<'a> {
    states: SharedTile<'a>,
    errors: SharedTile<'a>,
    state_gradients: SharedTile<'a>,
    error_gradients: SharedTile<'a>,
    value_gradients: SharedTile<'a>,
}

struct SharedTile<'a> {
    values: SharedValues<'a>,
    stride: usize,
}

impl<'a> SharedTile<'a> {
    fn of(tile: &'a mut Tile) -> Self {
        let (values, stride) = tile.parts_mut();
        Self {
            values: SharedValues::of_slice(values),
            stride,
        }
    }

    /// Copies the first `count` rows of a tile to columns of the rows from `first` on.
    ///
    /// # Safety
    ///
    /// Nobody else may hold these columns of these rows.
    #[inline(always)]
    unsafe fn set(&self, first: usize, columns: Range<usize>, from: &Tile, count: usize) {
        for row in 0..count {
            let start = (first + row) * self.stride;
            // SAFETY: the caller's promise.
            let to = unsafe { self.values.part(start + columns.start..start + columns.end) };
            to.copy_from_slice(&from.row(row)[..columns.len()]);
        }
    }
}

/// The rows of a tile from one on.
#[derive(Clone, Copy)]
pub(super) struct At<'a> {
    tile: &'a Tile,
    first: usize,
}

impl<'a> At<'a> {
    pub(super) fn new(tile: &'a Tile, first: usize) -> Self {
        Self { tile, first }
    }

    #[inline(always)]
    pub(super) fn row(&self, row: usize) -> &'a [f32] {
        self.tile.row(self.first + row)
    }

    #[inline(always)]
    pub(super) fn rows(&self) -> Left<'a> {
        let stride = self.tile.stride();
        Left::rows(&self.tile.values()[self.first * stride..], stride)
    }
}

/// Where a walk is.
pub(super) struct Walk {
    pub(super) chunk: Chunk,
    /// The state, and on the way back its gradient.
    pub(super) state: Tile,
    errors: Tile,
    writes: Tile,
    output_gradients: Tile,
    /// `dR`.
    pub(super) error_gradients: Tile,
    /// `dP`.
    pub(super) value_gradients: Tile,
}

impl Walk {
    /// Of at most `width` columns.
    pub(super) fn new(dims: &Dims, width: usize) -> Self {
        let values = || Tile::zeros(dims.chunk, width);
        Self {
            chunk: Chunk::new(dims),
            state: Tile::zeros(dims.key, width),
            errors: values(),
            writes: values(),
            output_gradients: values(),
            error_gradients: values(),
            value_gradients: values(),
        }
    }

    /// From the first chunk to the last.
    #[inline(always)]
    pub(super) fn forward<S: Simd>(
        &mut self,
        problem: &Problem,
        head: Head,
        columns: Range<usize>,
        given: Given,
        traces: &SharedTraces,
    ) {
        let Dims { key, value, .. } = problem.dims;
        let width = padded(columns.len());
        let start = problem.state_range(head).start;
        for d in 0..key {
            let row = &given.states[start + d * value..][..value];
            fill(self.state.row_mut(d), &row[columns.clone()]);
        }
        for Span { index, first, len } in Span::all(head, &problem.dims) {
            let (tokens, state) = (&mut self.chunk, &mut self.state);
            let (errors, writes) = (&mut self.errors, &mut self.writes);
            // SAFETY: no other task has these columns of this head; so below.
            unsafe { traces.states.set(index * key, columns.clone(), state, key) };
            tokens.load::<S>(problem, head, first, len, Needs::Keys);
            for t in 0..len {
                let row = problem.v.row(head.value_row(first + t));
                fill(errors.row_mut(t), &row[columns.clone()]);
            }
            read_errors::<S>(tokens, state, width, errors);
            solve::<S>(tokens, width, errors, writes, None);
            unsafe { traces.errors.set(first, columns.clone(), errors, len) };
            advance::<S>(tokens, writes, width, state);
        }
    }

    /// Takes up the gradient of the state that the sequence left.
    #[inline(always)]
    pub(super) fn start_back(
        &mut self,
        problem: &Problem,
        head: Head,
        columns: Range<usize>,
        gradients: Gradients,
    ) {
        for d in 0..problem.dims.key {
            // SAFETY: no other task has these columns of this head.
            let row = unsafe { state_row(problem, head, d, columns.clone(), gradients) };
            fill(self.state.row_mut(d), row);
        }
    }

    /// The gradients of a chunk's errors and values, from that of the state behind it.
    #[inline(always)]
    pub(super) fn back<S: Simd>(
        &mut self,
        problem: &Problem,
        head: Head,
        span: Span,
        columns: Range<usize>,
        given: Given,
    ) {
        let Span { first, len, .. } = span;
        let width = padded(columns.len());
        self.chunk
            .load::<S>(problem, head, first, len, Needs::KeysAndQueries);
        for t in 0..len {
            let row = given.o.row(head.value_row(first + t));
            fill(self.output_gradients.row_mut(t), &row[columns.clone()]);
        }
        multiply::<S, _>(
            Size {
                rows: len,
                depth: problem.dims.key,
                width,
            },
            Left::rows(self.chunk.k_at_end.values(), self.chunk.k_at_end.stride()),
            (self.state.values(), self.state.stride()),
            self.error_gradients.parts_mut(),
            Replace,
        );
        solve_transposed::<S>(
            &self.chunk,
            width,
            &self.output_gradients,
            &mut self.error_gradients,
            &mut self.value_gradients,
        );
    }

    /// Leaves what is known of the chunk.
    #[inline(always)]
    pub(super) fn keep(
        &self,
        problem: &Problem,
        span: Span,
        columns: Range<usize>,
        traces: &SharedTraces,
    ) {
        let Span { index, first, len } = span;
        let key = problem.dims.key;
        // SAFETY: no other task has these columns of this head.
        unsafe {
            let (states, errors) = (&traces.state_gradients, &traces.error_gradients);
            states.set(index * key, columns.clone(), &self.state, key);
            errors.set(first, columns.clone(), &self.error_gradients, len);
            let values = &traces.value_gradients;
            values.set(first, columns, &self.value_gradients, len);
        }
    }

    /// From the gradient of the state behind the chunk to that of the state before it, in `width` columns.
    #[inline(always)]
    pub(super) fn leave<S: Simd>(&mut self, width: usize) {
        let chunk = &self.chunk;
        let size = Size {
            rows: chunk.key_dim(),
            depth: chunk.len,
            width: padded(width),
        };
        multiply::<S, _>(
            size,
            Left::columns(chunk.q_of_start.values(), chunk.q_of_start.stride()),
            (
                self.output_gradients.values(),
                self.output_gradients.stride(),
            ),
            self.state.parts_mut(),
            ScaleAndAdd(chunk.whole_decay()),
        );
        multiply::<S, _>(
            size,
            Left::columns(chunk.k_of_start.values(), chunk.k_of_start.stride()),
            (self.value_gradients.values(), self.value_gradients.stride()),
            self.state.parts_mut(),
            Subtract,
        );
    }

    /// Puts down the gradient of the state that the sequence started from.
    #[inline(always)]
    pub(super) fn finish_back(
        &self,
        problem: &Problem,
        head: Head,
        columns: Range<usize>,
        gradients: Gradients,
    ) {
        for d in 0..problem.dims.key {
            // SAFETY: no other task has these columns of this head.
            let row = unsafe { state_row(problem, head, d, columns.clone(), gradients) };
            row.copy_from_slice(&self.state.row(d)[..columns.len()]);
        }
    }
}

/// Columns of a row of the state's gradient.
///
/// # Safety
///
/// Nobody else may hold them.
#[inline(always)]
unsafe fn state_row<'a>(
    problem: &Problem,
    head: Head,
    row: usize,
    columns: Range<usize>,
    gradients: Gradients<'a>,
) -> &'a mut [f32] {
    let start = problem.state_range(head).start + row * problem.dims.value;
    // SAFETY: the caller's promise.
    unsafe {
        gradients
            .states
            .part(start + columns.start..start + columns.end)
    }
}
