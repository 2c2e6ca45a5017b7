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

use super::decay::DecayPlan;
use super::function::KdaInput;

/// `[chunks, B * HV, ..]`: chunks lead, so that the walk over them takes contiguous views.
type Chunks = Tensor<4>;

pub(super) fn chunked(input: KdaInput, chunk_size: usize) -> (Tensor<4>, Tensor<4>) {
    let KdaInput {
        q,
        k,
        v,
        g,
        beta,
        state,
        ..
    } = input;
    let [batch, tokens, heads, value_dim] = v.dims();
    let [_, _, key_dim, _] = state.dims();
    let rows = batch * heads;

    let q = to_chunks(q, chunk_size);
    let k = to_chunks(k, chunk_size);
    let v = to_chunks(v, chunk_size);
    let g = to_chunks(g, chunk_size);
    let beta = to_chunks(beta.unsqueeze_dim(3), chunk_size);

    let plan = DecayPlan::new(chunk_size, &v.device(), v.dtype());
    let within = within_chunks(&q, &k, &g, &beta, &plan);

    let edges = plan.edges.unsqueeze::<4>().matmul(g).exp();
    let from_start = edges.clone().narrow(2, 0, chunk_size);
    let to_end = edges.narrow(2, chunk_size, chunk_size);
    let whole = from_start
        .clone()
        .narrow(2, chunk_size - 1, 1)
        .swap_dims(2, 3);

    let written = within.solve.clone().matmul(v * beta.clone());
    let read_back = within.solve.matmul(k.clone() * from_start.clone() * beta);
    let walk = Walk {
        reads: Tensor::cat(vec![read_back, q * from_start], 2),
        written,
        keys: (k * to_end).swap_dims(2, 3),
        whole,
    };
    let state = state.reshape([rows, key_dim, value_dim]);
    let (from_state, updates, state) = walk.run(state);

    let o = from_state + within.queries.matmul(updates);
    (
        from_chunks(o, [batch, tokens, heads, value_dim]),
        state.reshape([batch, heads, key_dim, value_dim]),
    )
}

/// What the tokens of a chunk are to each other.
struct Within {
    /// `B`, `[chunks, B * HV, C, C]`.
    queries: Chunks,
    /// `T`, `[chunks, B * HV, C, C]`.
    solve: Chunks,
}

fn within_chunks(q: &Chunks, k: &Chunks, g: &Chunks, beta: &Chunks, plan: &DecayPlan) -> Within {
    let [chunks, rows, size, key_dim] = k.dims();
    let [levels, _, _] = plan.pairs.dims();
    let by_level = |x: Tensor<4>| x.reshape([chunks * rows, levels, size, key_dim]);
    let all_levels = |x: &Chunks| x.clone().reshape([chunks * rows, 1, size, key_dim]);

    let decay = by_level(
        plan.factors
            .clone()
            .unsqueeze::<4>()
            .matmul(g.clone())
            .exp(),
    );
    let decayed_k = all_levels(k) * decay.clone();
    let decayed_q = all_levels(q) * decay;
    let columns = decayed_k.clone().swap_dims(2, 3);
    let pairs = plan.pairs.clone().unsqueeze::<4>();
    let identity = plan.identity.clone().unsqueeze::<4>();
    let per_chunk = |x: Tensor<4>| x.reshape([chunks, rows, size, size]);

    let earlier = decayed_q.matmul(columns.clone()) * pairs.clone();
    let own = (q.clone() * k.clone()).sum_dim(3) * identity.clone();
    let queries = per_chunk(earlier.sum_dim(1)) + own;

    let beta = beta.clone().reshape([chunks * rows, 1, size, 1]);
    let lower = decayed_k.matmul(columns) * pairs * beta;
    let solve = per_chunk(invert_unit_lower(lower, identity));
    Within { queries, solve }
}

/// `(I + L)^-1` of a unit lower triangular matrix whose strict part `L` is given by levels, `[N, levels, C, C]`.
///
/// With `T` the inverse of the diagonal blocks of one size and `L_l` the part that joins two of them, the inverse of the
/// blocks twice as large is `T - T L_l T`: block-wise substitution, as stable as the row-wise one.
fn invert_unit_lower(lower: Tensor<4>, identity: Tensor<4>) -> Tensor<4> {
    let [_, levels, _, _] = lower.dims();
    (0..levels).fold(identity, |inverse, level| {
        let joining = lower.clone().narrow(1, level, 1);
        if level == 0 {
            return inverse - joining;
        }
        let correction = inverse.clone().matmul(joining).matmul(inverse.clone());
        inverse - correction
    })
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
