//! From the gradients of prepared inputs to those of what the caller gave.
//!
//! [`vectors`] adds up the value heads of a group in order and takes the gradients of queries and keys back through the unit length,
//! `dx = r (dy - y <y, dy>)`, and those of the write strength through the sigmoid. [`decays`] takes those of the logarithm of the decay
//! through the forget gate, and leaves a chunk's part of the gradients of the gate's parameters.
//!
//! Bytes only, a flop or two for each number. [`vectors`], a chunk and query head with `G` value heads: `2 G C K` gradients read, and with
//! projections those again and `4 C K` numbers of the record, for about `(4 G + 6) C K` flops instead of `2 (G - 1) C K`; `2 C K` numbers
//! written. The second reading comes from the cache, and saves a buffer of what the first has summed. [`decays`], a chunk and value head:
//! `2 C K` numbers read and `C K + 2 K` written; with projections about `12 C K` flops and `3 C K` exponentials.

use burn_cubecl::tensor::CubeTensor;
use burn_kimi_kernels::cube::{address_type, storage};
use cubecl::prelude::*;

use super::gate::{Form, a_log_gradient, log_decay_gradient, sigmoid};
use super::gradients::result_len;
use super::inputs::Inputs;
use super::prepare::SHARES;
use super::record::Record;
use super::table::{CHUNK_ENTRY, Window};

/// Units that work on the channels of a chunk's decays.
const CHANNELS: usize = 64;

/// One cube a chunk and query head, [`SHARES`] units a token.
#[cube(launch_unchecked, address_type = "dynamic")]
fn vectors<Q: Float, K: Float, W: Float>(
    records: &[f32],
    gradients: &[f32],
    beta: &[W],
    table: &[u32],
    q_gradient: &mut [Q],
    k_gradient: &mut [K],
    beta_gradient: &mut [W],
    chunks_at: usize,
    group: usize,
    write_scale: f32,
    #[comptime] record: Record,
    #[comptime] form: Form,
    #[define(Q, K, W)] _dtypes: [ElemType; 3],
) {
    let key_dim = comptime!(record.key_dim);
    let width = comptime!(record.width());
    let vectors = comptime!(record.chunk * record.width());
    let result = comptime!(result_len(record));

    let unit = UNIT_POS_X as usize;
    let token = unit / SHARES;
    let share = unit % SHARES;
    let head = CUBE_POS_Y as usize;
    let heads = CUBE_COUNT_Y as usize;
    let value_heads = heads * group;
    let entry = chunks_at + CUBE_POS_X as usize * CHUNK_ENTRY;
    let first = table[entry] as usize;
    let inside = token < table[entry + 1] as usize;
    let place = CUBE_POS_X as usize * value_heads + head * group;
    let base = place * comptime!(record.len());
    let row = token * width;

    let mut partial = Shared::<[f32]>::new_slice(comptime!(2 * SHARES * record.chunk));
    let mut q_along = 0.0f32;
    let mut k_along = 0.0f32;
    if comptime!(form != Form::Prepared) {
        for column in range_stepped(share, key_dim, SHARES) {
            let at = place * result + row + column;
            let y = base + row + column;
            let q_sum = sum_group(gradients, at, group, result);
            let k_sum = sum_group(gradients, at + vectors, group, result);
            q_along = fma(records[y + comptime!(record.queries())], q_sum, q_along);
            k_along = fma(records[y + comptime!(record.keys())], k_sum, k_along);
        }
        partial[unit] = q_along;
        partial[comptime!(SHARES * record.chunk) + unit] = k_along;
        sync_cube();
        q_along = 0.0;
        k_along = 0.0;
        for other in 0..SHARES {
            q_along += partial[token * SHARES + other];
            k_along += partial[comptime!(SHARES * record.chunk) + token * SHARES + other];
        }
    }
    if inside {
        let out = ((first + token) * heads + head) * key_dim;
        for column in range_stepped(share, key_dim, SHARES) {
            let at = place * result + row + column;
            let mut q_sum = sum_group(gradients, at, group, result);
            let mut k_sum = sum_group(gradients, at + vectors, group, result);
            if comptime!(form != Form::Prepared) {
                let y = base + row + column;
                let lengths = base + comptime!(record.inverse_lengths()) + token;
                let q_length = records[lengths];
                let k_length = records[lengths + comptime!(record.chunk)];
                q_sum = q_length * (q_sum - records[y + comptime!(record.queries())] * q_along);
                k_sum = k_length * (k_sum - records[y + comptime!(record.keys())] * k_along);
            }
            q_gradient[out + column] = Q::cast_from(q_sum);
            k_gradient[out + column] = K::cast_from(k_sum);
        }
        for member in range_stepped(share, group, SHARES) {
            let mut value = gradients[(place + member) * result + 3 * vectors + token];
            let at = (first + token) * value_heads + head * group + member;
            if comptime!(form != Form::Prepared) {
                let x = f32::cast_from(beta[at]);
                // The other share, `1 - share`, without its cancellation.
                value *= write_scale * sigmoid(x) * sigmoid(-x);
            }
            beta_gradient[at] = W::cast_from(value);
        }
    }
}

