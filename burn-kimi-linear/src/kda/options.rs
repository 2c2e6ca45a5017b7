use super::KdaPath;
use super::plan::Sequence;

/// The chunk that [`kda`](super::kda) works in when no other is asked for.
///
/// The work inside a chunk grows with its square, the steps between chunks with their number: the README has the times of 16, 32
/// and 64.
const DEFAULT_CHUNK_SIZE: usize = 16;

/// The longest chunk. What is held of every chunk grows with the square of its length, and long before this it is slower.
const MAX_CHUNK_SIZE: usize = 1024;

/// Settings of the [`kda`](super::kda) operator.
#[derive(Clone, Debug, Default)]
pub struct KdaOptions {
    scale: Option<f64>,
    chunk_size: Option<usize>,
    lengths: Lengths,
    slots: Option<Vec<usize>>,
    pub(super) path: Option<KdaPath>,
}

/// Where the sequences of a batch are.
#[derive(Clone, Debug, Default)]
enum Lengths {
    /// One in every row, as long as the row.
    #[default]
    Full,
    /// One in every row, of this many tokens.
    PerRow(Vec<usize>),
    /// Behind each other in the only row, from each offset to the next.
    Cumulative(Vec<usize>),
}

impl KdaOptions {
    /// The published settings: scale `K^-1/2`, every row of the batch one sequence.
    pub fn new() -> Self {
        Self::default()
    }

    /// Multiplies the queries by `scale` instead of `K^-1/2`. It may be 0 or negative.
    ///
    /// # Panics
    ///
    /// If `scale` is no number that `f32` can hold.
    pub fn with_scale(mut self, scale: f64) -> Self {
        assert!(
            (scale as f32).is_finite(),
            "KdaOptions: scale must be a number that f32 can hold, got {scale:?}"
        );
        self.scale = Some(scale);
        self
    }

    /// Works in chunks of `chunk_size` tokens, a power of two from 2 to 1024. The result does not depend on it beyond rounding.
    ///
    /// # Panics
    ///
    /// If `chunk_size` is not a power of two, below 2 or above 1024.
    pub fn with_chunk_size(mut self, chunk_size: usize) -> Self {
        assert!(
            chunk_size >= 2 && chunk_size.is_power_of_two(),
            "KdaOptions: chunk_size must be a power of two and at least 2, got {chunk_size}"
        );
        assert!(
            chunk_size <= MAX_CHUNK_SIZE,
            "KdaOptions: chunk_size must be at most {MAX_CHUNK_SIZE}, got {chunk_size}"
        );
        self.chunk_size = Some(chunk_size);
        self
    }

    /// Only the first `lengths[b]` tokens of row `b` are a sequence. What stands behind them is padding: it may hold anything, NaN
    /// included, its outputs are 0 and its gradients too.
    pub fn with_lengths(mut self, lengths: impl Into<Vec<usize>>) -> Self {
        self.lengths = Lengths::PerRow(lengths.into());
        self
    }

    /// The batch has one row that holds `offsets.len() - 1` sequences behind each other: sequence `n` are the tokens from
    /// `offsets[n]` to `offsets[n + 1]`, and has a memory of its own. Sequences may be empty. Tokens behind the last offset are padding.
    pub fn with_cumulative_lengths(mut self, offsets: impl Into<Vec<usize>>) -> Self {
        self.lengths = Lengths::Cumulative(offsets.into());
        self
    }

    /// The state is a pool: sequence `n` starts from slot `slots[n]` of it and leaves its memory there. The other slots come back bit
    /// for bit as they were.
    pub fn with_slots(mut self, slots: impl Into<Vec<usize>>) -> Self {
        self.slots = Some(slots.into());
        self
    }

    /// Insists on a way to compute. By default the kernel is taken where there is one.
    pub fn with_path(mut self, path: KdaPath) -> Self {
        self.path = Some(path);
        self
    }

