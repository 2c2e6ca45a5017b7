//! What the two kernels that walk over chunks share: staging rows of a record, and products of rows with the state in registers.

use cubecl::prelude::*;

use super::plan::Tiles;

/// Rows of which the products are taken at once, so that a unit has independent sums.
const BLOCK: usize = 4;

pub(super) type Four = Vector<f32, Const<4>>;

/// Whether a unit that takes every `step`th of `count` things has one in this round; not asked where all have.
///
/// Rounds that are counted at compile time, with nothing to ask, leave a compiler one address for all of them.
#[cube]
pub(super) fn has_task(task: usize, #[comptime] count: usize, #[comptime] step: usize) -> bool {
    if comptime!(count.is_multiple_of(step)) {
        true.runtime()
    } else {
        task < count
    }
}

/// Copies `count` rows of a record, from vector `source` on, to the stage from row `row` on. What is behind `K` becomes 0.
#[cube]
pub(super) fn stage_rows(
    records: &[Four],
    stage: &mut Shared<[Four]>,
    source: usize,
    row: usize,
    #[comptime] count: usize,
    #[comptime] tiles: Tiles,
) {
    let width = comptime!(tiles.record.width() / 4);
    let stage_width = comptime!(tiles.stage_width());
    let tasks = comptime!(count * tiles.stage_width());
    for round in 0..comptime!((count * tiles.stage_width()).div_ceil(tiles.units())) {
        let task = UNIT_POS as usize + round * comptime!(tiles.units());
        if has_task(task, tasks, comptime!(tiles.units())) {
            if comptime!(tiles.is_full()) {
                stage[row * stage_width + task] = records[source + task];
            } else {
                let column = task % stage_width;
                let mut four = Four::new(0.0);
                if column < width {
                    four = records[source + (task / stage_width) * width + column];
                }
                stage[row * stage_width + task] = four;
            }
        }
    }
}

/// Copies a matrix of a record to shared memory.
#[cube]
pub(super) fn load_numbers(
    records: &[Four],
    numbers: &mut Shared<[f32]>,
    source: usize,
    #[comptime] count: usize,
    #[comptime] tiles: Tiles,
) {
    for round in 0..comptime!((count / 4).div_ceil(tiles.units())) {
        let task = UNIT_POS as usize + round * comptime!(tiles.units());
        if has_task(task, comptime!(count / 4), comptime!(tiles.units())) {
            let four = records[source + task];
            #[unroll]
            for lane in 0..4usize {
                numbers[task * 4 + lane] = four.extract(lane);
            }
        }
    }
}

/// The products of the first `rows` staged rows with the unit's columns of the state, over the unit's slice of `K`, to `partial`:
/// `[slices, staged, lanes]`.
#[cube]
pub(super) fn multiply_staged<N: Size>(
    stage: &Shared<[Four]>,
    state: &Array<Vector<f32, N>>,
    partial: &mut Shared<[Vector<f32, N>]>,
    #[comptime] rows: usize,
    #[comptime] tiles: Tiles,
) {
    let lanes = comptime!(tiles.lanes());
    let staged = comptime!(tiles.staged);
    let block = comptime!(rows.min(BLOCK));
    let stage_width = comptime!(tiles.stage_width());
    let depth = comptime!(tiles.depth / 4);
    let lane = UNIT_POS_X as usize;
    let slice = UNIT_POS_Y as usize;
    for first in range_stepped(0, rows, block) {
        let mut sums = Array::<Vector<f32, N>>::new(block);
        #[unroll]
        for r in 0..block {
            sums[r] = Vector::new(0.0);
        }
        #[unroll]
        for j in 0..depth {
            #[unroll]
            for r in 0..block {
                let four = stage[(first + r) * stage_width + slice * depth + j];
                #[unroll]
                for d in 0..4usize {
                    sums[r] = fma(
                        Vector::new(four.extract(d)),
                        state[comptime!(j * 4 + d)],
                        sums[r],
                    );
                }
            }
        }
        #[unroll]
        for r in 0..block {
            partial[(slice * staged + first + r) * lanes + lane] = sums[r];
        }
    }
}

/// The sum over the slices of the product of staged row `row` with the unit's columns.
#[cube]
pub(super) fn sum_slices<N: Size>(
    partial: &Shared<[Vector<f32, N>]>,
    row: usize,
    #[comptime] tiles: Tiles,
) -> Vector<f32, N> {
    let lanes = comptime!(tiles.lanes());
    let at = row * lanes + UNIT_POS_X as usize;
    let mut sum = partial[at];
    for slice in 1..comptime!(tiles.slices) {
        sum += partial[slice * comptime!(tiles.staged * tiles.lanes()) + at];
    }
    sum
}

