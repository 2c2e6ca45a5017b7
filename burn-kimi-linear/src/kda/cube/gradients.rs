//! The gradients of a chunk's prepared inputs: queries, keys, logarithms of the decay and write strengths.
//!
//! One cube a chunk and value head; a unit has one channel of `K`. With the states that enter and leave (`S`, and the gradient `D`), the
//! deltas `E` and their gradients `dR`, `U = Diag(beta) E` and `dP = Diag(beta) dR`:
//!
//! ```text
//! dB_ti = dO_t . U_i      dA_ti = -dP_t . U_i      dbeta_t = dR_t . E_t
//! from S: dO S^T for the queries, -dP S^T for the keys that read      from D: U D^T for the keys that write
//! pairs i < t: dq_t += dB_ti k_i D_ti       dk_t += dA_ti k_i D_ti      dk_i += (dA_ti k_t + dB_ti q_t) D_ti
//! ```
//!
//! The gradient of a decay sums everything that passes it. What comes from `S`, what goes to `D` and the pairs are each added up from the
//! one side to the other, so nothing cancels: where no gradient comes from later tokens, exactly 0 goes to their gates. The diagonal of
//! `dB`, where the decay is 1, takes no part.
//!
//! Per chunk and head `6 C K V + 4 C^2 V` flops of products and about `6 C^2 K` of pairs; `2 K V + 3 C V` numbers read, `3 C K` written.

use burn_cubecl::tensor::CubeTensor;
use burn_kimi_kernels::cube::{address_type, storage};
use cubecl::prelude::*;

use super::channel::channel_gradients;
use super::inputs::Inputs;
use super::record::Record;
use super::table::{CHUNK_ENTRY, Window};
use super::walk::Four;

/// Columns of `V` in shared memory at once.
const COLUMNS: usize = 32;

/// Numbers that a chunk and head have in the result: the gradients of queries, keys and logarithms of the decay, `C x K` each with whole
/// vectors of `K`, and of the write strengths.
pub(super) fn result_len(record: Record) -> usize {
    3 * record.chunk * record.width() + record.rows()
}

/// Units in a cube: one a channel, and enough for the pairs of tokens and for loading.
fn units(record: Record) -> usize {
    record
        .width()
        .max(COLUMNS * record.rows() / 4)
        .next_multiple_of(32)
}

