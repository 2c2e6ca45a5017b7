//! The second kernel: walks over the chunks of a sequence with the state.
//!
//! One cube a sequence, value head and block of columns of `V`; the state stays in registers from the first chunk to the last. Inside a
//! chunk, with the record's names and `S` the state that enters:
//!
//! ```text
//! P = V - read_keys S           U = Diag(beta) solve P
//! O = read_queries S + attention U
//! S = Diag(whole) S + write_keys^T U
//! ```
//!
//! `6 C K + 4 C^2` flops and `C` values a column, for every block also the record's `3 C K + 2 C^2` numbers, which the blocks of a head
//! find in the cache. Matrix units are not used: products with the state are as wide as a cube's columns and as deep as a unit's
//! registers, so nothing but the partial sums of the slices goes through shared memory.
//!
//! The same kernel serves the decode step (chunks of one token: two launches, where a device without room for the step's own kernel
//! needs it), snapshots, and the backward pass, which wants the states that enter the chunks and the deltas `E = solve P`.

use burn_kimi_kernels::cube::{address_type, storage};
use cubecl::prelude::*;

use burn_cubecl::tensor::CubeTensor;

use super::inputs::Inputs;
use super::plan::Tiles;
use super::table::{CHUNK_ENTRY, SEQUENCE_ENTRY, Window};
use super::walk::{
    Four, add_outer, decay_state, keep_transposed, load_numbers, load_state, multiply_staged,
    stage_rows, store_state, sum_slices,
};

/// What a walk leaves behind apart from the last state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Keep {
    /// The output.
    Output,
    /// The output, and the state after every chunk.
    Snapshots,
    /// The states that enter the chunks, and the deltas, for the gradients.
    Deltas,
    /// Nothing.
    Nothing,
}

