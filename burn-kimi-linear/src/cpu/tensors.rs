//! Flex's tensors as kernels take and return them.

use burn::backend::Flex;
use burn::backend::ops::FloatTensorOps;
use burn::tensor::{DType, FloatDType, Shape};
use burn_flex::FlexTensor;

/// As contiguous `f32` that fills its storage.
pub(crate) fn contiguous(x: FlexTensor) -> FlexTensor {
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

pub(crate) fn cast(x: FlexTensor, dtype: DType) -> FlexTensor {
    match dtype {
        DType::F32 => x,
        _ => Flex::float_cast(x, dtype.into()),
    }
}

pub(crate) fn zeros(shape: Shape) -> FlexTensor {
    FlexTensor::zeros(shape, DType::F32)
}

/// The numbers of a tensor that [`contiguous`] made.
pub(crate) fn values(x: &FlexTensor) -> &[f32] {
    x.as_slice()
        .expect("the kernels' tensors are contiguous f32")
}

/// The sum of tensors of `shape` that lie behind each other, in their order.
pub(crate) fn sum_of_parts(parts: &[f32], shape: Shape) -> FlexTensor {
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