/// The sum over the value heads of a group.
#[cube]
fn sum_group(gradients: &[f32], at: usize, group: usize, stride: usize) -> f32 {
    let mut sum = gradients[at];
    for member in 1..group {
        sum += gradients[at + member * stride];
    }
    sum
}

/// One cube a chunk and value head, the units over the channels.
#[cube(launch_unchecked, address_type = "dynamic")]
fn decays<G: Float>(
    g: &[G],
    a_log: &[f32],
    dt_bias: &[f32],
    gradients: &[f32],
    table: &[u32],
    g_gradient: &mut [G],
    // A row a chunk of the call and value head: `K` sums for `dt_bias`, and as many for `a_log`.
    sums: &mut [f32],
    chunks_at: usize,
    bound: f32,
    #[comptime] record: Record,
    #[comptime] form: Form,
    #[define(G)] _dtype: ElemType,
) {
    let key_dim = comptime!(record.key_dim);
    let value_head = CUBE_POS_Y as usize;
    let value_heads = CUBE_COUNT_Y as usize;
    let place = CUBE_POS_X as usize * value_heads + value_head;
    let entry = chunks_at + CUBE_POS_X as usize * CHUNK_ENTRY;
    let first = table[entry] as usize;
    let tokens = table[entry + 1] as usize;
    let from = place * comptime!(result_len(record)) + comptime!(2 * record.chunk * record.width());

    let mut rate = 1.0f32;
    if comptime!(form != Form::Prepared) {
        rate = a_log[value_head].exp();
    }
    for column in range_stepped(UNIT_POS_X as usize, key_dim, CHANNELS) {
        let mut bias = 0.0f32;
        if comptime!(form != Form::Prepared) {
            bias = dt_bias[value_head * key_dim + column];
        }
        let mut bias_sum = 0.0f32;
        let mut rate_sum = 0.0f32;
        for token in 0..tokens {
            let at = ((first + token) * value_heads + value_head) * key_dim + column;
            let gradient = gradients[from + token * comptime!(record.width()) + column];
            let x = f32::cast_from(g[at]);
            let dx = log_decay_gradient(x, rate, bias, bound, gradient, form);
            g_gradient[at] = G::cast_from(dx);
            if comptime!(form != Form::Prepared) {
                bias_sum += dx;
                rate_sum += a_log_gradient(x, rate, bias, gradient, dx, form);
            }
        }
        if comptime!(form != Form::Prepared) {
            let row = table[entry + 2] as usize * value_heads + value_head;
            let at = row * (2 * key_dim) + column;
            sums[at] = bias_sum;
            sums[at + key_dim] = rate_sum;
        }
    }
}

/// Writes the gradients of a window's tokens: of `q`, `k`, `beta` and `g`, and its chunks' sums for the gate.
pub(super) fn launch(
    inputs: &Inputs,
    record: Record,
    window: &Window,
    [table, records, gradients]: [&CubeTensor; 3],
    [q, k, beta, g]: [&CubeTensor; 4],
    sums: &CubeTensor,
) {
    let Inputs {
        preparing, sizes, ..
    } = inputs;
    unsafe {
        vectors::launch_unchecked(
            inputs.client(),
            CubeCount::Static(window.chunks as u32, sizes.heads as u32, 1),
            CubeDim::new_1d((SHARES * record.chunk) as u32),
            address_type(&[records, gradients, &inputs.beta, q, k, beta]),
            records.clone().into_buffer_arg(),
            gradients.clone().into_buffer_arg(),
            inputs.beta.clone().into_buffer_arg(),
            table.clone().into_buffer_arg(),
            q.clone().into_buffer_arg(),
            k.clone().into_buffer_arg(),
            beta.clone().into_buffer_arg(),
            window.chunks_at(),
            sizes.group(),
            preparing.write_scale,
            record,
            preparing.form,
            [q, k, beta].map(storage),
        );
        decays::launch_unchecked(
            inputs.client(),
            CubeCount::Static(window.chunks as u32, sizes.value_heads as u32, 1),
            CubeDim::new_1d(CHANNELS as u32),
            address_type(&[&inputs.g, gradients, g, sums]),
            inputs.g.clone().into_buffer_arg(),
            inputs.a_log.clone().into_buffer_arg(),
            inputs.dt_bias.clone().into_buffer_arg(),
            gradients.clone().into_buffer_arg(),
            table.clone().into_buffer_arg(),
            g.clone().into_buffer_arg(),
            sums.clone().into_buffer_arg(),
            window.chunks_at(),
            preparing.bound,
            record,
            preparing.form,
            storage(g),
        )
    }
}
