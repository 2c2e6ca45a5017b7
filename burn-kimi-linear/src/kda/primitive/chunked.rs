//! KDA by chunks of tokens, from Burn's primitive operations.
//!
//! Inside a chunk that the state `S0` enters, with `G_t` the running sum of the gates and `D_ti = exp(G_t - G_i)`:
//!
//! ```text
//! A_ti = sum_d k_t k_i D_ti  (i < t)        B_ti = sum_d q_t k_i D_ti  (i <= t)
//! T    = (I + Diag(beta) A)^-1
//! U    = T Diag(beta) (V - (K e^G) S0)      the deltas that the chunk writes
//! O    = (Q e^G) S0 + B U
//! S1   = Diag(e^{G_C}) S0 + (K e^{G_C - G})^T U
//! ```
//!
//! `A`, `B`, `T` and both factors of `U` do not depend on the state and are computed for all chunks at once; only the three
//! products with the state walk over the chunks. See [`super::decay`] for how the decay is kept from overflowing.

use burn::tensor::Tensor;

use super::Prepared;
use super::decay::{Decay, Level};

/// `[chunks, B * HV, ..]`: chunks lead, so that the walk over them takes contiguous views.
type Chunks = Tensor<4>;

pub(super) fn chunked(sequence: Prepared, chunk_size: usize) -> (Tensor<4>, Tensor<4>) {
    let Prepared {
        q,
        k,
        v,
        g,
        beta,
        state,
    } = sequence;
    let [batch, tokens, heads, value_dim] = v.dims();
    let [_, _, key_dim, _] = state.dims();
    let rows = batch * heads;

    let q = to_chunks(q, chunk_size);
    let k = to_chunks(k, chunk_size);
    let v = to_chunks(v, chunk_size);
    let g = to_chunks(g, chunk_size);
    let beta = to_chunks(beta.unsqueeze_dim(3), chunk_size);

    let [chunks, ..] = k.dims();
    let merged = |x: &Chunks, width| x.clone().reshape([chunks * rows, chunk_size, width]);
    let by_chunk = |x: Tensor<3>| {
        let [_, size, width] = x.dims();
        x.reshape([chunks, rows, size, width])
    };
    let decay = Decay::new(merged(&g, key_dim));
    let from_start = by_chunk(decay.from_start.exp());
    let to_end = by_chunk(decay.to_end.exp());
    let whole = from_start
        .clone()
        .narrow(2, chunk_size - 1, 1)
        .swap_dims(2, 3);

    let within = Within::new(
        merged(&q, key_dim),
        merged(&k, key_dim),
        merged(&beta, 1),
        decay.levels,
    );
    let solve = by_chunk(within.solve);
    let written = solve.clone().matmul(v * beta.clone());
    let read_back = solve.matmul(k.clone() * from_start.clone() * beta);
    let walk = Walk {
        reads: Tensor::cat(vec![read_back, q * from_start], 2),
        written,
        keys: (k * to_end).swap_dims(2, 3),
        whole,
    };
    let state = state.reshape([rows, key_dim, value_dim]);
    let (from_state, updates, state) = walk.run(state);

    let o = from_state + by_chunk(within.queries).matmul(updates);
    (
        from_chunks(o, [batch, tokens, heads, value_dim]),
        state.reshape([batch, heads, key_dim, value_dim]),
    )
}

/// What the tokens of a chunk are to each other.
struct Within {
    /// `B`, `[N, C, C]`.
    queries: Tensor<3>,
    /// `T`, `[N, C, C]`.
    solve: Tensor<3>,
}

