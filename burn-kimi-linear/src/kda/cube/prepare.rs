//! The first kernel: from the inputs of a chunk and value head to its [`Record`].
//!
//! One cube a chunk and value head, with eight units a token. Columns of `K` come through shared memory 64 at a time (12 KiB), so that the
//! kernel fits the 16 KiB of WebGPU for any `K`. A unit belongs to one token `i` and an eighth of the columns: it carries `k_i` forward
//! through the chunk, multiplied by the decay of every token it passes, and takes its products with `k_t` and `q_t` there. No exponent but
//! that of a gate itself is ever taken, so nothing overflows, and an exact 0 stays one.
//!
//! Per chunk and head `3 C^2 K` flops and `C K` exponentials, `3 C K` inputs read and `3 C K + K + 2 C^2 + C` numbers written.

use burn_cubecl::tensor::CubeTensor;
use burn_kimi_kernels::cube::{address_type, storage};
use cubecl::prelude::*;

use super::gate::{Form, log_decay, sigmoid};
use super::inputs::Inputs;
use super::record::Record;
use super::table::{CHUNK_ENTRY, Window};
use super::walk::Four;
use super::within::{carry, leave_sums, solve, sum_shares};
use crate::kda::plan::UNIT_LENGTH_EPSILON;

/// Vectors of four columns that are in shared memory together.
pub(super) const SLAB: usize = 16;
/// Units that share the columns of one token. It fixes the order of sums over `K`, so it is the same for every chunk size.
pub(super) const SHARES: usize = 8;
/// Vectors of a slab that one unit works on.
pub(super) const SHARE: usize = SLAB / SHARES;

/// Units in a cube.
fn units(record: Record) -> usize {
    (SHARES * record.chunk).max(32)
}

