//! The largest product of a block of queries of one head with the keys it may see.
//!
//! One cube a block of 64 queries, over blocks of 64 keys: `16 x 16` units with `4 x 4` products each in registers. Queries and keys come through shared
//! memory 16 columns at a time, 8 KiB together, so the kernel fits the 16 KiB of WebGPU for heads of any width. `2 D` flops a pair; a
//! unit reads 8 numbers of shared memory for 16 products, and a cube reads the queries again for every block of keys, from the cache:
//! `4 (D + D) / 64` bytes a pair. No product leaves the registers, so nothing of the size of the scores is anywhere.
//!
//! Matrix units are not used: they would round `f32` inputs, and the tensor that decides whether weights are scaled is not the place to save time.
//! The certificate ([`super::super::bound`]) keeps most layers from getting here.

use burn::tensor::DType;
use burn_cubecl::tensor::CubeTensor;
use burn_kimi_kernels::cube::{address_type, storage};
use cubecl::prelude::*;

use super::super::inputs::Sizes;
use super::order::{LOWEST, ordered};
use super::{empty, steps};

/// Units along queries, and along keys.
const SIDE: usize = 16;
/// Queries and keys of one unit.
const OWN: usize = 4;
/// Queries and keys of a cube.
pub(super) const BLOCK: usize = SIDE * OWN;
const UNITS: usize = SIDE * SIDE;
/// Columns in shared memory at once.
const COLUMNS: usize = 16;
/// From one column to the next; an odd number, so that neighbours in memory do not meet in one bank.
const STRIDE: usize = BLOCK + 1;

#[cube(launch_unchecked, address_type = "dynamic")]
fn max_logit_products<F: Float, M: Numeric>(
    // `[B, H, T, D]`
    q: &[F],
    // `[B, G, S, D]`
    k: &[F],
    mask: &[M],
    // `[B, H, blocks]`
    largest: &mut [u32],
    group: usize,
    queries: usize,
    keys: usize,
    dim: usize,
    batch_step: usize,
    head_step: usize,
    query_step: usize,
    key_step: usize,
    #[comptime] causal: bool,
    #[comptime] masked: bool,
    #[define(F, M)] _dtypes: [ElemType; 2],
) {
    let unit = UNIT_POS_X as usize;
    let (along_keys, along_queries) = (unit % SIDE, unit / SIDE);
    let first = CUBE_POS_X as usize * BLOCK;
    let head = CUBE_POS_Y as usize;
    let heads = CUBE_COUNT_Y as usize;
    let batch = CUBE_POS_Z as usize;
    let row = batch * heads + head;
    let key_row = batch * (heads / group) + head / group;

    let mut q_part = Shared::<[f32]>::new_slice(comptime!(COLUMNS * STRIDE));
    let mut k_part = Shared::<[f32]>::new_slice(comptime!(COLUMNS * STRIDE));
    let mut best = Shared::<[u32]>::new_slice(UNITS);

    let mut seen = keys;
    if comptime!(causal) {
        let last = select(first + BLOCK < queries, first + BLOCK, queries);
        seen = visible(last, queries, keys);
    }
    let mut found = LOWEST.runtime();
    for key in range_stepped(0, seen, BLOCK) {
        let mut products = Array::<f32>::new(comptime!(OWN * OWN));
        #[unroll]
        for i in 0..comptime!(OWN * OWN) {
            products[i] = 0.0;
        }
        for column in range_stepped(0, dim, COLUMNS) {
            load(q, &mut q_part, row * queries, first, queries, column, dim);
            load(k, &mut k_part, key_row * keys, key, keys, column, dim);
            sync_cube();
            for c in 0..COLUMNS {
                #[unroll]
                for i in 0..OWN {
                    let x = q_part[c * STRIDE + along_queries + comptime!(i * SIDE)];
                    #[unroll]
                    for j in 0..OWN {
                        let y = k_part[c * STRIDE + along_keys + comptime!(j * SIDE)];
                        let at = comptime!(i * OWN + j);
                        products[at] = fma(x, y, products[at]);
                    }
                }
            }
            sync_cube();
        }
        #[unroll]
        for i in 0..OWN {
            let query = first + along_queries + comptime!(i * SIDE);
            let mut limit = 0usize;
            if query < queries {
                limit = keys;
                if comptime!(causal) {
                    limit = visible(query + 1, queries, keys);
                }
            }
            #[unroll]
            for j in 0..OWN {
                let other = key + along_keys + comptime!(j * SIDE);
                if other < limit {
                    let mut hidden = 0u32;
                    if comptime!(masked) {
                        let place = batch * batch_step
                            + head * head_step
                            + query * query_step
                            + other * key_step;
                        hidden = u32::cast_from(mask[place]);
                    }
                    let product = ordered(products[comptime!(i * OWN + j)]);
                    if hidden == 0 && product > found {
                        found = product;
                    }
                }
            }
        }
    }

    best[unit] = found;
    sync_cube();
    #[unroll]
    for level in 0..comptime!(UNITS.ilog2()) {
        let half = comptime!(UNITS >> (level + 1));
        if unit < half && best[unit + half] > best[unit] {
            best[unit] = best[unit + half];
        }
        sync_cube();
    }
    if unit == 0 {
        largest[row * CUBE_COUNT_X as usize + CUBE_POS_X as usize] = best[0];
    }
}

/// Keys that `count` queries see together where the last query sees all.
#[cube]
fn visible(count: usize, queries: usize, keys: usize) -> usize {
    select(count + keys > queries, count + keys - queries, 0)
}

/// Brings some columns of a block of rows to shared memory, `[COLUMNS, BLOCK]`; 0 where there is nothing.
#[cube]
fn load<F: Float>(
    from: &[F],
    to: &mut Shared<[f32]>,
    base: usize,
    first: usize,
    rows: usize,
    column: usize,
    dim: usize,
) {
    #[unroll]
    for round in 0..comptime!(BLOCK * COLUMNS / UNITS) {
        let task = UNIT_POS_X as usize + comptime!(round * UNITS);
        let (row, c) = (task / COLUMNS, task % COLUMNS);
        let mut x = 0.0f32;
        if first + row < rows && column + c < dim {
            x = f32::cast_from(from[(base + first + row) * dim + column + c]);
        }
        to[c * STRIDE + row] = x;
    }
}

/// The largest product of every block of queries, in order: `[B, H, blocks]`.
pub(super) fn launch(
    q: &CubeTensor,
    k: &CubeTensor,
    mask: &CubeTensor,
    sizes: Sizes,
) -> CubeTensor {
    let Sizes {
        batch,
        heads,
        key_heads,
        queries,
        keys,
        dim,
        causal,
        ..
    } = sizes;
    let blocks = queries.div_ceil(BLOCK);
    let largest = empty(q, batch * heads * blocks, DType::U32);
    let [batch_step, head_step, query_step, key_step] = steps(mask);
    let masked = sizes.masked;
    unsafe {
        max_logit_products::launch_unchecked(
            &q.client,
            CubeCount::Static(blocks as u32, heads as u32, batch as u32),
            CubeDim::new_1d(UNITS as u32),
            address_type(&[q, k, mask]),
            q.clone().into_buffer_arg(),
            k.clone().into_buffer_arg(),
            mask.clone().into_buffer_arg(),
            largest.clone().into_buffer_arg(),
            heads / key_heads,
            queries,
            keys,
            dim,
            batch_step,
            head_step,
            query_step,
            key_step,
            causal,
            masked,
            [q, mask].map(storage),
        )
    };
    largest
}
