//! A decode step in one launch: prepares the token, reads its state and writes it back.
//!
//! One cube a sequence, value head and block of columns of `V`, with the division of the state that the scan has. The state is read once
//! and written once, `8 K V` bytes a head, against `6 K V` flops: the memory decides. Every block of columns prepares the token for itself,
//! which costs `3 K` inputs a block.
//!
//! Sums have the order that they have in [`super::prepare`] and [`super::scan`], so a step has the bits of those two with a chunk of one
//! token, and of the first token of any chunk. With several tokens it is the same step in a loop, with the state in registers.

use burn_cubecl::tensor::CubeTensor;
use burn_kimi_kernels::cube::{address_type, storage};
use cubecl::prelude::*;

use super::gate::{Form, log_decay, sigmoid};
use super::inputs::Inputs;
use super::plan::Tiles;
use super::prepare::{SHARE, SHARES, SLAB};
use super::scan::Keep;
use super::table::{CHUNK_ENTRY, SEQUENCE_ENTRY, Window};
use super::walk::{Four, add_outer, load_state, multiply_staged, store_state, sum_slices};
use crate::kda::plan::UNIT_LENGTH_EPSILON;

/// Tensors that the kernel takes. WebGPU promises fewer; there a step goes through the kernels for chunks.
pub(super) const BINDINGS: usize = 11;

/// Rows of the stage: what reads the state for the delta and for the output, what writes to it, and what decays it.
const STAGED: usize = 4;

#[cube(launch_unchecked, address_type = "dynamic")]
fn step<Q: Float, K: Float, G: Float, W: Float, F: Float, N: Size>(
    q: &[Q],
    k: &[K],
    values: &[Vector<F, N>],
    g: &[G],
    beta: &[W],
    a_log: &[f32],
    dt_bias: &[f32],
    table: &[u32],
    states: &mut [Vector<f32, N>],
    output: &mut [Vector<F, N>],
    // Where `keep` has snapshots: `[B, T, HV, K, V]`.
    kept: &mut [Vector<f32, N>],
    chunks_at: usize,
    group: usize,
    value_dim: usize,
    scale: f32,
    bound: f32,
    write_scale: f32,
    // `SHARES` as a number that the compiler does not know: CUDA's would unroll sums over the shares into more registers than there are.
    shares: usize,
    #[comptime] form: Form,
    #[comptime] keep: Keep,
    #[comptime] tiles: Tiles,
    #[define(Q, K, G, W, F)] _dtypes: [ElemType; 5],
) {
    let key_dim = comptime!(tiles.record.key_dim);
    let lanes = comptime!(tiles.lanes());
    let stage_width = comptime!(tiles.stage_width());
    let depth = comptime!(tiles.depth / 4);

    let unit = UNIT_POS as usize;
    let lane = UNIT_POS_X as usize;
    let slice = UNIT_POS_Y as usize;
    let value_head = CUBE_POS_Y as usize;
    let value_heads = CUBE_COUNT_Y as usize;
    let heads = value_heads / group;
    let head = value_head / group;
    let stride = value_dim / comptime!(tiles.columns);
    let column = CUBE_POS_X as usize * lanes + lane;
    let inside = column < stride;
    let entry = CUBE_POS_Z as usize * SEQUENCE_ENTRY;
    let first = table[chunks_at + table[entry] as usize * CHUNK_ENTRY] as usize;
    let tokens = table[entry + 1] as usize;
    let slot = table[entry + 2] as usize;

    // The state's place is looked up again at the end: were it known all the way, the compiler would keep the addresses of all rows.
    let mut own_slot = Shared::<[u32]>::new_slice(1usize);
    if UNIT_POS == 0 {
        own_slot[0] = table[entry + 2];
    }
    let mut raw = Shared::<[f32]>::new_slice(comptime!(2 * tiles.stage_width() * 4));
    let mut squares = Shared::<[f32]>::new_slice(comptime!(2 * SHARES));
    let mut attentions = Shared::<[f32]>::new_slice(SHARES);
    let mut stage = Shared::<[Four]>::new_slice(comptime!(STAGED * tiles.stage_width()));
    let mut partial = Shared::<[Vector<f32, N>]>::new_slice(comptime!(
        tiles.slices * tiles.staged * tiles.lanes()
    ));

    let mut rate = 1.0f32;
    if comptime!(form != Form::Prepared) {
        rate = a_log[value_head].exp();
    }
    let state_base = (slot * value_heads + value_head) * key_dim * stride + column;
    let mut state = load_state::<N>(states, state_base, stride, inside, tiles);

    for index in 0..tokens {
        let token = first + index;
        let mut decay = Four::new(1.0);
        if unit < stage_width {
            #[unroll]
            for d in 0..4usize {
                let channel = unit * 4 + d;
                let mut x = 0.0f32;
                let mut y = 0.0f32;
                if channel < key_dim {
                    x = f32::cast_from(q[(token * heads + head) * key_dim + channel]);
                    y = f32::cast_from(k[(token * heads + head) * key_dim + channel]);
                    let z =
                        f32::cast_from(g[(token * value_heads + value_head) * key_dim + channel]);
                    let mut bias = 0.0f32;
                    if comptime!(form != Form::Prepared) {
                        bias = dt_bias[value_head * key_dim + channel];
                    }
                    decay.insert(d, log_decay(z, rate, bias, bound, form).exp());
                }
                raw[channel] = x;
                raw[stage_width * 4 + channel] = y;
            }
        }
        sync_cube();

        let mut q_length = 1.0f32;
        let mut k_length = 1.0f32;
        if comptime!(form != Form::Prepared) {
            if unit < 2 * SHARES {
                let from = (unit / SHARES) * (stage_width * 4);
                let mut square = 0.0f32;
                for channel in range_stepped(unit % SHARES, key_dim, SHARES) {
                    let x = raw[from + channel];
                    square = fma(x, x, square);
                }
                squares[unit] = square;
            }
            sync_cube();
            let mut q_square = comptime!(UNIT_LENGTH_EPSILON as f32).runtime();
            let mut k_square = comptime!(UNIT_LENGTH_EPSILON as f32).runtime();
            for share in 0..shares {
                q_square += squares[share];
                k_square += squares[SHARES + share];
            }
            q_length = 1.0 / q_square.sqrt();
            k_length = 1.0 / k_square.sqrt();
        }

        if unit < SHARES {
            let mut sum = 0.0f32;
            for part in 0..comptime!(tiles.record.width().div_ceil(SLAB * 4)) {
                for d in 0..comptime!(SHARE * 4) {
                    let channel = (part * SLAB + unit * SHARE) * 4 + d;
                    if channel < key_dim {
                        sum = fma(
                            raw[channel] * q_length,
                            raw[stage_width * 4 + channel] * k_length,
                            sum,
                        );
                    }
                }
            }
            attentions[unit] = sum;
        }
        if unit < stage_width {
            let mut q_four = Four::new(0.0);
            let mut k_four = Four::new(0.0);
            #[unroll]
            for d in 0..4usize {
                q_four.insert(d, raw[unit * 4 + d] * q_length);
                k_four.insert(d, raw[(stage_width + unit) * 4 + d] * k_length);
            }
            stage[unit] = k_four * decay;
            stage[stage_width + unit] = q_four * Four::new(scale) * decay;
            stage[2 * stage_width + unit] = k_four;
            stage[3 * stage_width + unit] = decay;
        }
        sync_cube();

        multiply_staged::<N>(&stage, &state, &mut partial, 2usize, tiles);
        sync_cube();
        let mut attention = attentions[0];
        for share in 1..shares {
            attention += attentions[share];
        }
        let mut strength = f32::cast_from(beta[token * value_heads + value_head]);
        if comptime!(form != Form::Prepared) {
            strength = write_scale * sigmoid(strength);
        }
        let mut value = Vector::<f32, N>::new(0.0);
        if inside {
            value = Vector::cast_from(values[(token * value_heads + value_head) * stride + column]);
        }
        let delta = fma(
            Vector::new(1.0),
            value - sum_slices::<N>(&partial, 0, tiles),
            Vector::new(0.0),
        );
        let written = delta * Vector::new(strength);
        let out = fma(
            Vector::new(attention * scale),
            written,
            sum_slices::<N>(&partial, 1, tiles),
        );
        if slice == 0 && inside {
            output[(token * value_heads + value_head) * stride + column] = Vector::cast_from(out);
        }
        #[unroll]
        for j in 0..depth {
            let four = stage[3 * stage_width + slice * depth + j];
            #[unroll]
            for d in 0..4usize {
                state[comptime!(j * 4 + d)] *= Vector::new(four.extract(d));
            }
        }
        add_outer::<N>(&stage, 2, written, &mut state, tiles);
        if comptime!(keep == Keep::Snapshots) {
            let at = (token * value_heads + value_head) * key_dim * stride + column;
            store_state::<N>(&state, kept, at, stride, inside, tiles);
        }
        sync_cube();
    }
    let slot = own_slot[0] as usize;
    let state_base =
        (slot * value_heads + value_head) * comptime!(tiles.record.key_dim) * stride + column;
    store_state::<N>(&state, states, state_base, stride, inside, tiles);
}

