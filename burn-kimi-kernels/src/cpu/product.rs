//! Small matrix products: a handful of rows, a depth and a width of at most some hundred.
//!
//! Blocks of six rows by two registers fill the register
//! file; the left side is broadcast number by number, so it may lie in memory either way, and nothing is packed or copied.
//! Each number of the result is one chain of additions over the depth, in order: its bits do not depend on how rows or columns are
//! grouped, nor on what the other rows hold.

use macerator::{Simd, vload_unaligned, vstore_unaligned};

use super::lanes::{Lanes, lanes, splat};

/// The left side of a product.
#[derive(Clone, Copy)]
pub struct Left<'a> {
    values: &'a [f32],
    row_step: usize,
    depth_step: usize,
}

impl<'a> Left<'a> {
    /// As it lies: row `m` of the product from row `m` of the tile.
    #[inline(always)]
    pub fn rows(values: &'a [f32], stride: usize) -> Self {
        Self {
            values,
            row_step: stride,
            depth_step: 1,
        }
    }

    /// Transposed: row `m` of the product from column `m` of the tile.
    #[inline(always)]
    pub fn columns(values: &'a [f32], stride: usize) -> Self {
        Self {
            values,
            row_step: 1,
            depth_step: stride,
        }
    }
}

/// How a product meets what is there already.
pub trait Combine: Copy {
    /// The new values of a register of row `row`.
    fn combine<S: Simd>(self, row: usize, there: Lanes<S>, product: Lanes<S>) -> Lanes<S>;
}

/// The product replaces it.
#[derive(Clone, Copy)]
pub struct Replace;

/// The product is taken from it.
#[derive(Clone, Copy)]
pub struct Subtract;

/// The product is added to it.
#[derive(Clone, Copy)]
pub struct Add;

/// Every row of it is scaled by a number of its own before the product is added.
#[derive(Clone, Copy)]
pub struct ScaleAndAdd<'a>(pub &'a [f32]);

impl Combine for Replace {
    #[inline(always)]
    fn combine<S: Simd>(self, _: usize, _: Lanes<S>, product: Lanes<S>) -> Lanes<S> {
        product
    }
}

impl Combine for Subtract {
    #[inline(always)]
    fn combine<S: Simd>(self, _: usize, there: Lanes<S>, product: Lanes<S>) -> Lanes<S> {
        there - product
    }
}

impl Combine for Add {
    #[inline(always)]
    fn combine<S: Simd>(self, _: usize, there: Lanes<S>, product: Lanes<S>) -> Lanes<S> {
        there + product
    }
}

impl Combine for ScaleAndAdd<'_> {
    #[inline(always)]
    fn combine<S: Simd>(self, row: usize, there: Lanes<S>, product: Lanes<S>) -> Lanes<S> {
        there.mul_add(splat(self.0[row]), product)
    }
}

/// The sizes of a product: `rows x depth` times `depth x width`. The width is a multiple of a register's.
#[derive(Clone, Copy)]
pub struct Size {
    /// Rows of the left side and of the result.
    pub rows: usize,
    /// Columns of the left side, rows of the right.
    pub depth: usize,
    /// Columns of the right side and of the result.
    pub width: usize,
}

/// `out = combine(out, left right)`. `right` and `out` are rows of the given strides.
#[inline(always)]
pub fn multiply<S: Simd, C: Combine>(
    size: Size,
    left: Left,
    (right, right_stride): (&[f32], usize),
    (out, out_stride): (&mut [f32], usize),
    combine: C,
) {
    let Size { rows, depth, width } = size;
    if rows == 0 || width == 0 {
        return;
    }
    let last = |count: usize, step: usize| count.saturating_sub(1) * step;
    // Everything that `block` reads or writes lies below these.
    assert!(width.is_multiple_of(lanes::<S>()));
    assert!(
        depth == 0 || last(rows, left.row_step) + last(depth, left.depth_step) < left.values.len()
    );
    assert!(depth == 0 || last(depth, right_stride) + width <= right.len());
    assert!(last(rows, out_stride) + width <= out.len());

    let operands = Operands {
        left,
        right,
        right_stride,
        out_stride,
        depth,
    };
    let wide = 2 * lanes::<S>();
    let mut column = 0;
    while column + wide <= width {
        operands.column::<S, C, 2>(rows, column, out, combine);
        column += wide;
    }
    if column < width {
        operands.column::<S, C, 1>(rows, column, out, combine);
    }
}

struct Operands<'a> {
    left: Left<'a>,
    right: &'a [f32],
    right_stride: usize,
    out_stride: usize,
    depth: usize,
}

impl Operands<'_> {
    #[inline(always)]
    fn column<S: Simd, C: Combine, const WIDE: usize>(
        &self,
        rows: usize,
        column: usize,
        out: &mut [f32],
        combine: C,
    ) {
        let mut row = 0;
        // SAFETY, for every block: `multiply` has checked that all of `rows`, `depth` and the columns up to the width lie inside.
        unsafe {
            while row + 6 <= rows {
                self.block::<S, C, 6, WIDE>(row, column, out, combine);
                row += 6;
            }
            if row + 4 <= rows {
                self.block::<S, C, 4, WIDE>(row, column, out, combine);
                row += 4;
            }
            if row + 2 <= rows {
                self.block::<S, C, 2, WIDE>(row, column, out, combine);
                row += 2;
            }
            if row < rows {
                self.block::<S, C, 1, WIDE>(row, column, out, combine);
            }
        }
    }

    /// `HIGH` rows by `WIDE` registers of the result.
    ///
    /// # Safety
    ///
    /// The block must lie inside all three matrices.
    #[inline(always)]
    unsafe fn block<S: Simd, C: Combine, const HIGH: usize, const WIDE: usize>(
        &self,
        row: usize,
        column: usize,
        out: &mut [f32],
        combine: C,
    ) {
        let lanes = lanes::<S>();
        let mut sums = [[splat::<S>(0.0); WIDE]; HIGH];
        // SAFETY: the caller's promise.
        unsafe {
            let mut left = self.left.values.as_ptr().add(row * self.left.row_step);
            let mut right = self.right.as_ptr().add(column);
            for _ in 0..self.depth {
                let mut columns = [splat::<S>(0.0); WIDE];
                for (wide, register) in columns.iter_mut().enumerate() {
                    *register = vload_unaligned(right.add(wide * lanes));
                }
                for (high, sums) in sums.iter_mut().enumerate() {
                    let factor = splat::<S>(*left.add(high * self.left.row_step));
                    for (sum, column) in sums.iter_mut().zip(columns) {
                        *sum = factor.mul_add(column, *sum);
                    }
                }
                left = left.wrapping_add(self.left.depth_step);
                right = right.wrapping_add(self.right_stride);
            }
            for (high, sums) in sums.into_iter().enumerate() {
                for (wide, sum) in sums.into_iter().enumerate() {
                    let place = (row + high) * self.out_stride + column + wide * lanes;
                    let place = out.as_mut_ptr().add(place);
                    let there = vload_unaligned(place);
                    vstore_unaligned(place, combine.combine(row + high, there, sum));
                }
            }
        }
    }
}
