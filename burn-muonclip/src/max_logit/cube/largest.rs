//! The largest logit of every head, from those of its blocks in every row of the batch.
//!
//! One cube a head. `4 B blocks` bytes a head are read, a 64th of a number for each query: next to nothing.

use burn::tensor::DType;
use burn_cubecl::tensor::CubeTensor;
use burn_kimi_kernels::cube::address_type;
use cubecl::prelude::*;

use super::super::inputs::Sizes;
use super::empty;
use super::order::{LOWEST, number};
use super::products::BLOCK;

const UNITS: usize = 64;

#[cube(launch_unchecked, address_type = "dynamic")]
fn max_logit_largest(
    // `[B, H, blocks]`
    of_blocks: &[u32],
    // `[H]`
    logits: &mut [f32],
    batch: usize,
    blocks: usize,
    scale: f32,
) {
    let unit = UNIT_POS_X as usize;
    let head = CUBE_POS_X as usize;
    let heads = CUBE_COUNT_X as usize;
    let mut best = Shared::<[u32]>::new_slice(UNITS);
    let mut found = LOWEST.runtime();
    for task in range_stepped(unit, batch * blocks, UNITS) {
        let (row, block) = (task / blocks, task % blocks);
        let other = of_blocks[(row * heads + head) * blocks + block];
        if other > found {
            found = other;
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
        logits[head] = number(best[0]) * scale;
    }
}

/// `[H]`, scaled.
pub(super) fn launch(of_blocks: &CubeTensor, sizes: Sizes) -> CubeTensor {
    let logits = empty(of_blocks, sizes.heads, DType::F32);
    unsafe {
        max_logit_largest::launch_unchecked(
            &of_blocks.client,
            CubeCount::Static(sizes.heads as u32, 1, 1),
            CubeDim::new_1d(UNITS as u32),
            address_type(&[of_blocks]),
            of_blocks.clone().into_buffer_arg(),
            logits.clone().into_buffer_arg(),
            sizes.batch,
            sizes.queries.div_ceil(BLOCK),
            sizes.scale as f32,
        )
    };
    logits
}
