//! What the tokens of a chunk are to each other, before any state comes in.
//!
//! With `a_t = exp(g_t)`, everything here is made of running products of `a`: each is at most 1, nothing can overflow, and a row depends
//! on no later one. The decay between two tokens is a running product too, taken along while a key is carried from token to token;
//! that is `C^2 / 2` steps a chunk of a handful of operations a channel, which at the sizes here costs a few percent of the products
//! with the state, and needs neither sub-chunks nor a reference row.

use macerator::Simd;

use super::prepare::{Gate, fill, scale, unit_length, write_strength};
use super::problem::{Dims, Head, Problem};
use crate::kda::plan::Preparation;
use burn_kimi_kernels::cpu::lanes::{dot, load, registers, splat, store};
use burn_kimi_kernels::cpu::tile::Tile;

/// The tiles of one chunk: `[C, K]`, or `[C, C]` for the pairs.
pub(super) struct Chunk {
    /// Tokens that are there; rows behind them are left over from other chunks.
    pub(super) len: usize,
    /// Queries, of unit length where the plan prepares them, times the scale.
    pub(super) q: Tile,
    /// Keys, of unit length where the plan prepares them.
    pub(super) k: Tile,
    /// `a_t`.
    pub(super) decay: Tile,
    /// `a_1 .. a_t`, all decay from the start of the chunk.
    pub(super) from_start: Tile,
    /// `a_{t+1} .. a_C`, all decay to the end of the chunk.
    pub(super) to_end: Tile,
    /// `q` times `from_start`: a query of the state that enters.
    pub(super) q_of_start: Tile,
    /// `k` times `from_start`.
    pub(super) k_of_start: Tile,
    /// `k` times `to_end`: what a write is worth to the state that leaves.
    pub(super) k_at_end: Tile,
    /// Write strengths.
    pub(super) beta: Vec<f32>,
    /// `A_ti = sum_d k_t k_i D_ti` for `i < t`.
    pub(super) key_pairs: Tile,
    /// `B_ti = sum_d q_t k_i D_ti` for `i <= t`.
    pub(super) query_pairs: Tile,
    /// What made `q` and `k` of unit length.
    pub(super) unit_factors: Vec<[f32; 2]>,
    carried: Tile,
    bias: Tile,
    key_dim: usize,
    width: usize,
}

/// Which parts of a chunk are needed.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Needs {
    /// What changes the state.
    Keys,
    /// And what reads it.
    KeysAndQueries,
}

impl Chunk {
    pub(super) fn new(dims: &Dims) -> Self {
        let keys = || Tile::zeros(dims.chunk, dims.key);
        let pairs = || Tile::zeros(dims.chunk, dims.chunk);
        Self {
            len: 0,
            q: keys(),
            k: keys(),
            decay: keys(),
            from_start: keys(),
            to_end: keys(),
            q_of_start: keys(),
            k_of_start: keys(),
            k_at_end: keys(),
            beta: vec![0.0; dims.chunk],
            key_pairs: pairs(),
            query_pairs: pairs(),
            unit_factors: vec![[1.0; 2]; dims.chunk],
            carried: Tile::zeros(1, dims.key),
            bias: Tile::zeros(1, dims.key),
            key_dim: dims.key,
            width: dims.padded_key(),
        }
    }

    /// The width of keys, without padding.
    #[inline(always)]
    pub(super) fn key_dim(&self) -> usize {
        self.key_dim
    }

    /// All decay of the chunk, by channel.
    #[inline(always)]
    pub(super) fn whole_decay(&self) -> &[f32] {
        self.from_start.row(self.len - 1)
    }

    /// Takes up the tokens `first .. first + len` of a head.
    #[inline(always)]
    pub(super) fn load<S: Simd>(
        &mut self,
        problem: &Problem,
        head: Head,
        first: usize,
        len: usize,
        needs: Needs,
    ) {
        self.len = len;
        let queries = needs == Needs::KeysAndQueries;
        let preparation = problem.plan.preparation;
        fill(self.bias.row_mut(0), problem.bias(head));
        let gate = Gate::new(
            preparation,
            problem.a_log[head.value],
            &self.bias.row(0)[..self.width],
        );
        for t in 0..len {
            let (key_row, value_row) = (head.key_row(first + t), head.value_row(first + t));
            let k = &mut self.k.row_mut(t)[..self.width];
            fill(k, problem.k.row(key_row));
            if preparation != Preparation::None {
                self.unit_factors[t][1] = unit_length::<S>(k);
            }
            if queries {
                let q = &mut self.q.row_mut(t)[..self.width];
                fill(q, problem.q.row(key_row));
                if preparation != Preparation::None {
                    self.unit_factors[t][0] = unit_length::<S>(q);
                }
                scale::<S>(q, problem.plan.scale as f32);
            }
            let decay = &mut self.decay.row_mut(t)[..self.width];
            fill(decay, problem.g.row(value_row));
            gate.decay::<S>(decay);
            self.beta[t] = write_strength(preparation, problem.beta.row(value_row)[0]);
        }
        self.run_decays::<S>(queries);
        self.pair_up::<S>(queries);
    }

    /// The running products from the start and to the end, and keys and queries times those.
    #[inline(always)]
    fn run_decays<S: Simd>(&mut self, queries: bool) {
        for at in registers::<S>(self.width) {
            let mut product = splat::<S>(1.0);
            for t in 0..self.len {
                product *= load(self.decay.row(t), at);
                store(self.from_start.row_mut(t), at, product);
                let k = load::<S>(self.k.row(t), at) * product;
                store(self.k_of_start.row_mut(t), at, k);
                if queries {
                    let q = load::<S>(self.q.row(t), at) * product;
                    store(self.q_of_start.row_mut(t), at, q);
                }
            }
            let mut product = splat::<S>(1.0);
            for t in (0..self.len).rev() {
                store(self.to_end.row_mut(t), at, product);
                let k = load::<S>(self.k.row(t), at) * product;
                store(self.k_at_end.row_mut(t), at, k);
                product *= load(self.decay.row(t), at);
            }
        }
    }

    /// Carries each key from its token to the end of the chunk, decaying on the way, and meets every later key and query with it.
    #[inline(always)]
    fn pair_up<S: Simd>(&mut self, queries: bool) {
        let width = self.width;
        for i in 0..self.len {
            if queries {
                let own = dot::<S>(&self.q.row(i)[..width], &self.k.row(i)[..width]);
                self.query_pairs.row_mut(i)[i] = own;
            }
            let carried = &mut self.carried.row_mut(0)[..width];
            carried.copy_from_slice(&self.k.row(i)[..width]);
            for t in i + 1..self.len {
                let (decay, k, q) = (
                    &self.decay.row(t)[..width],
                    &self.k.row(t)[..width],
                    &self.q.row(t)[..width],
                );
                let mut with_key = splat::<S>(0.0);
                let mut with_query = splat::<S>(0.0);
                for at in registers::<S>(width) {
                    let key = load::<S>(carried, at) * load(decay, at);
                    store(carried, at, key);
                    with_key = key.mul_add(load(k, at), with_key);
                    if queries {
                        with_query = key.mul_add(load(q, at), with_query);
                    }
                }
                self.key_pairs.row_mut(t)[i] = with_key.reduce_add();
                if queries {
                    self.query_pairs.row_mut(t)[i] = with_query.reduce_add();
                }
            }
        }
    }
}