    /// Checks that every row is one sequence with the state of its row, as it must be where rows are cut into parts.
    ///
    /// # Panics
    ///
    /// With the name of the option that says otherwise.
    pub(super) fn check_whole_rows(&self, operator: &str) {
        let option = match (&self.lengths, &self.slots) {
            (Lengths::PerRow(_), _) => "with_lengths",
            (Lengths::Cumulative(_), _) => "with_cumulative_lengths",
            (Lengths::Full, Some(_)) => "with_slots",
            (Lengths::Full, None) => return,
        };
        panic!(
            "{operator}: every row must be one whole sequence with a state of its own, but the options were given `{option}`"
        );
    }

    pub(super) fn scale_for(&self, key_dim: usize) -> f64 {
        self.scale.unwrap_or((key_dim as f64).powf(-0.5))
    }

    pub(super) fn chunk_size(&self) -> usize {
        self.chunk_size.unwrap_or(DEFAULT_CHUNK_SIZE)
    }

    /// The sequences of a batch of `[rows, tokens]`, and how many slots the state has: `slots` if it is given.
    pub(super) fn sequences(
        &self,
        [rows, tokens]: [usize; 2],
        slots: Option<usize>,
    ) -> (Vec<Sequence>, usize) {
        let spans = self.lengths.spans([rows, tokens]);
        let count = spans.len();
        let slots = slots.unwrap_or(count);
        let slot_of = match &self.slots {
            None => {
                assert!(
                    slots == count,
                    "kda: {count} sequences need a state with as many slots, got {slots} \
                     (`with_slots` picks some of a larger pool)"
                );
                (0..count).collect()
            }
            Some(chosen) => {
                check_slots(chosen, count, slots);
                chosen.clone()
            }
        };
        let sequences = spans
            .into_iter()
            .zip(slot_of)
            .map(|((row, start, len), slot)| Sequence {
                row,
                start,
                len,
                slot,
            })
            .collect();
        (sequences, slots)
    }
}

fn check_slots(chosen: &[usize], sequences: usize, slots: usize) {
    assert!(
        chosen.len() == sequences,
        "kda: {} slots were chosen for {sequences} sequences",
        chosen.len()
    );
    let mut taken = vec![false; slots];
    for &slot in chosen {
        assert!(
            slot < slots,
            "kda: slot {slot} was chosen, but the state has {slots} slots"
        );
        assert!(
            !std::mem::replace(&mut taken[slot], true),
            "kda: slot {slot} was chosen for two sequences"
        );
    }
}

impl Lengths {
    /// `(row, start, length)` of every sequence.
    fn spans(&self, [rows, tokens]: [usize; 2]) -> Vec<(usize, usize, usize)> {
        match self {
            Self::Full => (0..rows).map(|row| (row, 0, tokens)).collect(),
            Self::PerRow(lengths) => {
                assert!(
                    lengths.len() == rows,
                    "kda: {} lengths were given for a batch of {rows}",
                    lengths.len()
                );
                let spans = lengths.iter().enumerate().map(|(row, &length)| {
                    assert!(
                        length <= tokens,
                        "kda: row {row} has {tokens} tokens, its length was given as {length}"
                    );
                    (row, 0, length)
                });
                spans.collect()
            }
            Self::Cumulative(offsets) => {
                assert!(
                    rows == 1,
                    "kda: cumulative lengths need a batch of one row, got {rows}"
                );
                assert!(
                    offsets.first() == Some(&0) && offsets.is_sorted(),
                    "kda: cumulative lengths must start at 0 and not fall, got {offsets:?}"
                );
                assert!(
                    offsets.last() <= Some(&tokens),
                    "kda: cumulative lengths go to {}, but there are {tokens} tokens",
                    offsets[offsets.len() - 1]
                );
                let spans = offsets
                    .windows(2)
                    .map(|ends| (0, ends[0], ends[1] - ends[0]));
                spans.collect()
            }
        }
    }
}
