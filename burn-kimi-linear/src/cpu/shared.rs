use std::marker::PhantomData;
use std::ops::Range;

use burn_flex::FlexTensor;

/// The numbers of a tensor that several threads write, each its own part.
#[derive(Clone, Copy)]
pub(crate) struct SharedValues<'a> {
    values: *mut f32,
    length: usize,
    borrow: PhantomData<&'a mut [f32]>,
}

// SAFETY: `part` is the only access, and its caller promises that no number is taken twice at a time.
unsafe impl Send for SharedValues<'_> {}
unsafe impl Sync for SharedValues<'_> {}

impl<'a> SharedValues<'a> {
    /// Copies the tensor first if others hold it too.
    pub(crate) fn of(tensor: &'a mut FlexTensor) -> Self {
        Self::of_slice(tensor.storage_mut::<f32>())
    }

    pub(crate) fn of_slice(values: &'a mut [f32]) -> Self {
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
    pub(crate) unsafe fn part(&self, range: Range<usize>) -> &'a mut [f32] {
        assert!(range.start <= range.end && range.end <= self.length);
        // SAFETY: inside the tensor, by the assertion; not held by another, by the caller's promise.
        unsafe { std::slice::from_raw_parts_mut(self.values.add(range.start), range.len()) }
    }
}
