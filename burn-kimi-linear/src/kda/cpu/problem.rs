use burn_flex::FlexTensor;

use super::rows::Rows;
use crate::kda::plan::{KdaPlan, Sequence};
use burn_kimi_kernels::cpu::lanes::ALIGNMENT;
use burn_kimi_kernels::cpu::tensors::values;

/// The inputs as contiguous `f32`, without the state, which is written as well.
pub(super) struct Inputs {
    pub(super) q: FlexTensor,
    pub(super) k: FlexTensor,
    pub(super) v: FlexTensor,
    pub(super) g: FlexTensor,
    pub(super) beta: FlexTensor,
    pub(super) a_log: FlexTensor,
    pub(super) dt_bias: FlexTensor,
}

/// One call: the inputs, and the plan.
#[derive(Clone, Copy)]
pub(super) struct Problem<'a> {
    pub(super) q: Rows<'a>,
    pub(super) k: Rows<'a>,
    pub(super) v: Rows<'a>,
    pub(super) g: Rows<'a>,
    pub(super) beta: Rows<'a>,
    /// `[HV]`.
    pub(super) a_log: &'a [f32],
    /// `[HV, K]`.
    dt_bias: &'a [f32],
    pub(super) plan: &'a KdaPlan,
    pub(super) dims: Dims,
}

/// The sizes that kernels work with.
#[derive(Clone, Copy)]
pub(super) struct Dims {
    /// Tokens of a chunk.
    pub(super) chunk: usize,
    /// Value heads.
    pub(super) heads: usize,
    /// Value heads that share the queries and keys of one head.
    pub(super) group: usize,
    pub(super) key: usize,
    pub(super) value: usize,
}

impl Dims {
    /// The width of keys, filled up to whole registers.
    pub(super) fn padded_key(&self) -> usize {
        padded(self.key)
    }

    /// The tokens of a chunk, filled up to whole registers.
    pub(super) fn padded_chunk(&self) -> usize {
        padded(self.chunk)
    }
}

/// `width` filled up to whole registers.
#[inline(always)]
pub(super) fn padded(width: usize) -> usize {
    width.next_multiple_of(ALIGNMENT)
}

/// One value head of one sequence.
#[derive(Clone, Copy)]
pub(super) struct Head {
    pub(super) sequence: Sequence,
    /// The value head.
    pub(super) value: usize,
    /// The head of its queries and keys.
    pub(super) key: usize,
}

impl<'a> Problem<'a> {
    pub(super) fn new(inputs: &'a Inputs, plan: &'a KdaPlan) -> Self {
        let (q, v) = (Rows::of(&inputs.q), Rows::of(&inputs.v));
        let longest = plan.sequences.iter().map(|sequence| sequence.len).max();
        let dims = Dims {
            // A chunk longer than the sequences would only be padding.
            chunk: plan
                .chunk_size
                .min(longest.unwrap_or(1).next_power_of_two()),
            heads: v.heads(),
            group: v.heads() / q.heads(),
            key: q.width(),
            value: v.width(),
        };
        Self {
            q,
            k: Rows::of(&inputs.k),
            v,
            g: Rows::of(&inputs.g),
            beta: Rows::of(&inputs.beta),
            a_log: values(&inputs.a_log),
            dt_bias: values(&inputs.dt_bias),
            plan,
            dims,
        }
    }

    /// Value head `head` of sequence `sequence`.
    pub(super) fn head(&self, sequence: usize, head: usize) -> Head {
        Head {
            sequence: self.plan.sequences[sequence],
            value: head,
            key: head / self.dims.group,
        }
    }

    /// The offset of the forget gate, by key channel.
    pub(super) fn bias(&self, head: Head) -> &'a [f32] {
        &self.dt_bias[head.value * self.dims.key..][..self.dims.key]
    }

    /// Where a head's state is in `[S, HV, K, V]`.
    pub(super) fn state_range(&self, head: Head) -> std::ops::Range<usize> {
        let size = self.dims.key * self.dims.value;
        let start = (head.sequence.slot * self.dims.heads + head.value) * size;
        start..start + size
    }
}

impl Head {
    /// Batch row, token and head of the values, for the token at `offset` in the sequence.
    #[inline(always)]
    pub(super) fn value_row(&self, offset: usize) -> [usize; 3] {
        [self.sequence.row, self.sequence.start + offset, self.value]
    }

    /// The same of queries and keys.
    #[inline(always)]
    pub(super) fn key_row(&self, offset: usize) -> [usize; 3] {
        [self.sequence.row, self.sequence.start + offset, self.key]
    }
}
