//! What the kernels know of a chunk and head once its inputs are prepared, and where it lies: the record.
//!
//! One record a chunk and value head, `f32`, written by [`super::prepare`] and read by everything behind it. All sections are multiples of
//! four numbers, so that records are read four at a time. With `C` tokens, `E_t` the decay from the start of the chunk to behind token `t`
//! and `R_t` that from behind `t` to the end, all products of factors that are at most 1:
//!
//! | section | size | holds |
//! |---|---|---|
//! | `read_keys` | `C x K` | `k_t E_t`: reads the state that enters, for the delta |
//! | `read_queries` | `C x K` | `scale q_t E_t`: reads it for the output |
//! | `write_keys` | `C x K` | `k_t R_t`: writes to the state that leaves |
//! | `whole` | `K` | `E` of the last token: decays the state |
//! | `attention` | `C x C` | `B_ti = scale sum_d q_t k_i D_ti`, 0 for `i > t` |
//! | `solve` | `C x C` | `(I + A Diag(beta))^-1` |
//! | `strength` | `C` | `beta` |
//!
//! and for the backward pass also
//!
//! | section | size | holds |
//! |---|---|---|
//! | `queries`, `keys` | `C x K` each | `q_t`, `k_t` at unit length, the scale not in it |
//! | `decay` | `C x K` | `exp(g_t)` |
//! | `solve_gradient` | `C x C` | `(I + Diag(beta) A)^-1` |
//! | `inverse_lengths` | `2 C` | what brought `q_t` and `k_t` to unit length |
//!
//! The matrices are stored by columns: `M_ti` is at `i * rows + t`.

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Record {
    /// `C`, tokens in a chunk.
    pub(super) chunk: usize,
    /// `K`, the width of a key.
    pub(super) key_dim: usize,
    /// Whether it serves the backward pass.
    pub(super) backward: bool,
}

impl Record {
    /// `K` rounded up to whole vectors of four: the width of a row. What is behind `K` is 0, and 1 for a decay.
    pub(super) fn width(&self) -> usize {
        self.key_dim.next_multiple_of(4)
    }

    /// `C` rounded up to whole vectors of four: the length of a column of a matrix.
    pub(super) fn rows(&self) -> usize {
        self.chunk.next_multiple_of(4)
    }

    fn vectors(&self) -> usize {
        self.chunk * self.width()
    }

    fn matrix(&self) -> usize {
        self.chunk * self.rows()
    }

    pub(super) fn read_keys(&self) -> usize {
        0
    }

    pub(super) fn read_queries(&self) -> usize {
        self.read_keys() + self.vectors()
    }

    pub(super) fn write_keys(&self) -> usize {
        self.read_queries() + self.vectors()
    }

    pub(super) fn whole(&self) -> usize {
        self.write_keys() + self.vectors()
    }

    pub(super) fn attention(&self) -> usize {
        self.whole() + self.width()
    }

    pub(super) fn solve(&self) -> usize {
        self.attention() + self.matrix()
    }

    pub(super) fn strength(&self) -> usize {
        self.solve() + self.matrix()
    }

    pub(super) fn queries(&self) -> usize {
        self.strength() + self.rows()
    }

    pub(super) fn keys(&self) -> usize {
        self.queries() + self.vectors()
    }

    pub(super) fn decay(&self) -> usize {
        self.keys() + self.vectors()
    }

    pub(super) fn solve_gradient(&self) -> usize {
        self.decay() + self.vectors()
    }

    pub(super) fn inverse_lengths(&self) -> usize {
        self.solve_gradient() + self.matrix()
    }

    /// Numbers in a record.
    pub(super) fn len(&self) -> usize {
        if self.backward {
            self.inverse_lengths() + 2 * self.rows()
        } else {
            self.queries()
        }
    }
}
