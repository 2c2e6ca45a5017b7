//! The tensors as a kernel sees them: rows of one token and head.

use std::marker::PhantomData;
use std::ops::Range;

use burn_flex::FlexTensor;

/// A contiguous tensor `[B, T, heads, width]`, or `[B, T, heads]` with a width of 1.
#[derive(Clone, Copy)]
pub(super) struct Rows<'a> {
    values: &'a [f32],
    shape: Shape,
}

/// The same to write, by several threads at once.
#[derive(Clone, Copy)]
pub(super) struct SharedRows<'a> {
    values: *mut f32,
    length: usize,
    shape: Shape,
    borrow: PhantomData<&'a mut [f32]>,
}

// SAFETY: `part` is the only access, and its caller promises that no number is taken twice at a time.
unsafe impl Send for SharedRows<'_> {}
unsafe impl Sync for SharedRows<'_> {}

#[derive(Clone, Copy)]
struct Shape {
    tokens: usize,
    heads: usize,
    width: usize,
}

impl Shape {
    fn of(tensor: &FlexTensor) -> Self {
        let axes = tensor.layout().shape();
        Self {
            tokens: axes[1],
            heads: axes[2],
            width: if axes.num_dims() == 4 { axes[3] } else { 1 },
        }
    }

    #[inline(always)]
    fn at(&self, [batch, token, head]: [usize; 3]) -> usize {
        ((batch * self.tokens + token) * self.heads + head) * self.width
    }
}

impl<'a> Rows<'a> {
    pub(super) fn of(tensor: &'a FlexTensor) -> Self {
        let values = tensor.as_slice::<f32>();
        Self {
            values: values.expect("the kernels' inputs are contiguous f32"),
            shape: Shape::of(tensor),
        }
    }

    pub(super) fn heads(&self) -> usize {
        self.shape.heads
    }

    pub(super) fn width(&self) -> usize {
        self.shape.width
    }

    /// One row, by batch row, token and head.
    #[inline(always)]
    pub(super) fn row(&self, place: [usize; 3]) -> &'a [f32] {
        &self.values[self.shape.at(place)..][..self.shape.width]
    }
}

impl<'a> SharedRows<'a> {
    pub(super) fn of(tensor: &'a mut FlexTensor) -> Self {
        let shape = Shape::of(tensor);
        let values = tensor.storage_mut::<f32>();
        Self {
            values: values.as_mut_ptr(),
            length: values.len(),
            shape,
            borrow: PhantomData,
        }
    }

    /// One row, by batch row, token and head.
    ///
    /// # Safety
    ///
    /// Nobody else may hold any of this row.
    #[inline(always)]
    pub(super) unsafe fn row(&self, place: [usize; 3]) -> &'a mut [f32] {
        // SAFETY: the caller's promise.
        unsafe { self.part(place, 0..self.shape.width) }
    }

    /// Some columns of one row.
    ///
    /// # Safety
    ///
    /// Nobody else may hold any of these columns of this row.
    #[inline(always)]
    pub(super) unsafe fn part(&self, place: [usize; 3], columns: Range<usize>) -> &'a mut [f32] {
        let at = self.shape.at(place) + columns.start;
        assert!(columns.end <= self.shape.width && at + columns.len() <= self.length);
        // SAFETY: inside the tensor, by the assertion; not held by another, by the caller's promise.
        unsafe { std::slice::from_raw_parts_mut(self.values.add(at), columns.len()) }
    }
}
