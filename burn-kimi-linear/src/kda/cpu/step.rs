//! One token at a time: decode, and the snapshots of speculative decoding.
//!
//! A step walks over the state twice: once to read what the memory says about the key and the query, and backwards to decay it and
//! write. Per head that is `8 K V` bytes of traffic from beyond the second cache and `7 K V` operations. Both walks go along the rows as they lie in memory,
//! which is what the machine fetches ahead of its own accord.
//!
//! The order of operations is that of a chunk of one token, so a sequence has the same bits whether its last token comes in a step of its
//! own or behind the others.

use macerator::Simd;

use super::chunk::{Chunk, Needs};
use super::prepare::fill;
use super::problem::{Dims, Head, Problem, padded};
use super::rows::SharedRows;
use super::states::{copy_rows, fill_rows};
use burn_kimi_kernels::cpu::lanes::{dot, load, registers, splat, store};
use burn_kimi_kernels::cpu::shared::SharedValues;
use burn_kimi_kernels::cpu::threads::for_each;
use burn_kimi_kernels::cpu::tile::Tile;

/// Rows of the state that are read together.
const ROWS: usize = 4;

/// Where a step's state goes besides its slot.
#[derive(Clone, Copy)]
pub(super) enum Keep<'a> {
    /// Nowhere.
    Last,
    /// Into `[B, T, HV, K, V]`, whose `T` is given, after every token.
    Every(SharedValues<'a>, usize),
}

/// Takes every sequence through its tokens one by one.
pub(super) fn steps(problem: &Problem, o: SharedRows, states: SharedValues, keep: Keep) {
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
    /// What the state says about the key, and then what is written.
    known: Tile,
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
            known: Tile::zeros(1, dims.value),
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
    states: SharedValues<'a>,
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
        known,
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
        let (known, output) = (known.row_mut(0), output.row_mut(0));
        step.run::<S>(key, padded(value), rows, stride, known, output);
        // SAFETY: no other task has this head.
        unsafe { o.row(place) }.copy_from_slice(&output[..value]);
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
        known: &mut [f32],
        output: &mut [f32],
    ) {
        self.read::<S>(key_dim, width, state, stride, known, output);
        for at in registers::<S>(width) {
            let known_now = load::<S>(known, at);
            let write = (load::<S>(self.value, at) - known_now) * splat(self.beta);
            store(known, at, write);
            store(
                output,
                at,
                load::<S>(output, at) + splat::<S>(self.own) * write,
            );
        }
        self.write::<S>(key_dim, width, state, stride, known);
    }

    /// What the state says about the key and about the query. Rows are taken in the order in which they lie in memory, some at a time, so that
    /// the sums are not loaded and stored for each.
    #[inline(always)]
    fn read<S: Simd>(
        &self,
        key_dim: usize,
        width: usize,
        state: &[f32],
        stride: usize,
        known: &mut [f32],
        read: &mut [f32],
    ) {
        known[..width].fill(0.0);
        read[..width].fill(0.0);
        let mut d = 0;
        while d + ROWS <= key_dim {
            self.read_rows::<S, ROWS>(d, width, &state[d * stride..], stride, known, read);
            d += ROWS;
        }
        while d < key_dim {
            self.read_rows::<S, 1>(d, width, &state[d * stride..], stride, known, read);
            d += 1;
        }
    }

    #[inline(always)]
    fn read_rows<S: Simd, const N: usize>(
        &self,
        first: usize,
        width: usize,
        state: &[f32],
        stride: usize,
        known: &mut [f32],
        read: &mut [f32],
    ) {
        let mut keys = [splat::<S>(0.0); N];
        let mut queries = [splat::<S>(0.0); N];
        for d in 0..N {
            keys[d] = splat(self.key[first + d]);
            queries[d] = splat(self.query[first + d]);
        }
        for at in registers::<S>(width) {
            let mut known_now = load::<S>(known, at);
            let mut read_now = load::<S>(read, at);
            for d in 0..N {
                let state = load::<S>(state, d * stride + at);
                known_now = keys[d].mul_add(state, known_now);
                read_now = queries[d].mul_add(state, read_now);
            }
            store(known, at, known_now);
            store(read, at, read_now);
        }
    }

    /// Decays the state and writes into it, from the last row on: the first cache still has those.
    #[inline(always)]
    fn write<S: Simd>(
        &self,
        key_dim: usize,
        width: usize,
        state: &mut [f32],
        stride: usize,
        write: &[f32],
    ) {
        for d in (0..key_dim).rev() {
            let row = &mut state[d * stride..][..width];
            let (decay, key) = (splat::<S>(self.decay[d]), splat::<S>(self.write[d]));
            for at in registers::<S>(width) {
                let new = load::<S>(row, at).mul_add(decay, key * load(write, at));
                store(row, at, new);
            }
        }
    }
}
