//! What the kernels must know of the sequences: a table of whole numbers, made on the host.
//!
//! Long batches are worked through in windows of so many chunks that the scratch memory of one stays within a bound. A window holds the
//! same chunks of every sequence that reaches it, and more of each where fewer do; its result does not depend on where windows end, because
//! the state between two chunks is an `f32` in memory as it is in a register.

use std::ops::Range;

use super::super::plan::Sequence;

/// Numbers in the table for a sequence: its first chunk in the window, how many there are, and its slot.
pub(super) const SEQUENCE_ENTRY: usize = 3;
/// Numbers in the table for a chunk: its first token in the batch, how many tokens it has, and its place among all chunks of the call.
pub(super) const CHUNK_ENTRY: usize = 3;

/// Cubes along one axis of a launch that every API allows.
const MOST_SEQUENCES: usize = 32_768;

/// What one round of launches works on.
pub(super) struct Window {
    /// The entries of the sequences, and behind them those of the chunks.
    pub(super) table: Vec<u32>,
    pub(super) sequences: usize,
    pub(super) chunks: usize,
    /// The place of each of its sequences in the batch.
    places: Vec<u32>,
}

impl Window {
    /// The same table for states that are those of the batch alone, in its order.
    pub(super) fn table_of_batch(&self) -> Vec<u32> {
        let mut table = self.table.clone();
        for (entry, &place) in table.chunks_mut(SEQUENCE_ENTRY).zip(&self.places) {
            entry[2] = place;
        }
        table
    }

    /// Where the entries of the chunks begin.
    pub(super) fn chunks_at(&self) -> usize {
        self.sequences * SEQUENCE_ENTRY
    }
}

/// The windows of some of the sequences, in the order of time.
pub(super) struct Batch {
    pub(super) sequences: usize,
    /// The slots of their states.
    pub(super) slots: Vec<u32>,
    pub(super) windows: Vec<Window>,
}

/// Cuts the sequences into batches of windows of at most `most_chunks` chunks. A batch has at least `fill` sequences, if there are, and more where all
/// of them fit in one window.
pub(super) fn batches(
    sequences: &[Sequence],
    tokens_in_row: usize,
    chunk: usize,
    most_chunks: usize,
    fill: usize,
) -> Vec<Batch> {
    let mut chunks = 0;
    let mut spans = Vec::new();
    for sequence in sequences.iter().filter(|sequence| sequence.len > 0) {
        let span = Span {
            first_token: sequence.row * tokens_in_row + sequence.start,
            tokens: sequence.len,
            slot: sequence.slot,
            chunk,
            first_chunk: chunks,
        };
        chunks += span.chunks();
        spans.push(span);
    }
    let most_chunks = most_chunks.clamp(1, MOST_SEQUENCES);
    let mut batches = Vec::new();
    let mut rest = spans.as_slice();
    while !rest.is_empty() {
        let (spans, behind) = rest.split_at(members(rest, most_chunks, fill));
        batches.push(Batch {
            sequences: spans.len(),
            slots: spans.iter().map(|span| to_u32(span.slot)).collect(),
            windows: windows(spans, most_chunks),
        });
        rest = behind;
    }
    batches
}

/// How many of the first sequences make up a batch.
fn members(spans: &[Span], most_chunks: usize, fill: usize) -> usize {
    let mut chunks = 0;
    let fitting = spans.iter().take_while(|span| {
        chunks += span.chunks();
        chunks <= most_chunks
    });
    fitting
        .count()
        .max(fill.min(most_chunks))
        .clamp(1, spans.len())
}

/// Each window has as many chunks of every sequence that has some left as fit, so one long sequence among many short ones soon has a window
/// to itself. `spans` are at most `most_chunks`.
fn windows(spans: &[Span], most_chunks: usize) -> Vec<Window> {
    let mut windows = Vec::new();
    let mut first = 0;
    loop {
        let left = spans.iter().filter(|span| span.chunks() > first).count();
        if left == 0 {
            return windows;
        }
        let end = first + most_chunks / left;
        windows.push(window(spans, first..end));
        first = end;
    }
}

/// A sequence with tokens, in the batch laid out as one row.
struct Span {
    first_token: usize,
    tokens: usize,
    slot: usize,
    /// Tokens in a chunk.
    chunk: usize,
    /// The place of its first chunk among all chunks of the call.
    first_chunk: usize,
}

impl Span {
    fn chunks(&self) -> usize {
        self.tokens.div_ceil(self.chunk)
    }
}