#[cube(launch_unchecked, address_type = "dynamic")]
fn gradients<F: Float>(
    records: &[f32],
    // `[chunks, HV, V, K]`, whole vectors of `K`; the gradients of the states that leave likewise.
    entering: &[f32],
    leaving: &[f32],
    // `E`, `[chunks, HV, C, V]`, and from `updates_at` on `dR`.
    deltas: &[f32],
    // `[B, T, HV, V]`.
    output_gradient: &[F],
    table: &[u32],
    result: &mut [f32],
    chunks_at: usize,
    updates_at: usize,
    value_dim: usize,
    scale: f32,
    #[comptime] record: Record,
    #[define(F)] _dtype: ElemType,
) {
    let chunk = comptime!(record.chunk);
    let rows = comptime!(record.rows());
    let fours = comptime!(record.rows() / 4);
    let width = comptime!(record.width());
    let tile = comptime!(COLUMNS * record.rows() / 4);
    let matrix = comptime!(record.chunk * record.rows() / 4);

    let unit = UNIT_POS_X as usize;
    let value_head = CUBE_POS_Y as usize;
    let value_heads = CUBE_COUNT_Y as usize;
    let place = CUBE_POS_X as usize * value_heads + value_head;
    let base = place * comptime!(record.len());
    let entry = chunks_at + CUBE_POS_X as usize * CHUNK_ENTRY;
    let first = table[entry] as usize;
    let tokens = table[entry + 1] as usize;

    let mut upstream = Shared::<[Four]>::new_slice(tile);
    let mut reads = Shared::<[Four]>::new_slice(tile);
    let mut writes = Shared::<[Four]>::new_slice(tile);
    // `writes` once more, to be read one number at a time.
    let mut single = Shared::<[f32]>::new_slice(comptime!(4 * tile));
    let mut pairs = Shared::<[Four]>::new_slice(comptime!(2 * matrix));

    let mut q_sums = Array::<f32>::new(chunk);
    let mut read_sums = Array::<f32>::new(chunk);
    let mut write_sums = Array::<f32>::new(chunk);
    #[unroll]
    for t in 0..chunk {
        q_sums[t] = 0.0;
        read_sums[t] = 0.0;
        write_sums[t] = 0.0;
    }
    let mut state_sum = 0.0f32;
    let mut strength_sum = Four::new(0.0);
    let mut pair_sum = Four::new(0.0);

    // Which four rows of a column of the tile the unit loads, and which four rows of which column of which matrix it sums.
    let load_column = unit % COLUMNS;
    let load_rows = unit / COLUMNS;
    let pair_column = (unit / fours) % chunk;
    let pair_rows = unit % fours;

    for part in 0..value_dim.div_ceil(COLUMNS) {
        let column = part * COLUMNS + load_column;
        if unit < tile {
            let mut o = Four::new(0.0);
            let mut p = Four::new(0.0);
            let mut u = Four::new(0.0);
            #[unroll]
            for lane in 0..4usize {
                let t = load_rows * 4 + lane;
                if t < chunk && column < value_dim {
                    let at = (place * chunk + t) * value_dim + column;
                    let delta = deltas[at];
                    let update = deltas[updates_at + at];
                    let strength = records[base + comptime!(record.strength()) + t];
                    strength_sum.insert(lane, fma(update, delta, strength_sum.extract(lane)));
                    p.insert(lane, strength * update);
                    u.insert(lane, strength * delta);
                    if t < tokens {
                        let at = ((first + t) * value_heads + value_head) * value_dim + column;
                        o.insert(lane, f32::cast_from(output_gradient[at]));
                    }
                }
            }
            let at = load_column * fours + load_rows;
            upstream[at] = o;
            reads[at] = p;
            writes[at] = u;
            #[unroll]
            for lane in 0..4usize {
                single[at * 4 + lane] = u.extract(lane);
            }
        }
        sync_cube();

        let left = value_dim - part * COLUMNS;
        let columns = select(left < COLUMNS, left, COLUMNS);
        if unit < width {
            for v in 0..columns {
                let at = (place * value_dim + part * COLUMNS + v) * width + unit;
                let state = entering[at];
                let gradient = leaving[at];
                state_sum = fma(state, gradient, state_sum);
                #[unroll]
                for four in 0..fours {
                    let o = upstream[v * fours + four];
                    let p = reads[v * fours + four];
                    let u = writes[v * fours + four];
                    #[unroll]
                    for lane in 0..4usize {
                        let t = comptime!(four * 4 + lane);
                        if comptime!(t < record.chunk) {
                            q_sums[t] = fma(o.extract(lane), state, q_sums[t]);
                            read_sums[t] = fma(p.extract(lane), state, read_sums[t]);
                            write_sums[t] = fma(u.extract(lane), gradient, write_sums[t]);
                        }
                    }
                }
            }
        }
        if unit < matrix {
            for v in 0..columns {
                let u = Four::new(single[v * rows + pair_column]);
                pair_sum = fma(upstream[v * fours + pair_rows], u, pair_sum);
            }
        } else if unit < 2 * matrix {
            for v in 0..columns {
                let u = Four::new(single[v * rows + pair_column]);
                pair_sum = fma(-reads[v * fours + pair_rows], u, pair_sum);
            }
        }
        sync_cube();
    }

    if unit < 2 * matrix {
        pairs[unit] = pair_sum;
    }
    if unit < tile {
        upstream[load_column * fours + load_rows] = strength_sum;
    }
    sync_cube();
    let at = place * comptime!(result_len(record));
    if unit < fours {
        let mut sum = upstream[unit];
        for v in 1..COLUMNS {
            sum += upstream[v * fours + unit];
        }
        #[unroll]
        for lane in 0..4usize {
            result[at + comptime!(3 * record.chunk * record.width()) + unit * 4 + lane] =
                sum.extract(lane);
        }
    }

    if unit < width {
        channel_gradients(
            records,
            &pairs,
            &mut q_sums,
            &mut read_sums,
            &mut write_sums,
            state_sum,
            result,
            base + unit,
            at + unit,
            scale,
            record,
        );
    }
}

/// The gradients of a window's prepared inputs, `[chunks, HV, result_len]`.
pub(super) fn launch(
    inputs: &Inputs,
    record: Record,
    window: &Window,
    table: &CubeTensor,
    records: &CubeTensor,
    output_gradient: &CubeTensor,
    [entering, leaving, deltas]: [&CubeTensor; 3],
) -> CubeTensor {
    let sizes = inputs.sizes;
    let result = inputs.scratch(window.chunks * sizes.value_heads * result_len(record));
    unsafe {
        gradients::launch_unchecked(
            inputs.client(),
            CubeCount::Static(window.chunks as u32, sizes.value_heads as u32, 1),
            CubeDim::new_1d(units(record) as u32),
            address_type(&[records, entering, leaving, deltas, output_gradient, &result]),
            records.clone().into_buffer_arg(),
            entering.clone().into_buffer_arg(),
            leaving.clone().into_buffer_arg(),
            deltas.clone().into_buffer_arg(),
            output_gradient.clone().into_buffer_arg(),
            table.clone().into_buffer_arg(),
            result.clone().into_buffer_arg(),
            window.chunks_at(),
            deltas.meta.num_elements() / 2,
            sizes.value_dim,
            inputs.scale,
            record,
            storage(output_gradient),
        )
    };
    result
}
