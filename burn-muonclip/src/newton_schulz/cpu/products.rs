//! The two products of the iteration.
//!
//! Both are cut into blocks of the result, each of which one thread computes from operands that fit the second cache; where rows lie far apart, they are
//! brought together first, or every row would need a translation of its address of its own.

use burn_kimi_kernels::cpu::lanes::ALIGNMENT;
use burn_kimi_kernels::cpu::product::{Add, Left, Replace, Size, multiply};
use burn_kimi_kernels::cpu::shared::SharedValues;
use burn_kimi_kernels::cpu::threads::for_each;
use burn_kimi_kernels::cpu::tile::Tile;
use macerator::Simd;

/// Rows and columns of a block of a symmetric result, and columns of one of a tall result.
const BLOCK: usize = 128;

/// Rows of a block of a tall result: sixteen times what the inner product takes at once.
const TALL_BLOCK: usize = 96;

/// How much of the depth is added at a time.
const DEPTH: usize = 256;

/// Columns of a block on the diagonal that are computed at once, from their own row down.
const STRIP: usize = 16;

/// Rows that are wider than this are brought together.
const WIDE: usize = 256;

/// Numbers of a side of the squares in which a block is mirrored.
const MIRROR: usize = 8;

/// Who computes a product.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Threads {
    All,
    Caller,
}

impl Threads {
    fn for_each<W>(
        self,
        tasks: usize,
        workspace: impl Fn() -> W + Sync,
        work: impl Fn(&mut W, usize) + Sync,
    ) {
        match self {
            Self::All => for_each(tasks, workspace, work),
            Self::Caller => {
                let mut workspace = workspace();
                (0..tasks).for_each(|task| work(&mut workspace, task));
            }
        }
    }
}

/// What a product becomes: `product * p + other + diagonal * I`.
#[derive(Clone, Copy)]
pub(super) struct Finish<'a> {
    pub(super) product: f32,
    pub(super) other: Option<(f32, &'a Tile)>,
    pub(super) diagonal: f32,
}

impl Default for Finish<'_> {
    fn default() -> Self {
        Self {
            product: 1.0,
            other: None,
            diagonal: 0.0,
        }
    }
}

/// `out = finish(left^T right)`, of which the caller knows that it is symmetric: blocks above the diagonal are mirrored.
pub(super) fn multiply_symmetric(
    threads: Threads,
    [left, right]: [&Tile; 2],
    [depth, width]: [usize; 2],
    finish: Finish,
    out: &mut Tile,
) {
    let blocks = width.div_ceil(BLOCK);
    let stride = out.stride();
    let (values, _) = out.parts_mut();
    let product = Symmetric {
        left,
        right,
        depth,
        width,
        finish,
        out: SharedValues::of_slice(values),
        stride,
    };
    let room = || Room {
        left: Tile::zeros(if width > WIDE { DEPTH } else { 0 }, BLOCK),
        right: Tile::zeros(if width > WIDE { DEPTH } else { 0 }, BLOCK),
        block: Tile::zeros(BLOCK, BLOCK),
    };
    threads.for_each(blocks * (blocks + 1) / 2, room, |room, task| {
        symmetric_block(&product, room, task);
    });
}

struct Symmetric<'a> {
    left: &'a Tile,
    right: &'a Tile,
    depth: usize,
    width: usize,
    finish: Finish<'a>,
    out: SharedValues<'a>,
    stride: usize,
}

/// Operands that were brought together, and the block that becomes of them.
struct Room {
    left: Tile,
    right: Tile,
    block: Tile,
}

/// The row and column of a block among those on and below the diagonal.
fn place(task: usize) -> [usize; 2] {
    let mut row = 0;
    while (row + 1) * (row + 2) / 2 <= task {
        row += 1;
    }
    [row, task - row * (row + 1) / 2]
}

#[macerator::with_simd]
fn symmetric_block<'a, S: Simd>(product: &Symmetric<'a>, room: &mut Room, task: usize) {
    let [i, j] = place(task);
    let (top, start) = (i * BLOCK, j * BLOCK);
    let rows = BLOCK.min(product.width - top);
    let columns = BLOCK.min(product.width - start);
    let Room { left, right, block } = room;
    for from in (0..product.depth).step_by(DEPTH) {
        let depth = DEPTH.min(product.depth - from);
        let packed = product.width > WIDE;
        if packed {
            bring_together(product.left, [from, depth], [top, rows], left);
            bring_together(product.right, [from, depth], [start, columns], right);
        }
        let (left, left_stride) = match packed {
            true => (left.values(), left.stride()),
            false => (
                &product.left.values()[from * product.left.stride() + top..],
                product.left.stride(),
            ),
        };
        let (right, right_stride) = match packed {
            true => (right.values(), right.stride()),
            false => (
                &product.right.values()[from * product.right.stride() + start..],
                product.right.stride(),
            ),
        };
        let (to, to_stride) = block.parts_mut();
        // On the diagonal each strip of columns starts at its own row.
        let strip = if i == j { STRIP } else { BLOCK };
        for column in (0..columns).step_by(strip) {
            let skipped = if i == j { column } else { 0 };
            let size = Size {
                rows: rows - skipped,
                depth,
                width: strip.min(padded(columns - column)),
            };
            let left = Left::columns(&left[skipped..], left_stride);
            let right = (&right[column..], right_stride);
            let to = (&mut to[skipped * to_stride + column..], to_stride);
            match from {
                0 => multiply::<S, _>(size, left, right, to, Replace),
                _ => multiply::<S, _>(size, left, right, to, Add),
            }
        }
    }
    product.finish([top, rows], [start, columns], block);
}

