use super::ForgetGate;

/// What to compute, apart from the tensors: fixed when the call is checked, the same for forward and backward.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct KdaPlan {
    /// Multiplies the queries.
    pub(super) scale: f64,
    /// Tokens that are worked on together, a power of two.
    pub(super) chunk_size: usize,
    /// What is done to the inputs before the recurrence.
    pub(super) preparation: Preparation,
    /// The sequences, none sharing a slot or a token with another. May be empty, and so may a sequence.
    pub(super) sequences: Vec<Sequence>,
}

/// What is done to the inputs before the recurrence.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Preparation {
    /// Nothing: `q` and `k` are of unit length, `g` is the log decay, `beta` the write strength.
    None,
    /// The inputs are projections: `q` and `k` are brought to unit length, `g` goes through the forget gate, `beta` through
    /// `write_scale * sigmoid`.
    Projections {
        /// From projection to log decay.
        gate: ForgetGate,
        /// 1, or 2 with negative eigenvalues.
        write_scale: f64,
    },
}

/// A run of tokens with a memory of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Sequence {
    /// Row of the batch.
    pub(super) row: usize,
    /// First token in the row.
    pub(super) start: usize,
    /// Tokens.
    pub(super) len: usize,
    /// Which state it starts from and leaves behind.
    pub(super) slot: usize,
}

impl Sequence {
    /// The token behind the last.
    pub(super) fn end(&self) -> usize {
        self.start + self.len
    }
}

impl KdaPlan {
    /// Whether every sequence has at most one token: a decode step.
    #[cfg(feature = "kernels")]
    pub(super) fn is_step(&self) -> bool {
        self.sequences.iter().all(|sequence| sequence.len <= 1)
    }
}

/// Added to the sum of squares before the root when `q` and `k` are brought to unit length.
pub(super) const UNIT_LENGTH_EPSILON: f64 = 1e-6;
