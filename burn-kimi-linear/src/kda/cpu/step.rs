//! One token at a time: decode, and the snapshots of speculative decoding.
//!
//! A step touches every number of the state twice, in blocks that stay in the first cache between the two: once to read what the memory
//! says about the key and the query, once to decay it and write. Per head that is `8 K V` bytes of traffic and `7 K V` operations.
//!
//! The order of operations is that of a chunk of one token, so a sequence has the same bits whether its last token comes in a step of its
//! own or behind the others.

use macerator::Simd;

use super::chunk::{Chunk, Needs};
use super::lanes::{dot, lanes, load, splat, store};
use super::prepare::fill;
use super::problem::{Dims, Head, Problem, padded};
use super::rows::SharedRows;
use super::states::{SharedStates, copy_rows, fill_rows};
use super::threads::for_each;
use super::tile::Tile;

/// Registers of a state's row that are worked on together.
const BLOCK: usize = 4;

/// Where a step's state goes besides its slot.
#[derive(Clone, Copy)]
pub(super) enum Keep<'a> {
    /// Nowhere.
    Last,
    /// Into `[B, T, HV, K, V]`, whose `T` is given, after every token.
    Every(SharedStates<'a>, usize),
}

/// Takes every sequence through its tokens one by one.
pub(super) fn steps(problem: &Problem, o: SharedRows, states: SharedStates, keep: Keep) {
    let dims = &problem.dims;
    for_each(
        problem.plan.sequences.len() * dims.heads,
        || Workspace::new(dims),
        |workspace, task| {
            let head = problem.head(task / dims.heads, task % dims.heads);
            run(problem, head, workspace, o, states, keep);
        },
    );
}

struct Workspace {
    token: Chunk,
    /// The decayed key, and the decayed query.
    reads: Tile,
    value: Tile,
    output: Tile,
    /// A state whose rows are no whole registers is worked on in here.
    padded_state: Tile,
}

impl Workspace {
    fn new(dims: &Dims) -> Self {
        let dims = Dims { chunk: 1, ..*dims };
        let padded_rows = match padded(dims.value) == dims.value {
            true => 0,
            false => dims.key,
        };
        Self {
            token: Chunk::new(&dims),
            reads: Tile::zeros(2, dims.key),
            value: Tile::zeros(1, dims.value),
            output: Tile::zeros(1, dims.value),
            padded_state: Tile::zeros(padded_rows, dims.value),
        }
    }
}

#[macerator::with_simd]
fn run<'a, S: Simd>(
    problem: &Problem<'a>,
    head: Head,
    workspace: &mut Workspace,
    o: SharedRows<'a>,
    states: SharedStates<'a>,
    keep: Keep<'a>,
) {
    let Dims {
        key, value, heads, ..
    } = problem.dims;
    // SAFETY: no other task has this head.
    let state = unsafe { states.part(problem.state_range(head)) };
    let whole_registers = padded(value) == value;
    let Workspace {
        token,
        reads,
        value: values,
        output,
        padded_state,
    } = workspace;
    if !whole_registers {
        fill_rows(padded_state, 0, state, value);
    }
    for t in 0..head.sequence.len {
        token.load::<S>(problem, head, t, 1, Needs::KeysAndQueries);
        let width = padded(key);
        for (row, of_start) in [&token.k_of_start, &token.q_of_start]
            .into_iter()
            .enumerate()
        {
            reads.row_mut(row)[..width].copy_from_slice(&of_start.row(0)[..width]);
        }
        let place = head.value_row(t);
        fill(values.row_mut(0), problem.v.row(place));
        let step = Step {
            key: reads.row(0),
            query: reads.row(1),
            decay: token.decay.row(0),
            write: token.k.row(0),
            beta: token.beta[0],
            own: dot::<S>(&token.q.row(0)[..width], &token.k.row(0)[..width]),
            value: values.row(0),
        };
        let (rows, stride) = match whole_registers {
            true => (&mut *state, value),
            false => padded_state.parts_mut(),
        };
        step.run::<S>(key, padded(value), rows, stride, output.row_mut(0));
        // SAFETY: no other task has this head.
        unsafe { o.row(place) }.copy_from_slice(&output.row(0)[..value]);
        if let Keep::Every(snapshots, tokens) = keep {
            let [row, at, head] = place;
            let start = ((row * tokens + at) * heads + head) * key * value;
            // SAFETY: no other task has this head.
            let snapshot = unsafe { snapshots.part(start..start + key * value) };
            match whole_registers {
                true => snapshot.copy_from_slice(state),
                false => copy_rows(padded_state, snapshot, value),
            }
        }
    }
    if !whole_registers {
        copy_rows(padded_state, state, value);
    }
}

/// One token of one head: rows of keys `[K]` and of values `[V]`, padded.
struct Step<'a> {
    /// The key times the decay: it reads the state before it has decayed.
    key: &'a [f32],
    /// The query times the decay.
    query: &'a [f32],
    decay: &'a [f32],
    write: &'a [f32],
    beta: f32,
    /// `<q, k>`: what the query sees of the token's own write.
    own: f32,
    value: &'a [f32],
}

impl Step<'_> {
    #[inline(always)]
    fn run<S: Simd>(
        &self,
        key_dim: usize,
        width: usize,
        state: &mut [f32],
        stride: usize,
        output: &mut [f32],
    ) {
        let block = BLOCK * lanes::<S>();
        let mut at = 0;
        while at + block <= width {
            self.columns::<S, BLOCK>(key_dim, state, stride, at, output);
            at += block;
        }
        while at < width {
            self.columns::<S, 1>(key_dim, state, stride, at, output);
            at += lanes::<S>();
        }
    }

    /// `WIDE` registers of columns, from `at` on.
    #[inline(always)]
    fn columns<S: Simd, const WIDE: usize>(
        &self,
        key_dim: usize,
        state: &mut [f32],
        stride: usize,
        at: usize,
        output: &mut [f32],
    ) {
        let mut known = [splat::<S>(0.0); WIDE];
        let mut read = [splat::<S>(0.0); WIDE];
        for d in 0..key_dim {
            let row = &state[d * stride + at..];
            let (key, query) = (splat::<S>(self.key[d]), splat::<S>(self.query[d]));
            for j in 0..WIDE {
                let state = load::<S>(row, j * lanes::<S>());
                known[j] = key.mul_add(state, known[j]);
                read[j] = query.mul_add(state, read[j]);
            }
        }
        let mut write = [splat::<S>(0.0); WIDE];
        for j in 0..WIDE {
            let place = at + j * lanes::<S>();
            write[j] = (load::<S>(self.value, place) - known[j]) * splat(self.beta);
            store(output, place, read[j] + splat::<S>(self.own) * write[j]);
        }
        for d in 0..key_dim {
            let row = &mut state[d * stride + at..];
            let (decay, key) = (splat::<S>(self.decay[d]), splat::<S>(self.write[d]));
            for (j, write) in write.into_iter().enumerate() {
                let place = j * lanes::<S>();
                let state = load::<S>(row, place).mul_add(decay, key * write);
                store(row, place, state);
            }
        }
    }
}
