use std::marker::PhantomData;
use std::ops::Range;

use burn_flex::FlexTensor;

use super::prepare::fill;
use super::tile::Tile;

/// The pool of states, `[S, HV, K, V]`, that several threads read and write, each its own part.
#[derive(Clone, Copy)]
pub(super) struct SharedStates<'a> {
    values: *mut f32,
    length: usize,
    borrow: PhantomData<&'a mut [f32]>,
}

// SAFETY: `part` is the only access, and its caller promises that no number is taken twice at a time.
unsafe impl Send for SharedStates<'_> {}
unsafe impl Sync for SharedStates<'_> {}

impl<'a> SharedStates<'a> {
    /// Copies the tensor first if others hold it too.
    pub(super) fn of(tensor: &'a mut FlexTensor) -> Self {
        let values = tensor.storage_mut::<f32>();
        Self {
            values: values.as_mut_ptr(),
            length: values.len(),
            borrow: PhantomData,
        }
    }

    /// One run of numbers.
    ///
    /// # Safety
    ///
    /// Nobody else may hold any of them.
    #[inline(always)]
    pub(super) unsafe fn part(&self, range: Range<usize>) -> &'a mut [f32] {
        assert!(range.start <= range.end && range.end <= self.length);
        // SAFETY: inside the tensor, by the assertion; not held by another, by the caller's promise.
        unsafe { std::slice::from_raw_parts_mut(self.values.add(range.start), range.len()) }
    }
}

/// Copies rows of `width` numbers into the tile's rows from `first` on; what is behind them in a row becomes 0.
pub(super) fn fill_rows(tile: &mut Tile, first: usize, rows: &[f32], width: usize) {
    for (row, from) in rows.chunks_exact(width).enumerate() {
        fill(tile.row_mut(first + row), from);
    }
}

/// Copies the tile's rows out again.
pub(super) fn copy_rows(tile: &Tile, rows: &mut [f32], width: usize) {
    for (row, to) in rows.chunks_exact_mut(width).enumerate() {
        to.copy_from_slice(&tile.row(row)[..width]);
    }
}