/// Steps through the tokens of a window of chunks of one token.
pub(super) fn launch(
    inputs: &Inputs,
    window: &Window,
    tiles: Tiles,
    keep: Keep,
    table: &CubeTensor,
    [states, output, kept]: [&CubeTensor; 3],
) {
    let Inputs {
        q,
        k,
        v,
        g,
        beta,
        a_log,
        dt_bias,
        preparing,
        sizes,
        ..
    } = inputs;
    let cubes = CubeCount::Static(
        tiles.blocks(sizes.value_dim) as u32,
        sizes.value_heads as u32,
        window.sequences as u32,
    );
    unsafe {
        step::launch_unchecked(
            inputs.client(),
            cubes,
            CubeDim::new_2d(tiles.lanes() as u32, tiles.slices as u32),
            address_type(&[q, k, v, g, beta, states, output, kept]),
            tiles.columns,
            q.clone().into_buffer_arg(),
            k.clone().into_buffer_arg(),
            v.clone().into_buffer_arg(),
            g.clone().into_buffer_arg(),
            beta.clone().into_buffer_arg(),
            a_log.clone().into_buffer_arg(),
            dt_bias.clone().into_buffer_arg(),
            table.clone().into_buffer_arg(),
            states.clone().into_buffer_arg(),
            output.clone().into_buffer_arg(),
            kept.clone().into_buffer_arg(),
            window.chunks_at(),
            sizes.group(),
            sizes.value_dim,
            inputs.scale,
            preparing.bound,
            preparing.write_scale,
            SHARES,
            preparing.form,
            keep,
            tiles,
            [q, k, g, beta, v].map(storage),
        )
    }
}