fn padded(width: usize) -> usize {
    width.next_multiple_of(ALIGNMENT)
}

/// Copies rows and columns of a matrix to the beginning of a tile.
fn bring_together(
    from: &Tile,
    [row, rows]: [usize; 2],
    [column, columns]: [usize; 2],
    to: &mut Tile,
) {
    let columns = padded(columns);
    for i in 0..rows {
        let from = &from.row(row + i)[column..column + columns];
        to.row_mut(i)[..columns].copy_from_slice(from);
    }
}

impl<'a> Symmetric<'a> {
    /// Writes a block to its place and to the mirrored one.
    #[inline(always)]
    fn finish(&self, [top, rows]: [usize; 2], [start, columns]: [usize; 2], block: &mut Tile) {
        let diagonal = top == start;
        for i in 0..rows {
            let width = if diagonal { i + 1 } else { columns };
            let row = &mut block.row_mut(i)[..width];
            self.finish_row(row, top + i, start);
            // SAFETY: no other task has this block, nor its mirror.
            let to = unsafe { self.part(top + i, start, width) };
            to.copy_from_slice(row);
        }
        for left in (0..columns).step_by(MIRROR) {
            for upper in (0..rows).step_by(MIRROR) {
                if diagonal && upper + MIRROR <= left {
                    continue;
                }
                for j in left..columns.min(left + MIRROR) {
                    let first = if diagonal { upper.max(j + 1) } else { upper };
                    let last = rows.min(upper + MIRROR);
                    if first >= last {
                        continue;
                    }
                    // SAFETY: as above.
                    let to = unsafe { self.part(start + j, top + first, last - first) };
                    let (from, stride) = (block.values(), block.stride());
                    for (place, i) in (first..last).enumerate() {
                        to[place] = from[i * stride + j];
                    }
                }
            }
        }
    }

    #[inline(always)]
    fn finish_row(&self, values: &mut [f32], row: usize, start: usize) {
        let finish = &self.finish;
        if finish.product != 1.0 {
            for x in values.iter_mut() {
                *x *= finish.product;
            }
        }
        if let Some((factor, other)) = finish.other {
            let other = &other.row(row)[start..];
            for (x, other) in values.iter_mut().zip(other) {
                *x += factor * other;
            }
        }
        if let Some(x) = row
            .checked_sub(start)
            .and_then(|place| values.get_mut(place))
        {
            *x += finish.diagonal;
        }
    }

    /// # Safety
    ///
    /// Nobody else may hold any of it.
    #[inline(always)]
    unsafe fn part(&self, row: usize, column: usize, width: usize) -> &'a mut [f32] {
        let at = row * self.stride + column;
        // SAFETY: the caller's promise.
        unsafe { self.out.part(at..at + width) }
    }
}

/// `out = left right`, where `left` is `[rows, width]` and `right` `[width, width]`.
pub(super) fn multiply_tall(
    threads: Threads,
    left: &Tile,
    right: &Tile,
    [rows, width]: [usize; 2],
    out: &mut Tile,
) {
    let stride = out.stride();
    let (values, _) = out.parts_mut();
    let product = Tall {
        left,
        right,
        rows,
        width,
        out: SharedValues::of_slice(values),
        stride,
    };
    let room = || Tile::zeros(if width > WIDE { DEPTH } else { 0 }, BLOCK);
    threads.for_each(rows.div_ceil(TALL_BLOCK), room, |room, task| {
        tall_block(&product, room, task);
    });
}

struct Tall<'a> {
    left: &'a Tile,
    right: &'a Tile,
    rows: usize,
    width: usize,
    out: SharedValues<'a>,
    stride: usize,
}

#[macerator::with_simd]
fn tall_block<'a, S: Simd>(product: &Tall<'a>, room: &mut Tile, task: usize) {
    let top = task * TALL_BLOCK;
    let rows = TALL_BLOCK.min(product.rows - top);
    // SAFETY: no other task has these rows.
    let out = unsafe {
        product
            .out
            .part(top * product.stride..(top + rows) * product.stride)
    };
    for start in (0..product.width).step_by(BLOCK) {
        let columns = BLOCK.min(product.width - start);
        for from in (0..product.width).step_by(DEPTH) {
            let depth = DEPTH.min(product.width - from);
            let packed = product.width > WIDE;
            if packed {
                bring_together(product.right, [from, depth], [start, columns], room);
            }
            let (right, right_stride) = match packed {
                true => (room.values(), room.stride()),
                false => (
                    &product.right.values()[from * product.right.stride() + start..],
                    product.right.stride(),
                ),
            };
            let size = Size {
                rows,
                depth,
                width: padded(columns),
            };
            let left = &product.left.values()[top * product.left.stride() + from..];
            let left = Left::rows(left, product.left.stride());
            let to = (&mut out[start..], product.stride);
            match from {
                0 => multiply::<S, _>(size, left, (right, right_stride), to, Replace),
                _ => multiply::<S, _>(size, left, (right, right_stride), to, Add),
            }
        }
    }
}
