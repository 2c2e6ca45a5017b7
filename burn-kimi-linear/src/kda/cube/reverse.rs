//! The walk back over the chunks of a sequence, with the gradient of the state.
//!
//! The same division of the state as in [`super::scan`]. With `D` the gradient of the state that leaves a chunk, and the record's names:
//!
//! ```text
//! dU = attention^T dO + write_keys D
//! dR = solve_gradient^T dU      dV = dP = Diag(beta) dR
//! D  = Diag(whole) D + read_queries^T dO - read_keys^T dP
//! ```
//!
//! `D` of every chunk and `dR` are kept for the gradients of the chunk's other inputs. Flops and bytes are those of the scan, and `K V`
//! numbers written a chunk and head.

use burn_cubecl::tensor::CubeTensor;
use burn_kimi_kernels::cube::{address_type, storage};
use cubecl::prelude::*;

use super::inputs::Inputs;
use super::plan::Tiles;
use super::scan::Walk;
use super::table::{CHUNK_ENTRY, SEQUENCE_ENTRY};
use super::walk::{
    Four, add_outer, decay_state, has_task, keep_transposed, load_numbers, load_state,
    multiply_staged, stage_rows, store_state, sum_slices,
};

#[cube(launch_unchecked, address_type = "dynamic")]
fn reverse<F: Float, N: Size>(
    records: &[Four],
    // `[B, T, HV, V]`.
    output_gradient: &[Vector<F, N>],
    table: &[u32],
    // The gradients of the states that leave, to become those of the states that enter.
    states: &mut [Vector<f32, N>],
    // `[chunks, HV, V, K]`.
    leaving: &mut [Four],
    // `dR`, `[chunks, HV, C, V]`, from vector `deltas_at` on.
    deltas: &mut [Vector<f32, N>],
    // `[B, T, HV, V]`.
    value_gradient: &mut [Vector<F, N>],
    chunks_at: usize,
    deltas_at: usize,
    value_dim: usize,
    #[comptime] tiles: Tiles,
    #[define(F)] _dtype: ElemType,
) {
    let record = comptime!(tiles.record);
    let chunk = comptime!(record.chunk);
    let rows = comptime!(record.rows());
    let width = comptime!(record.width() / 4);
    let lanes = comptime!(tiles.lanes());
    let slices = comptime!(tiles.slices);
    let count = comptime!(tiles.staged.min(record.chunk));
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
    let slot = table[entry + 2] as usize;

    // The state's place is looked up again at the end: were it known all the way, the compiler would keep the addresses of all rows.
    let mut own_slot = Shared::<[u32]>::new_slice(1usize);
    if UNIT_POS == 0 {
        own_slot[0] = table[entry + 2];
    }
    let mut stage = Shared::<[Four]>::new_slice(comptime!(tiles.staged * tiles.stage_width()));
    let mut partial = Shared::<[Vector<f32, N>]>::new_slice(comptime!(
        tiles.slices * tiles.staged * tiles.lanes()
    ));
    let mut upstream =
        Shared::<[Vector<f32, N>]>::new_slice(comptime!(record.chunk * tiles.lanes()));
    let mut update = Shared::<[Vector<f32, N>]>::new_slice(comptime!(record.chunk * tiles.lanes()));
    let mut delta = Shared::<[Vector<f32, N>]>::new_slice(comptime!(record.chunk * tiles.lanes()));
    let mut attention = Shared::<[f32]>::new_slice(comptime!(record.chunk * record.rows()));
    let mut solve = Shared::<[f32]>::new_slice(comptime!(record.chunk * record.rows()));
    let mut strength = Shared::<[f32]>::new_slice(rows);

    let state_base =
        (slot * value_heads + value_head) * comptime!(record.key_dim) * stride + column;
    let mut state = load_state::<N>(states, state_base, stride, inside, tiles);

    for step in 0..chunks {
        let index = first_chunk + chunks - 1 - step;
        let place = index * value_heads + value_head;
        let base = place * comptime!(record.len() / 4);
        let chunk_entry = chunks_at + index * CHUNK_ENTRY;
        let first = table[chunk_entry] as usize;
        let tokens = table[chunk_entry + 1] as usize;

        let at = place * value_dim * width;
        keep_transposed::<N>(&state, leaving, at, column, inside, tiles);

        for part in 0..comptime!(record.chunk.div_ceil(tiles.staged)) {
            let from = part * comptime!(tiles.staged);
            let row = base + comptime!(record.write_keys() / 4) + from * width;
            stage_rows(records, &mut stage, row, 0, count, tiles);
            sync_cube();
            multiply_staged::<N>(&stage, &state, &mut partial, count, tiles);
            sync_cube();
            for round in 0..comptime!(tiles.staged.min(record.chunk).div_ceil(tiles.slices)) {
                let r = slice + round * slices;
                if has_task(r, count, slices) {
                    update[(from + r) * lanes + lane] = sum_slices::<N>(&partial, r, tiles);
                }
            }
        }
        for round in 0..comptime!(record.chunk.div_ceil(tiles.slices)) {
            let t = slice + round * slices;
            if has_task(t, chunk, slices) {
                let mut value = Vector::<f32, N>::new(0.0);
                if inside && t < tokens {
                    let at = ((first + t) * value_heads + value_head) * stride + column;
                    value = Vector::cast_from(output_gradient[at]);
                }
                upstream[t * lanes + lane] = value;
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
            base + comptime!(record.solve_gradient() / 4),
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

        for round in 0..comptime!(record.chunk.div_ceil(tiles.slices)) {
            let t = slice + round * slices;
            if has_task(t, chunk, slices) {
                let mut sum = update[t * lanes + lane];
                for i in t..chunk {
                    sum = fma(
                        Vector::new(attention[t * rows + i]),
                        upstream[i * lanes + lane],
                        sum,
                    );
                }
                update[t * lanes + lane] = sum;
            }
        }
        sync_cube();

        for round in 0..comptime!(record.chunk.div_ceil(tiles.slices)) {
            let t = slice + round * slices;
            if has_task(t, chunk, slices) {
                let mut sum = Vector::<f32, N>::new(0.0);
                for i in t..chunk {
                    sum = fma(
                        Vector::new(solve[t * rows + i]),
                        update[i * lanes + lane],
                        sum,
                    );
                }
                let scaled = sum * Vector::new(strength[t]);
                delta[t * lanes + lane] = scaled;
                if inside {
                    deltas[deltas_at + (place * chunk + t) * stride + column] = sum;
                    if t < tokens {
                        let at = ((first + t) * value_heads + value_head) * stride + column;
                        value_gradient[at] = Vector::cast_from(scaled);
                    }
                }
            }
        }
        sync_cube();

        decay_state::<N>(
            records,
            &mut state,
            base + comptime!(record.whole() / 4),
            tiles,
        );
        for part in 0..comptime!(record.chunk / (tiles.staged / 2)) {
            let row = base + part * group * width;
            stage_rows(
                records,
                &mut stage,
                row + comptime!(record.read_queries() / 4),
                0,
                group,
                tiles,
            );
            stage_rows(
                records,
                &mut stage,
                row + comptime!(record.read_keys() / 4),
                group,
                group,
                tiles,
            );
            sync_cube();
            for r in 0..group {
                let at = (part * group + r) * lanes + lane;
                add_outer::<N>(&stage, r, upstream[at], &mut state, tiles);
                add_outer::<N>(&stage, group + r, -delta[at], &mut state, tiles);
            }
            sync_cube();
        }
    }
    let slot = own_slot[0] as usize;
    let state_base =
        (slot * value_heads + value_head) * comptime!(tiles.record.key_dim) * stride + column;
    store_state::<N>(&state, states, state_base, stride, inside, tiles);
}

impl Walk<'_> {
    /// Walks back over the window. `deltas` has room for the deltas of the scan, and behind them for those of this walk.
    pub(super) fn reverse(
        &self,
        inputs: &Inputs,
        output_gradient: &CubeTensor,
        states: &CubeTensor,
        [leaving, deltas, value_gradient]: [&CubeTensor; 3],
    ) {
        unsafe {
            reverse::launch_unchecked(
                inputs.client(),
                self.cubes(inputs),
                self.cube_dim(),
                address_type(&[
                    self.records,
                    output_gradient,
                    states,
                    leaving,
                    deltas,
                    value_gradient,
                ]),
                self.tiles.columns,
                self.records.clone().into_buffer_arg(),
                output_gradient.clone().into_buffer_arg(),
                self.table.clone().into_buffer_arg(),
                states.clone().into_buffer_arg(),
                leaving.clone().into_buffer_arg(),
                deltas.clone().into_buffer_arg(),
                value_gradient.clone().into_buffer_arg(),
                self.window.chunks_at(),
                deltas.meta.num_elements() / 2 / self.tiles.columns,
                inputs.sizes.value_dim,
                self.tiles,
                storage(value_gradient),
            )
        }
    }
}