#[cube(launch_unchecked, address_type = "dynamic")]
fn prepare<Q: Float, K: Float, G: Float, W: Float>(
    q: &[Q],
    k: &[K],
    g: &[G],
    beta: &[W],
    // A row a value head: `a_log`, then `dt_bias`.
    gates: &[f32],
    table: &[u32],
    records: &mut [Four],
    chunks_at: usize,
    group: usize,
    scale: f32,
    bound: f32,
    write_scale: f32,
    #[comptime] record: Record,
    #[comptime] form: Form,
    #[define(Q, K, G, W)] _dtypes: [ElemType; 4],
) {
    let chunk = comptime!(record.chunk);
    let key_dim = comptime!(record.key_dim);
    let rows = comptime!(record.rows() / 4);
    let slab_size = comptime!(record.chunk * SLAB);
    let matrix = comptime!(record.chunk * record.rows() / 4);

    let unit = UNIT_POS_X as usize;
    let value_head = CUBE_POS_Y as usize;
    let value_heads = CUBE_COUNT_Y as usize;
    let heads = value_heads / group;
    let head = value_head / group;
    let entry = chunks_at + CUBE_POS_X as usize * CHUNK_ENTRY;
    let first = table[entry] as usize;
    let tokens = table[entry + 1] as usize;
    let base = (CUBE_POS_X as usize * value_heads + value_head) * comptime!(record.len() / 4);

    // Queries, keys and decays, `[C, SLAB]` each; later what the shares have summed.
    let mut slab = Shared::<[Four]>::new_slice(comptime!(3 * slab_size));
    let mut pairs = Shared::<[Four]>::new_slice(matrix);
    let mut lengths = Shared::<[f32]>::new_slice(comptime!(2 * record.chunk));
    let mut squares = Shared::<[f32]>::new_slice(comptime!(2 * SHARES * record.chunk));
    let mut strength = Shared::<[f32]>::new_slice(chunk);

    // The token that the unit carries, and its share of the columns.
    let own = unit % chunk;
    let share = unit / chunk;

    if share == 0 {
        let mut value = 0.0f32;
        if own < tokens {
            value = f32::cast_from(beta[(first + own) * value_heads + value_head]);
            if comptime!(form != Form::Prepared) {
                value = write_scale * sigmoid(value);
            }
        }
        strength[own] = value;
    }
    let mut rate = 1.0f32;
    if comptime!(form != Form::Prepared) {
        rate = gates[value_head * comptime!(record.key_dim + 1)].exp();
        if share < SHARES {
            let mut q_square = 0.0f32;
            let mut k_square = 0.0f32;
            if own < tokens {
                let at = ((first + own) * heads + head) * key_dim;
                for column in range_stepped(share, key_dim, SHARES) {
                    let x = f32::cast_from(q[at + column]);
                    let y = f32::cast_from(k[at + column]);
                    q_square = fma(x, x, q_square);
                    k_square = fma(y, y, k_square);
                }
            }
            squares[share * chunk + own] = q_square;
            squares[(SHARES + share) * chunk + own] = k_square;
        }
        sync_cube();
        invert_lengths(&squares, &mut lengths, record);
        sync_cube();
    }

    // Sums over the columns of the unit's share, for its own and every later token.
    let mut q_sums = Array::<f32>::new(comptime!(record.rows()));
    let mut k_sums = Array::<f32>::new(comptime!(record.rows()));
    #[unroll]
    for t in 0..comptime!(record.rows()) {
        q_sums[t] = 0.0;
        k_sums[t] = 0.0;
    }
    for part in 0..comptime!((record.width() / 4).div_ceil(SLAB)) {
        for task in range_stepped(unit, slab_size, comptime!(units(record))) {
            let token = task / SLAB;
            let column = (part * SLAB + task % SLAB) * 4;
            let mut q_four = Four::new(0.0);
            let mut k_four = Four::new(0.0);
            let mut decay = Four::new(1.0);
            if token < tokens {
                let at = ((first + token) * heads + head) * key_dim;
                let gate_at = ((first + token) * value_heads + value_head) * key_dim;
                #[unroll]
                for lane in 0..4usize {
                    let d = column + lane;
                    if d < key_dim {
                        let mut x = f32::cast_from(q[at + d]);
                        let mut y = f32::cast_from(k[at + d]);
                        let mut z = f32::cast_from(g[gate_at + d]);
                        if comptime!(form != Form::Prepared) {
                            x *= lengths[token];
                            y *= lengths[chunk + token];
                            let bias = gates[value_head * comptime!(record.key_dim + 1) + 1 + d];
                            z = log_decay(z, rate, bias, bound, form);
                        }
                        q_four.insert(lane, x);
                        k_four.insert(lane, y);
                        decay.insert(lane, z.exp());
                    }
                }
            }
            slab[task] = q_four;
            slab[slab_size + task] = k_four;
            slab[2 * slab_size + task] = decay;
        }
        sync_cube();
        if share < SHARES {
            carry(&slab, &mut q_sums, &mut k_sums, own, share, record);
        }
        write_rows(&slab, records, base, part, tokens, scale, record);
        sync_cube();
    }

    if share < SHARES {
        leave_sums(&k_sums, &mut slab, own, share, record);
    }
    sync_cube();
    for task in range_stepped(unit, matrix, comptime!(units(record))) {
        pairs[task] = sum_shares(&slab, task, record);
    }
    sync_cube();
    if share < SHARES {
        leave_sums(&q_sums, &mut slab, own, share, record);
    }
    sync_cube();
    for task in range_stepped(unit, matrix, comptime!(units(record))) {
        let sum = sum_shares(&slab, task, record);
        records[base + comptime!(record.attention() / 4) + task] = sum * Four::new(scale);
    }

    if unit < chunk {
        let at = base + comptime!(record.solve() / 4);
        solve(&pairs, &strength, records, at, unit, false, record);
    }
    if unit < rows {
        let mut four = Four::new(0.0);
        #[unroll]
        for lane in 0..4usize {
            let at = unit * 4 + lane;
            if at < chunk {
                four.insert(lane, strength[at]);
            }
        }
        records[base + comptime!(record.strength() / 4) + unit] = four;
    }
    if comptime!(record.backward) {
        if unit < chunk {
            let at = base + comptime!(record.solve_gradient() / 4);
            solve(&pairs, &strength, records, at, unit, true, record);
        }
        if unit < 2 * rows {
            let mut inverse = Four::new(1.0);
            if comptime!(form != Form::Prepared) {
                #[unroll]
                for lane in 0..4usize {
                    let at = unit * 4 + lane;
                    if at < comptime!(2 * record.chunk) {
                        inverse.insert(lane, lengths[at]);
                    }
                }
            }
            records[base + comptime!(record.inverse_lengths() / 4) + unit] = inverse;
        }
    }
}