/// The chunks `range` of every sequence.
fn window(spans: &[Span], range: Range<usize>) -> Window {
    let mut table = Vec::new();
    let mut chunks = Vec::new();
    let mut places = Vec::new();
    for (place, span) in spans.iter().enumerate() {
        let end = range.end.min(span.chunks());
        if end <= range.start {
            continue;
        }
        table.extend([chunks.len() / CHUNK_ENTRY, end - range.start, span.slot]);
        places.push(to_u32(place));
        for index in range.start..end {
            let offset = index * span.chunk;
            let tokens = span.chunk.min(span.tokens - offset);
            chunks.extend([span.first_token + offset, tokens, span.first_chunk + index]);
        }
    }
    let sequences = table.len() / SEQUENCE_ENTRY;
    let count = chunks.len() / CHUNK_ENTRY;
    table.extend(chunks);
    Window {
        table: table.into_iter().map(to_u32).collect(),
        sequences,
        chunks: count,
        places,
    }
}

fn to_u32(number: usize) -> u32 {
    u32::try_from(number).expect("a batch has fewer than 2^32 tokens")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sequence(row: usize, start: usize, len: usize, slot: usize) -> Sequence {
        Sequence {
            row,
            start,
            len,
            slot,
        }
    }

    /// The windows of every batch, as `(slot, first token, tokens, place)` of each chunk in the order of time.
    fn chunks(batches: &[Batch]) -> Vec<(u32, u32, u32, u32)> {
        let windows = batches.iter().flat_map(|batch| &batch.windows);
        windows
            .flat_map(|window| {
                let entries = window.table[..window.chunks_at()].chunks(SEQUENCE_ENTRY);
                let of_chunks = &window.table[window.chunks_at()..];
                entries.flat_map(move |entry| {
                    let (first, count) = (entry[0] as usize, entry[1] as usize);
                    let of_sequence =
                        &of_chunks[first * CHUNK_ENTRY..(first + count) * CHUNK_ENTRY];
                    of_sequence
                        .chunks(CHUNK_ENTRY)
                        .map(|chunk| (entry[2], chunk[0], chunk[1], chunk[2]))
                })
            })
            .collect()
    }

    #[test]
    fn windows_hold_every_chunk_once_and_no_more_than_they_may() {
        let sequences = [
            sequence(0, 0, 5, 3),
            sequence(0, 5, 0, 1),
            sequence(1, 2, 9, 0),
        ];
        let expected = vec![
            (0, 22, 4, 2),
            (0, 26, 4, 3),
            (0, 30, 1, 4),
            (3, 0, 4, 0),
            (3, 4, 1, 1),
        ];
        for most in 1..8 {
            let batches = batches(&sequences, 20, 4, most, 2);
            let mut found = chunks(&batches);
            for slot in [0, 3] {
                let of_slot = found.iter().filter(|chunk| chunk.0 == slot);
                assert!(of_slot.map(|chunk| chunk.1).is_sorted(), "at most {most}");
            }
            found.sort();
            assert_eq!(found, expected, "at most {most}");
            let windows = batches.iter().flat_map(|batch| &batch.windows);
            assert!(windows.map(|window| window.chunks).max() <= Some(most));
        }
    }

    #[test]
    fn a_long_sequence_among_short_ones_takes_no_more_windows_than_its_length_asks_for() {
        let short = (0..255).map(|row| sequence(row, 0, 1, row));
        let sequences: Vec<_> = short.chain([sequence(255, 0, 65_536, 255)]).collect();
        let most = 512;
        let batches = batches(&sequences, 65_536, 16, most, 256);
        assert_eq!(chunks(&batches).len(), 255 + 65_536 / 16);
        let windows: Vec<_> = batches.iter().flat_map(|batch| &batch.windows).collect();
        // One with all sequences, two chunks each, and then the long one alone.
        assert_eq!(windows[0].sequences, 256);
        assert_eq!(windows.len(), 1 + (65_536 / 16 - 2_usize).div_ceil(most));
        assert!(windows.iter().all(|window| window.chunks <= most));
    }

    #[test]
    fn a_batch_is_filled_and_no_more_where_one_window_is_too_little() {
        // Ten of 40 chunks, then ten of one.
        let long = (0..10).map(|row| sequence(row, 0, 160, 19 - row));
        let short = (10..20).map(|row| sequence(row, 0, 3, 19 - row));
        let sequences: Vec<_> = long.chain(short).collect();
        let batches = batches(&sequences, 160, 4, 64, 3);
        let sizes: Vec<_> = batches.iter().map(|batch| batch.sequences).collect();
        assert_eq!(sizes, [3, 3, 3, 11]);
        assert_eq!(batches[1].slots, [16, 15, 14]);
        for batch in &batches {
            for window in &batch.windows {
                let places = window.table_of_batch();
                for (of_all, of_batch) in window.table[..window.chunks_at()]
                    .chunks(SEQUENCE_ENTRY)
                    .zip(places.chunks(SEQUENCE_ENTRY))
                {
                    assert_eq!(of_all[2], batch.slots[of_batch[2] as usize]);
                    assert_eq!(of_all[..2], of_batch[..2]);
                }
            }
        }
    }
}
