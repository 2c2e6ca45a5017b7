//! Flex's tensors as kernels take and return them.

use std::mem::{ManuallyDrop, MaybeUninit};

use burn::backend::Flex;
use burn::backend::ops::FloatTensorOps;
use burn::tensor::{Bytes, DType, FloatDType, Shape};
use burn_flex::{FlexTensor, Layout};

use super::shared::SharedValues;

/// As contiguous `f32` that fills its storage.
pub fn contiguous(x: FlexTensor) -> FlexTensor {
    let x = match x.dtype() {
        DType::F32 => x,
        _ => Flex::float_cast(x, FloatDType::F32),
    };
    let whole = x.layout().start_offset() == 0
        && x.is_contiguous()
        && x.bytes().len() == x.layout().num_elements() * size_of::<f32>();
    match whole {
        true => x,
        false => x.to_contiguous(),
    }
}

/// In this dtype.
pub fn cast(x: FlexTensor, dtype: DType) -> FlexTensor {
    match dtype {
        DType::F32 => x,
        _ => Flex::float_cast(x, dtype.into()),
    }
}

/// `f32`, all 0.
pub fn zeros(shape: Shape) -> FlexTensor {
    FlexTensor::zeros(shape, DType::F32)
}

/// The numbers of a tensor that [`contiguous`] made.
pub fn values(x: &FlexTensor) -> &[f32] {
    x.as_slice()
        .expect("the kernels' tensors are contiguous f32")
}

/// The sum of tensors of `shape` that lie behind each other, in their order.
pub fn sum_of_parts(parts: &[f32], shape: Shape) -> FlexTensor {
    let mut sum = zeros(shape);
    let total = sum.storage_mut::<f32>();
    for part in parts.chunks_exact(total.len()) {
        total
            .iter_mut()
            .zip(part)
            .for_each(|(total, part)| *total += part);
    }
    sum
}

/// A result that a kernel writes as a whole: memory that nobody wrote zeros to, which for large tensors is a second pass.
pub struct Unwritten {
    values: Vec<MaybeUninit<f32>>,
    shape: Shape,
}

impl Unwritten {
    /// Room for the numbers of a tensor of this shape.
    pub fn new(shape: Shape) -> Self {
        let length = shape.num_elements();
        let mut values = Vec::with_capacity(length);
        // SAFETY: the capacity is there, and these values need not be anything.
        unsafe { values.set_len(length) };
        Self { values, shape }
    }

    /// To write to. Nothing may be read from it that was not written before.
    pub fn shared(&mut self) -> SharedValues<'_> {
        SharedValues::of_unwritten(&mut self.values)
    }

    /// The tensor.
    ///
    /// # Safety
    ///
    /// Every number must have been written.
    pub unsafe fn written(self) -> FlexTensor {
        let mut values = ManuallyDrop::new(self.values);
        // SAFETY: the parts of a vector that is not used again, with values that are written, by the caller's promise.
        let values = unsafe {
            Vec::from_raw_parts(
                values.as_mut_ptr().cast::<f32>(),
                values.len(),
                values.capacity(),
            )
        };
        let layout = Layout::contiguous(self.shape);
        FlexTensor::new(Bytes::from_elems(values), layout, DType::F32)
    }
}