/// Decays the unit's part of the state by a record's `whole`.
#[cube]
pub(super) fn decay_state<N: Size>(
    records: &[Four],
    state: &mut Array<Vector<f32, N>>,
    whole: usize,
    #[comptime] tiles: Tiles,
) {
    let depth = comptime!(tiles.depth / 4);
    let first = UNIT_POS_Y as usize * depth;
    #[unroll]
    for j in 0..depth {
        if is_inside(
            true.runtime(),
            first + j,
            comptime!(tiles.record.width() / 4),
            tiles,
        ) {
            let four = records[whole + first + j];
            #[unroll]
            for d in 0..4usize {
                state[comptime!(j * 4 + d)] *= Vector::new(four.extract(d));
            }
        }
    }
}

/// Adds the outer product of staged row `row` with the unit's columns of a row to the state.
#[cube]
pub(super) fn add_outer<N: Size>(
    stage: &Shared<[Four]>,
    row: usize,
    columns: Vector<f32, N>,
    state: &mut Array<Vector<f32, N>>,
    #[comptime] tiles: Tiles,
) {
    let depth = comptime!(tiles.depth / 4);
    let at = row * comptime!(tiles.stage_width()) + UNIT_POS_Y as usize * depth;
    #[unroll]
    for j in 0..depth {
        let four = stage[at + j];
        #[unroll]
        for d in 0..4usize {
            state[comptime!(j * 4 + d)] = fma(
                Vector::new(four.extract(d)),
                columns,
                state[comptime!(j * 4 + d)],
            );
        }
    }
}

/// Whether a unit with these columns has row `row` of `rows`, which is not asked where all units have all of theirs.
#[cube]
fn is_inside(columns: bool, row: usize, #[comptime] rows: usize, #[comptime] tiles: Tiles) -> bool {
    if comptime!(tiles.is_full()) {
        columns
    } else {
        columns && row < rows
    }
}

/// The unit's part of a state `[K, V]`, from vector `base` on.
#[cube]
pub(super) fn load_state<N: Size>(
    states: &mut [Vector<f32, N>],
    base: usize,
    stride: usize,
    inside: bool,
    #[comptime] tiles: Tiles,
) -> Array<Vector<f32, N>> {
    let mut state = Array::<Vector<f32, N>>::new(comptime!(tiles.depth));
    let first = UNIT_POS_Y as usize * comptime!(tiles.depth);
    let at = base + first * stride;
    #[unroll]
    for j in 0..comptime!(tiles.depth) {
        let mut value = Vector::new(0.0);
        if is_inside(inside, first + j, comptime!(tiles.record.key_dim), tiles) {
            value = states[at + j * stride];
        }
        state[j] = value;
    }
    state
}

/// The way back.
#[cube]
pub(super) fn store_state<N: Size>(
    state: &Array<Vector<f32, N>>,
    states: &mut [Vector<f32, N>],
    base: usize,
    stride: usize,
    inside: bool,
    #[comptime] tiles: Tiles,
) {
    let first = UNIT_POS_Y as usize * comptime!(tiles.depth);
    let at = base + first * stride;
    #[unroll]
    for j in 0..comptime!(tiles.depth) {
        if is_inside(inside, first + j, comptime!(tiles.record.key_dim), tiles) {
            states[at + j * stride] = state[j];
        }
    }
}

/// Keeps the unit's part of a state for the gradients of the chunk, `[V, K]` with whole vectors of `K`, from vector `base` on.
#[cube]
pub(super) fn keep_transposed<N: Size>(
    state: &Array<Vector<f32, N>>,
    kept: &mut [Four],
    base: usize,
    column: usize,
    inside: bool,
    #[comptime] tiles: Tiles,
) {
    let width = comptime!(tiles.record.width() / 4);
    let depth = comptime!(tiles.depth / 4);
    let first = UNIT_POS_Y as usize * depth;
    #[unroll]
    for n in 0..comptime!(tiles.columns) {
        #[unroll]
        for j in 0..depth {
            if is_inside(inside, first + j, width, tiles) {
                let mut four = Four::new(0.0);
                #[unroll]
                for d in 0..4usize {
                    four.insert(d, state[comptime!(j * 4 + d)].extract(n));
                }
                kept[base + (column * comptime!(tiles.columns) + n) * width + first + j] = four;
            }
        }
    }
}