/// From the sums of squares of the shares, `[2, SHARES, C]`, to what brings queries and keys to unit length, `[2, C]`.
#[cube]
fn invert_lengths(
    squares: &Shared<[f32]>,
    lengths: &mut Shared<[f32]>,
    #[comptime] record: Record,
) {
    let chunk = comptime!(record.chunk);
    for task in range_stepped(
        UNIT_POS_X as usize,
        comptime!(2 * record.chunk),
        comptime!(units(record)),
    ) {
        let mut square = comptime!(UNIT_LENGTH_EPSILON as f32).runtime();
        let at = (task / chunk) * comptime!(SHARES * record.chunk) + task % chunk;
        for share in 0..SHARES {
            square += squares[at + share * chunk];
        }
        lengths[task] = 1.0 / square.sqrt();
    }
}

/// Writes what the record has a row a token of. Rows behind the chunk's tokens do not decay, so that products need no more factors than there are
/// tokens; and with a number that the compiler does not know, CUDA's does not unroll the loop into more registers than there are.
#[cube]
fn write_rows(
    slab: &Shared<[Four]>,
    records: &mut [Four],
    base: usize,
    part: usize,
    tokens: usize,
    scale: f32,
    #[comptime] record: Record,
) {
    let chunk = comptime!(record.chunk);
    let width = comptime!(record.width() / 4);
    let slab_size = comptime!(record.chunk * SLAB);
    for task in range_stepped(UNIT_POS_X as usize, slab_size, comptime!(units(record))) {
        let token = task / SLAB;
        let column = part * SLAB + task % SLAB;
        if column < width {
            let decay = 2 * slab_size + task % SLAB;
            let mut before = Four::new(1.0);
            let mut after = Four::new(1.0);
            for t in 0..tokens {
                if t <= token {
                    before *= slab[decay + t * SLAB];
                } else {
                    after *= slab[decay + t * SLAB];
                }
            }
            let q_four = slab[task];
            let k_four = slab[slab_size + task];
            let at = base + token * width + column;
            records[at + comptime!(record.read_keys() / 4)] = k_four * before;
            records[at + comptime!(record.read_queries() / 4)] = q_four * Four::new(scale) * before;
            records[at + comptime!(record.write_keys() / 4)] = k_four * after;
            if token == chunk - 1 {
                records[base + comptime!(record.whole() / 4) + column] = before;
            }
            if comptime!(record.backward) {
                records[at + comptime!(record.queries() / 4)] = q_four;
                records[at + comptime!(record.keys() / 4)] = k_four;
                records[at + comptime!(record.decay() / 4)] = slab[2 * slab_size + task];
            }
        }
    }
}

/// Fills the records of a window's chunks. `gates` are those of [`super::gate::pack`].
pub(super) fn launch(
    inputs: &Inputs,
    record: Record,
    window: &Window,
    [table, gates, records]: [&CubeTensor; 3],
) {
    let Inputs {
        q,
        k,
        g,
        beta,
        preparing,
        sizes,
        ..
    } = inputs;
    unsafe {
        prepare::launch_unchecked(
            inputs.client(),
            CubeCount::Static(window.chunks as u32, sizes.value_heads as u32, 1),
            CubeDim::new_1d(units(record) as u32),
            address_type(&[q, k, g, beta, records]),
            q.clone().into_buffer_arg(),
            k.clone().into_buffer_arg(),
            g.clone().into_buffer_arg(),
            beta.clone().into_buffer_arg(),
            gates.clone().into_buffer_arg(),
            table.clone().into_buffer_arg(),
            records.clone().into_buffer_arg(),
            window.chunks_at(),
            sizes.group(),
            inputs.scale,
            preparing.bound,
            preparing.write_scale,
            record,
            preparing.form,
            [q, k, g, beta].map(storage),
        )
    }
}
