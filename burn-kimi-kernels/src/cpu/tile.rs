//! Matrices inside a kernel.

use super::lanes::ALIGNMENT;

/// A small matrix of padded rows, for the inside of a kernel.
///
/// The distance between rows is an odd number of cache lines: with a power of two, the rows of a head of width 128 would compete for
/// an eighth of the cache. What lies between a row's end and the next row stays what it was made as, 0.
pub struct Tile {
    lines: Vec<Line>,
    stride: usize,
}

/// One cache line, which is what its alignment is for.
#[derive(Clone, Copy)]
#[repr(C, align(64))]
struct Line([f32; ALIGNMENT]);

impl Tile {
    /// All 0.
    pub fn zeros(rows: usize, width: usize) -> Self {
        let lines = width.div_ceil(ALIGNMENT).max(1) | 1;
        Self {
            lines: vec![Line([0.0; ALIGNMENT]); rows * lines],
            stride: lines * ALIGNMENT,
        }
    }

    /// How many rows there are.
    #[inline(always)]
    pub fn rows(&self) -> usize {
        self.lines.len() * ALIGNMENT / self.stride
    }

    /// The distance between rows, and so the length of one as [`row`](Self::row) gives it.
    #[inline(always)]
    pub fn stride(&self) -> usize {
        self.stride
    }

    /// All numbers, padding included.
    #[inline(always)]
    pub fn values(&self) -> &[f32] {
        let (data, length) = (self.lines.as_ptr(), self.lines.len() * ALIGNMENT);
        // SAFETY: a line is `ALIGNMENT` numbers without a gap, as `repr(C)` has it.
        unsafe { std::slice::from_raw_parts(data.cast(), length) }
    }

    /// The same, to write.
    #[inline(always)]
    pub fn values_mut(&mut self) -> &mut [f32] {
        let (data, length) = (self.lines.as_mut_ptr(), self.lines.len() * ALIGNMENT);
        // SAFETY: as in `values`, and the borrow is exclusive.
        unsafe { std::slice::from_raw_parts_mut(data.cast(), length) }
    }

    /// One row, padding included.
    #[inline(always)]
    pub fn row(&self, row: usize) -> &[f32] {
        &self.values()[row * self.stride..][..self.stride]
    }

    /// The same, to write.
    #[inline(always)]
    pub fn row_mut(&mut self, row: usize) -> &mut [f32] {
        let stride = self.stride;
        &mut self.values_mut()[row * stride..][..stride]
    }

    /// All numbers to write, and the distance between rows.
    #[inline(always)]
    pub fn parts_mut(&mut self) -> (&mut [f32], usize) {
        let stride = self.stride;
        (self.values_mut(), stride)
    }

    /// Copies `count` rows of a tile of the same width, from its row `from` on, to `to` and behind.
    pub fn copy_rows_from(&mut self, to: usize, tile: &Tile, from: usize, count: usize) {
        let stride = self.stride;
        assert!(stride == tile.stride, "tiles of one width");
        let source = &tile.values()[from * stride..][..count * stride];
        self.values_mut()[to * stride..][..count * stride].copy_from_slice(source);
    }

    /// The rows before `row`, and `row` itself to write.
    #[inline(always)]
    pub fn split_before(&mut self, row: usize) -> (&[f32], &mut [f32]) {
        let stride = self.stride;
        let (before, rest) = self.values_mut().split_at_mut(row * stride);
        (before, &mut rest[..stride])
    }
}
