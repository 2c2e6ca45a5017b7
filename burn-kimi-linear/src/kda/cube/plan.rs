//! Sizes of the kernels' work, from the shape of the call and what the device offers. Nothing here changes a result: sums over `K` are
//! split by `K` alone, and columns of `V` do not meet.

use cubecl::client::Client;

use super::record::Record;

/// The longest chunk the kernels work in. Larger ones are worked on in several of these: work inside a chunk grows with the square of
/// its length, and the matrices of 16 tokens are what fits beside the rest in the 16 KiB of shared memory that WebGPU promises.
const LONGEST_CHUNK: usize = 16;

/// Units side by side in a cube, each with columns of its own: a plane on most devices, so that its reads are of consecutive memory.
const LANES: usize = 32;

/// Shared memory that a cube takes at most even where there is more, so that several fit on one multiprocessor.
const SHARED_BYTES: usize = 48 * 1024;

/// Bytes of scratch memory that one tensor may take. What does not fit is worked on in several rounds.
const SCRATCH_BYTES: usize = 128 * 1024 * 1024;

/// Tokens that the kernels work on together where the caller asks for chunks of `asked`.
pub(super) fn chunk(asked: usize) -> usize {
    asked.min(LONGEST_CHUNK)
}

/// What a device offers, as far as the kernels ask for it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    /// Shared memory of a cube.
    pub(super) shared_bytes: usize,
    pub(super) multiprocessors: usize,
    /// Tensors that a kernel may take.
    pub(super) bindings: usize,
    /// Scratch memory of one tensor.
    pub(super) scratch_bytes: usize,
}

impl Limits {
    pub(super) fn of(client: &Client) -> Self {
        let (hardware, memory) = (&client.properties().hardware, &client.properties().memory);
        Self {
            shared_bytes: hardware.max_shared_memory_size.min(SHARED_BYTES),
            // A device that does not say is likely to have some such number.
            multiprocessors: hardware.num_streaming_multiprocessors.unwrap_or(32) as usize,
            bindings: hardware.max_bindings as usize,
            scratch_bytes: memory.max_page_size.min(SCRATCH_BYTES as u64) as usize,
        }
    }

    /// How many chunks one round works on, if each takes `numbers` of scratch memory in one tensor.
    pub(super) fn chunks_at_once(self, numbers: usize) -> usize {
        (self.scratch_bytes / (numbers * size_of::<f32>())).max(1)
    }

    /// How many sequences together keep the device busy while they are walked over. More at once would have shorter windows, and each window's states
    /// have to be kept for the gradients.
    pub(super) fn sequences_at_once(self, value_heads: usize, value_dim: usize) -> usize {
        let cubes = value_heads * value_dim.div_ceil(LANES);
        (4 * self.multiprocessors).div_ceil(cubes)
    }
}

/// How the kernels that walk from chunk to chunk divide a state.
///
/// A cube has `LANES` times `slices` units. A unit holds `depth` rows of the state in registers, for `columns` neighbouring columns;
/// sums over `K` are taken over each slice and then over the slices, both in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Tiles {
    pub(super) record: Record,
    /// Columns of a unit.
    pub(super) columns: usize,
    /// Rows of a unit.
    pub(super) depth: usize,
    pub(super) slices: usize,
    /// Rows of a record's vectors that are in shared memory at once; an even number.
    pub(super) staged: usize,
}

impl Tiles {
    /// For `states` matrices of `K x value_dim`.
    pub(super) fn new(limits: Limits, record: Record, value_dim: usize, states: usize) -> Self {
        let wanted = if record.width() <= 128 { 4 } else { 8 };
        let depth = record.width().div_ceil(wanted).next_multiple_of(4);
        let narrow = Self {
            record,
            columns: 1,
            depth,
            slices: record.width().div_ceil(depth),
            staged: 2,
        };
        // Two columns a unit read the stage half as often, but half as many cubes have to be enough to keep the device busy.
        let wide = Self {
            columns: 2,
            staged: 8,
            ..narrow
        };
        let enough = value_dim.is_multiple_of(2)
            && wide.blocks(value_dim) * states >= 2 * limits.multiprocessors
            && wide.shared_bytes() <= limits.shared_bytes;
        let tiles = if enough { wide } else { narrow };
        let staged = [32, 16, 8, 4]
            .into_iter()
            .filter(|&staged| staged <= 2 * record.chunk)
            .find(|&staged| Self { staged, ..tiles }.shared_bytes() <= limits.shared_bytes);
        Self {
            staged: staged.unwrap_or(2),
            ..tiles
        }
    }

    pub(super) fn lanes(&self) -> usize {
        LANES
    }

    pub(super) fn units(&self) -> usize {
        LANES * self.slices
    }

    /// Whether the units' rows are those of the state and no more, so that none need be asked which they have.
    pub(super) fn is_full(&self) -> bool {
        self.slices * self.depth == self.record.key_dim
    }

    /// Vectors of four in a staged row: all slices, with what is behind `K` filled up.
    pub(super) fn stage_width(&self) -> usize {
        self.slices * self.depth / 4
    }

    /// Cubes for the columns of one state.
    pub(super) fn blocks(&self, value_dim: usize) -> usize {
        (value_dim / self.columns).div_ceil(LANES)
    }

    /// What the kernels allocate: staged rows, partial sums, three tiles of the chunk, two matrices, the strength and the slot.
    fn shared_bytes(&self) -> usize {
        let lanes = LANES * self.columns;
        let staged = self.staged * self.stage_width() * 4;
        let partial = self.slices * self.staged * lanes;
        let tiles = 3 * self.record.chunk * lanes;
        let matrices = 2 * self.record.chunk * self.record.rows() + self.record.rows();
        let slot = 4;
        (staged + partial + tiles + matrices + slot) * size_of::<f32>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What WebGPU promises.
    const LEAST: Limits = Limits {
        shared_bytes: 16 * 1024,
        multiprocessors: 1,
        bindings: 8,
        scratch_bytes: SCRATCH_BYTES,
    };
    const LEAST_UNITS: usize = 256;

    #[test]
    fn every_width_and_chunk_fits_the_least_device() {
        for key_dim in 1..=256 {
            for asked in [1, 2, 4, 8, 16, 32, 64] {
                for limits in [
                    LEAST,
                    Limits {
                        shared_bytes: SHARED_BYTES,
                        ..LEAST
                    },
                ] {
                    let record = Record {
                        chunk: chunk(asked),
                        key_dim,
                        backward: true,
                    };
                    let tiles = Tiles::new(limits, record, 128, 64);
                    assert!(tiles.shared_bytes() <= limits.shared_bytes, "{tiles:?}");
                    assert!(tiles.units() <= LEAST_UNITS, "{tiles:?}");
                    assert!(tiles.slices * tiles.depth >= key_dim, "{tiles:?}");
                    assert!(record.chunk.is_multiple_of(tiles.staged / 2), "{tiles:?}");
                }
            }
        }
    }

    #[test]
    fn sums_over_keys_are_split_by_their_width_alone() {
        let record = Record {
            chunk: 16,
            key_dim: 100,
            backward: false,
        };
        let few = Tiles::new(LEAST, record, 100, 1);
        let many = Tiles::new(
            Limits {
                shared_bytes: SHARED_BYTES,
                ..LEAST
            },
            record,
            100,
            1000,
        );
        assert_ne!(few.columns, many.columns);
        assert_eq!((few.depth, few.slices), (many.depth, many.slices));
    }
}