impl Within {
    /// `q` and `k` are `[N, C, K]`, `beta` is `[N, C, 1]`; the levels are those of [`Decay`], smallest blocks first.
    ///
    /// With `T` the inverse of the diagonal blocks of one size and `L` the part of `Diag(beta) A` that joins two of them, the inverse
    /// of the blocks twice as large is `T - T L T`: block-wise substitution, as stable as the row-wise one.
    fn new(q: Tensor<3>, k: Tensor<3>, beta: Tensor<3>, levels: Vec<Level>) -> Self {
        let [_, size, _] = k.dims();
        let identity = Tensor::<2>::eye(size, &k.device()).cast(k.dtype());
        let identity = identity.unsqueeze::<3>();
        let own = (q.clone() * k.clone()).sum_dim(2) * identity.clone();
        let unsolved = Self {
            queries: own,
            solve: identity,
        };
        levels
            .into_iter()
            .enumerate()
            .fold(unsolved, |within, (at, level)| {
                let decay = level.exponents.exp();
                let decayed_q = q.clone() * decay.clone();
                let decayed_k = k.clone() * decay;
                let columns = decayed_k.clone().swap_dims(1, 2);
                let queries = decayed_q.matmul(columns.clone()) * level.pairs.clone();
                let joining = decayed_k.matmul(columns) * level.pairs * beta.clone();
                let solve = within.solve;
                let correction = match at {
                    0 => joining, // The blocks are single tokens, and their inverse is the identity.
                    _ => solve.clone().matmul(joining).matmul(solve.clone()),
                };
                Self {
                    queries: within.queries + queries,
                    solve: solve - correction,
                }
            })
    }
}

/// The part that depends on the state, and so goes from chunk to chunk.
struct Walk {
    /// `[T Diag(beta) (K e^G); Q e^G]`, `[chunks, B * HV, 2C, K]`: everything that reads the state that enters.
    reads: Chunks,
    /// `T Diag(beta) V`, `[chunks, B * HV, C, V]`.
    written: Chunks,
    /// `(K e^{G_C - G})^T`, `[chunks, B * HV, K, C]`.
    keys: Chunks,
    /// `e^{G_C}`, `[chunks, B * HV, K, 1]`.
    whole: Chunks,
}

impl Walk {
    /// Returns `(Q e^G) S0` and `U` of every chunk, `[chunks, B * HV, C, V]`, and the last state.
    fn run(self, mut state: Tensor<3>) -> (Chunks, Chunks, Tensor<3>) {
        let [_, _, size, _] = self.written.dims();
        let steps = split(self.reads)
            .into_iter()
            .zip(split(self.written))
            .zip(split(self.keys))
            .zip(split(self.whole));
        let mut outputs = Vec::new();
        let mut updates = Vec::new();
        for (((reads, written), keys), whole) in steps {
            let read = reads.matmul(state.clone());
            let update = written - read.clone().narrow(1, 0, size);
            state = state * whole + keys.matmul(update.clone());
            outputs.push(read.narrow(1, size, size));
            updates.push(update);
        }
        (Tensor::stack(outputs, 0), Tensor::stack(updates, 0), state)
    }
}

/// Splits off the leading axis by halving: the gradient of a slice fills its whole parent, so `n` slices of one tensor would
/// cost `n` times its size where this costs `log2(n)` times.
fn split(x: Chunks) -> Vec<Tensor<3>> {
    let [chunks, ..] = x.dims();
    if chunks == 1 {
        return vec![x.squeeze_dim(0)];
    }
    let half = chunks / 2;
    let mut parts = split(x.clone().narrow(0, 0, half));
    parts.extend(split(x.narrow(0, half, chunks - half)));
    parts
}

/// `[B, T, HV, D]` to `[chunks, B * HV, C, D]`, the last chunk filled up with tokens that neither write nor decay.
fn to_chunks(x: Tensor<4>, size: usize) -> Chunks {
    let [batch, tokens, heads, dim] = x.dims();
    let chunks = tokens.div_ceil(size);
    let missing = chunks * size - tokens;
    let x = if missing == 0 {
        x
    } else {
        let fill = Tensor::zeros([batch, missing, heads, dim], (&x.device(), x.dtype()));
        Tensor::cat(vec![x, fill], 1)
    };
    x.reshape([batch, chunks, size, heads, dim])
        .permute([1, 0, 3, 2, 4])
        .reshape([chunks, batch * heads, size, dim])
}

/// The inverse of [`to_chunks`].
fn from_chunks(x: Chunks, [batch, tokens, heads, dim]: [usize; 4]) -> Tensor<4> {
    let [chunks, _, size, _] = x.dims();
    x.reshape([chunks, batch, heads, size, dim])
        .permute([1, 0, 3, 2, 4])
        .reshape([batch, chunks * size, heads, dim])
        .narrow(1, 0, tokens)
}
