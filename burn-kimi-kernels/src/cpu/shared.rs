//! One tensor, written by several threads.

use std::marker::PhantomData;
use std::mem::MaybeUninit;
use std::ops::Range;

use burn_flex::FlexTensor;

/// The numbers of a tensor that several threads write, each its own part.
#[derive(Clone, Copy)]
pub struct SharedValues<'a> {
    values: *mut f32,
    length: usize,
    borrow: PhantomData<&'a mut [f32]>,
}

// SAFETY: `part` is the only access, and its caller promises that no number is taken twice at a time.
unsafe impl Send for SharedValues<'_> {}
unsafe impl Sync for SharedValues<'_> {}

impl<'a> SharedValues<'a> {
    /// Copies the tensor first if others hold it too.
    pub fn of(tensor: &'a mut FlexTensor) -> Self {
        Self::of_slice(tensor.storage_mut::<f32>())
    }

    /// The numbers of a slice.
    pub fn of_slice(values: &'a mut [f32]) -> Self {
        Self {
            values: values.as_mut_ptr(),
            length: values.len(),
            borrow: PhantomData,
        }
    }

    /// Numbers that must be written before they are read.
    pub(super) fn of_unwritten(values: &'a mut [MaybeUninit<f32>]) -> Self {
        Self {
            values: values.as_mut_ptr().cast(),
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
    pub unsafe fn part(&self, range: Range<usize>) -> &'a mut [f32] {
        assert!(range.start <= range.end && range.end <= self.length);
        // SAFETY: inside the tensor, by the assertion; not held by another, by the caller's promise.
        unsafe { std::slice::from_raw_parts_mut(self.values.add(range.start), range.len()) }
    }
}
