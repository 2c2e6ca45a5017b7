//! The gradients of a chunk's queries, keys and gates, channel by channel.
//!
//! About `6 C^2 K` operations a chunk and head, on `[C, K]` matrices that stay in the first cache: arithmetic decides, so a register is a run of
//! channels and the pairs of tokens are the loop.

use macerator::Simd;

use super::chunk::Chunk;
use super::problem::{Dims, padded};
use burn_kimi_kernels::cpu::lanes::{Lanes, load, registers, splat, store};
use burn_kimi_kernels::cpu::tile::Tile;

/// Gradients inside one chunk.
pub(super) struct ChunkGradients {
    /// `dA`, negated: `dP U^T`, `[C, C]`.
    pub(super) key_pairs: Tile,
    /// `dB`, `[C, C]`.
    pub(super) query_pairs: Tile,
    /// Of the scaled queries, `[C, K]`.
    pub(super) q: Tile,
    /// Of the keys, `[C, K]`.
    pub(super) k: Tile,
    /// Of the log decays, `[C, K]`.
    pub(super) g: Tile,
    /// What one key's meetings contribute to the log decays between, a register a token.
    meetings: Tile,
}

impl ChunkGradients {
    pub(super) fn new(dims: &Dims) -> Self {
        let keys = || Tile::zeros(dims.chunk, dims.key);
        let pairs = || Tile::zeros(dims.chunk, dims.padded_chunk());
        Self {
            key_pairs: pairs(),
            query_pairs: pairs(),
            q: keys(),
            k: keys(),
            g: keys(),
            meetings: Tile::zeros(dims.chunk, 1),
        }
    }

    /// From the gradients of the pairs, of what reads the entering state (`[K, 2 C]`: of the keys, negated, and of the queries), of what
    /// is written to the leaving one (`[K, C]`), and of the decay from one to the other (`[K]`).
    ///
    /// A log decay has a share in everything that passes over its token: in reads of the entering state by this and later tokens, in
    /// writes by earlier ones, in meetings of an earlier key with this or a later token. Each of the three is a running sum in one
    /// direction. The usual formula, `q dq + k dk` with opposite signs for the two sides of a pair, is shorter, but what lies on the same
    /// side of the token then has to cancel.
    #[inline(always)]
    pub(super) fn collect<S: Simd>(
        &mut self,
        chunk: &Chunk,
        reads: &Tile,
        ends: &Tile,
        through: &[f32],
    ) {
        self.transpose_in(chunk, reads, ends);
        for at in registers::<S>(padded(chunk.key_dim())) {
            self.through_states::<S>(chunk, load(through, at), at);
            self.through_pairs::<S>(chunk, at);
        }
    }

    /// Puts the products with the states where they belong, token by token: queries in `q`, keys that read in `g`, keys that write in `k`.
    #[inline(always)]
    fn transpose_in(&mut self, chunk: &Chunk, reads: &Tile, ends: &Tile) {
        let columns = padded(chunk.beta.len());
        for d in 0..chunk.key_dim() {
            let (reads, ends) = (reads.row(d), ends.row(d));
            for t in 0..chunk.len {
                self.g.row_mut(t)[d] = -reads[t];
                self.q.row_mut(t)[d] = reads[columns + t];
                self.k.row_mut(t)[d] = ends[t];
            }
        }
    }

    /// The shares of the entering and the leaving state, in the channels of one register.
    #[inline(always)]
    fn through_states<S: Simd>(&mut self, chunk: &Chunk, through: Lanes<S>, at: usize) {
        let mut written = through;
        for t in 0..chunk.len {
            let (q, k) = (load::<S>(chunk.q.row(t), at), load::<S>(chunk.k.row(t), at));
            let from_start = load::<S>(chunk.from_start.row(t), at);
            let dq = load::<S>(self.q.row(t), at) * from_start;
            let dk_read = load::<S>(self.g.row(t), at) * from_start;
            let dk_end = load::<S>(self.k.row(t), at) * load(chunk.to_end.row(t), at);
            store(self.q.row_mut(t), at, dq);
            store(self.k.row_mut(t), at, dk_read + dk_end);
            // The sums of reads run the other way: for now `g` has its own read, and the writes before it.
            store(self.g.row_mut(t), at, written);
            store(self.meetings.row_mut(t), 0, q.mul_add(dq, k * dk_read));
            written = k.mul_add(dk_end, written);
        }
        let mut read = splat::<S>(0.0);
        for t in (0..chunk.len).rev() {
            read += load(self.meetings.row(t), 0);
            let g = load::<S>(self.g.row(t), at);
            store(self.g.row_mut(t), at, g + read);
        }
    }

    /// The shares of the pairs, in the channels of one register.
    #[inline(always)]
    fn through_pairs<S: Simd>(&mut self, chunk: &Chunk, at: usize) {
        for i in 0..chunk.len {
            let key = load::<S>(chunk.k.row(i), at);
            let mut decay = splat::<S>(1.0);
            let mut dk = splat::<S>(0.0);
            for t in i + 1..chunk.len {
                decay *= load(chunk.decay.row(t), at);
                let carried = key * decay;
                let with_query = splat::<S>(self.query_pairs.row(t)[i]);
                let with_key = splat::<S>(-self.key_pairs.row(t)[i]);
                let dq = with_query.mul_add(carried, load(self.q.row(t), at));
                store(self.q.row_mut(t), at, dq);
                let dk_t = with_key.mul_add(carried, load(self.k.row(t), at));
                store(self.k.row_mut(t), at, dk_t);
                let met = with_query.mul_add(
                    load(chunk.q.row(t), at),
                    with_key * load(chunk.k.row(t), at),
                ) * decay;
                dk += met;
                store(self.meetings.row_mut(t), 0, met * key);
            }
            let mut passed = splat::<S>(0.0);
            for t in (i + 1..chunk.len).rev() {
                passed += load(self.meetings.row(t), 0);
                let g = load::<S>(self.g.row(t), at);
                store(self.g.row_mut(t), at, g + passed);
            }
            // A query meets its own token's key without decay in between.
            let own = splat::<S>(self.query_pairs.row(i)[i]);
            let dq = own.mul_add(key, load(self.q.row(i), at));
            store(self.q.row_mut(i), at, dq);
            let own_dk = own.mul_add(load(chunk.q.row(i), at), dk);
            let dk = load::<S>(self.k.row(i), at) + own_dk;
            store(self.k.row_mut(i), at, dk);
        }
    }
}