#[cube(launch_unchecked, address_type = "dynamic")]
pub(super) fn scan<F: Float, N: Size>(
    records: &[Four],
    values: &[Vector<F, N>],
    table: &[u32],
    states: &mut [Vector<f32, N>],
    // Where `keep` has an output: `[B, T, HV, V]`.
    output: &mut [Vector<F, N>],
    // Snapshots `[B, T, HV, K, V]`, or deltas `[chunks, HV, C, V]`.
    kept: &mut [Vector<f32, N>],
    // For deltas: `[chunks, HV, V, K]`.
    entering: &mut [Four],
    chunks_at: usize,
    value_dim: usize,
    #[comptime] keep: Keep,
    #[comptime] tiles: Tiles,
    #[define(F)] _dtype: ElemType,
) {
    let record = comptime!(tiles.record);
    let chunk = comptime!(record.chunk);
    let rows = comptime!(record.rows());
    let width = comptime!(record.width() / 4);
    let lanes = comptime!(tiles.lanes());
    let slices = comptime!(tiles.slices);
    // Rows of each of the two vectors that are multiplied with the state at once.
    let group = comptime!(tiles.staged / 2);

    let lane = UNIT_POS_X as usize;
    let slice = UNIT_POS_Y as usize;
    let value_head = CUBE_POS_Y as usize;
    let value_heads = CUBE_COUNT_Y as usize;
    let stride = value_dim / comptime!(tiles.columns);
    let column = CUBE_POS_X as usize * lanes + lane;
    let inside = column < stride;
    let entry = CUBE_POS_Z as usize * SEQUENCE_ENTRY;
    let first_chunk = table[entry] as usize;
    let chunks = table[entry + 1] as usize;
    let state_slot = table[entry + 2] as usize;

    // The state's place is looked up again at the end: were it known all the way, the compiler would keep the addresses of all rows.
    let mut own_slot = Shared::<[u32]>::new_slice(1usize);
    if UNIT_POS == 0 {
        own_slot[0] = table[entry + 2];
    }
    let mut stage = Shared::<[Four]>::new_slice(comptime!(tiles.staged * tiles.stage_width()));
    let mut partial = Shared::<[Vector<f32, N>]>::new_slice(comptime!(
        tiles.slices * tiles.staged * tiles.lanes()
    ));
    let mut missing =
        Shared::<[Vector<f32, N>]>::new_slice(comptime!(record.chunk * tiles.lanes()));
    let mut read = Shared::<[Vector<f32, N>]>::new_slice(comptime!(record.chunk * tiles.lanes()));
    let mut written =
        Shared::<[Vector<f32, N>]>::new_slice(comptime!(record.chunk * tiles.lanes()));
    let mut attention = Shared::<[f32]>::new_slice(comptime!(record.chunk * record.rows()));
    let mut solve = Shared::<[f32]>::new_slice(comptime!(record.chunk * record.rows()));
    let mut strength = Shared::<[f32]>::new_slice(rows);

    let state_base =
        (state_slot * value_heads + value_head) * comptime!(record.key_dim) * stride + column;
    let mut state = load_state::<N>(states, state_base, stride, inside, tiles);

    for index in 0..chunks {
        let place = (first_chunk + index) * value_heads + value_head;
        let base = place * comptime!(record.len() / 4);
        let chunk_entry = chunks_at + (first_chunk + index) * CHUNK_ENTRY;
        let first = table[chunk_entry] as usize;
        let tokens = table[chunk_entry + 1] as usize;

        if comptime!(keep == Keep::Deltas) {
            let at = place * value_dim * width;
            keep_transposed::<N>(&state, entering, at, column, inside, tiles);
        }

        for part in 0..comptime!(record.chunk / (tiles.staged / 2)) {
            let row = base + part * group * width;
            stage_rows(
                records,
                &mut stage,
                row + comptime!(record.read_keys() / 4),
                0,
                group,
                tiles,
            );
            stage_rows(
                records,
                &mut stage,
                row + comptime!(record.read_queries() / 4),
                group,
                group,
                tiles,
            );
            sync_cube();
            multiply_staged::<N>(&stage, &state, &mut partial, comptime!(tiles.staged), tiles);
            sync_cube();
            for r in range_stepped(slice, comptime!(tiles.staged), slices) {
                let sum = sum_slices::<N>(&partial, r, tiles);
                if r < group {
                    let token = part * group + r;
                    let mut value = Vector::new(0.0);
                    if inside && token < tokens {
                        value = Vector::cast_from(
                            values[((first + token) * value_heads + value_head) * stride + column],
                        );
                    }
                    missing[token * lanes + lane] = value - sum;
                } else {
                    read[(part * group + r - group) * lanes + lane] = sum;
                }
            }
        }
        load_numbers(
            records,
            &mut attention,
            base + comptime!(record.attention() / 4),
            comptime!(record.chunk * record.rows()),
            tiles,
        );
        load_numbers(
            records,
            &mut solve,
            base + comptime!(record.solve() / 4),
            comptime!(record.chunk * record.rows()),
            tiles,
        );
        load_numbers(
            records,
            &mut strength,
            base + comptime!(record.strength() / 4),
            rows,
            tiles,
        );
        sync_cube();

        for t in range_stepped(slice, chunk, slices) {
            let mut delta = Vector::<f32, N>::new(0.0);
            for i in 0..t + 1 {
                delta = fma(
                    Vector::new(solve[i * rows + t]),
                    missing[i * lanes + lane],
                    delta,
                );
            }
            written[t * lanes + lane] = delta * Vector::new(strength[t]);
            if comptime!(keep == Keep::Deltas) {
                if inside {
                    kept[(place * chunk + t) * stride + column] = delta;
                }
            }
        }
        sync_cube();

        if comptime!(matches!(keep, Keep::Output | Keep::Snapshots)) {
            for t in range_stepped(slice, chunk, slices) {
                if inside && t < tokens {
                    let mut out = read[t * lanes + lane];
                    for i in 0..t + 1 {
                        out = fma(
                            Vector::new(attention[i * rows + t]),
                            written[i * lanes + lane],
                            out,
                        );
                    }
                    output[((first + t) * value_heads + value_head) * stride + column] =
                        Vector::cast_from(out);
                }
            }
        }

        decay_state::<N>(
            records,
            &mut state,
            base + comptime!(record.whole() / 4),
            tiles,
        );
        for part in 0..comptime!(record.chunk.div_ceil(tiles.staged)) {
            let from = part * comptime!(tiles.staged);
            let count = comptime!(tiles.staged.min(record.chunk));
            let row = base + comptime!(record.write_keys() / 4) + from * width;
            stage_rows(records, &mut stage, row, 0, count, tiles);
            sync_cube();
            for r in 0..count {
                let columns = written[(from + r) * lanes + lane];
                add_outer::<N>(&stage, r, columns, &mut state, tiles);
            }
            sync_cube();
        }

        if comptime!(keep == Keep::Snapshots) {
            let at =
                (first * value_heads + value_head) * comptime!(record.key_dim) * stride + column;
            store_state::<N>(&state, kept, at, stride, inside, tiles);
        }
    }
    let slot = own_slot[0] as usize;
    let state_base =
        (slot * value_heads + value_head) * comptime!(tiles.record.key_dim) * stride + column;
    store_state::<N>(&state, states, state_base, stride, inside, tiles);
}

/// What the walks over a window need to know.
#[derive(Clone, Copy)]
pub(super) struct Walk<'a> {
    pub(super) records: &'a CubeTensor,
    pub(super) table: &'a CubeTensor,
    pub(super) window: &'a Window,
    pub(super) tiles: Tiles,
}

impl Walk<'_> {
    pub(super) fn cubes(&self, inputs: &Inputs) -> CubeCount {
        let blocks = self.tiles.blocks(inputs.sizes.value_dim);
        CubeCount::Static(
            blocks as u32,
            inputs.sizes.value_heads as u32,
            self.window.sequences as u32,
        )
    }

    pub(super) fn cube_dim(&self) -> CubeDim {
        CubeDim::new_2d(self.tiles.lanes() as u32, self.tiles.slices as u32)
    }

    /// Walks over the window with the states of its slots.
    pub(super) fn scan(
        &self,
        inputs: &Inputs,
        states: &CubeTensor,
        keep: Keep,
        [output, kept, entering]: [&CubeTensor; 3],
    ) {
        let values = &inputs.v;
        unsafe {
            scan::launch_unchecked(
                inputs.client(),
                self.cubes(inputs),
                self.cube_dim(),
                address_type(&[self.records, values, states, output, kept, entering]),
                self.tiles.columns,
                self.records.clone().into_buffer_arg(),
                values.clone().into_buffer_arg(),
                self.table.clone().into_buffer_arg(),
                states.clone().into_buffer_arg(),
                output.clone().into_buffer_arg(),
                kept.clone().into_buffer_arg(),
                entering.clone().into_buffer_arg(),
                self.window.chunks_at(),
                inputs.sizes.value_dim,
                keep,
                self.tiles,
                storage(values),
            )
        }
    }
}
