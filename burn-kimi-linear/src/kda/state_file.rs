//! A state as bytes: the safetensors format, with what the tensors mean in its metadata.

use std::collections::HashMap;

use burn::tensor::{DType, Device, Tensor, TensorData};
use safetensors::tensor::{Dtype, SafeTensors, TensorView};

/// What the bytes are called in their metadata.
const FORMAT: &str = "burn-kimi-linear state";
const VERSION: &str = "1";
/// The axes of a memory in the file.
const LAYOUT: &str = "batch, head, key, value";

/// Why bytes are not the state that was asked for.
#[derive(Debug, thiserror::Error)]
pub enum StateBytesError {
    /// Not safetensors, or cut off.
    #[error("the bytes are no safetensors file: {0}")]
    Unreadable(#[from] safetensors::SafeTensorError),
    /// Safetensors, but not of a state.
    #[error("`{field}` in the metadata should be {expected:?}, but is {found:?}")]
    Metadata {
        /// The entry.
        field: &'static str,
        /// What it must be.
        expected: &'static str,
        /// What it is; nothing if it is missing.
        found: Option<String>,
    },
    /// A tensor that the state consists of is not there.
    #[error("the tensor `{tensor}` is missing")]
    Missing {
        /// Its name.
        tensor: String,
    },
    /// A tensor has another number of axes.
    #[error("the tensor `{tensor}` should have {expected} axes, but its shape is {found:?}")]
    Rank {
        /// Its name.
        tensor: String,
        /// The number of axes.
        expected: usize,
        /// The shape in the file.
        found: Vec<usize>,
    },
    /// A tensor is stored in a dtype that a state has not.
    #[error("the tensor `{tensor}` is stored as {found}, which its part of a state never is")]
    Dtype {
        /// Its name.
        tensor: String,
        /// The dtype in the file.
        found: String,
    },
    /// A tensor is stored in a dtype that the device does not have.
    #[error("the tensor `{tensor}` is stored as {dtype:?}, which {device} does not support")]
    Device {
        /// Its name.
        tensor: String,
        /// The dtype in the file.
        dtype: DType,
        /// The device.
        device: String,
    },
    /// A tensor claims to be larger than any memory, with an axis of 0 to hide it.
    #[error("the tensor `{tensor}` has the shape {found:?}, which no memory could hold")]
    Size {
        /// Its name.
        tensor: String,
        /// The shape in the file.
        found: Vec<usize>,
    },
    /// A tensor belongs to another number of sequences than the memory.
    #[error("the tensor `{tensor}` is of {found} sequences, but `memory` is of {expected}")]
    Batch {
        /// Its name.
        tensor: String,
        /// The number of sequences of the memory.
        expected: usize,
        /// Its own.
        found: usize,
    },
}

/// Named tensors as bytes, each in one of the dtypes that [`Reader::tensor`] is given for it.
///
/// # Panics
///
/// If a tensor is stored in another dtype.
pub(crate) fn write(tensors: Vec<(&str, &[DType], TensorData)>) -> Vec<u8> {
    let views = tensors.iter().map(|(name, dtypes, data)| {
        let dtype = file_dtype(data.dtype()).filter(|dtype| one_of(dtypes, *dtype).is_some());
        let dtype = dtype.unwrap_or_else(|| {
            panic!(
                "the tensor `{name}` is stored as {:?}, which its part of a state never is",
                data.dtype()
            )
        });
        let view = TensorView::new(dtype, data.shape().to_vec(), data.as_bytes());
        (*name, view.expect("a tensor's bytes have its size"))
    });
    let metadata = [("format", FORMAT), ("version", VERSION), ("layout", LAYOUT)];
    let metadata = metadata.map(|(field, value)| (field.to_string(), value.to_string()));
    safetensors::serialize(views, Some(HashMap::from(metadata)))
        .expect("views of one's own tensors are consistent")
}

/// Bytes that were written by [`write`], checked as a whole.
pub(crate) struct Reader<'a> {
    tensors: SafeTensors<'a>,
}

impl<'a> Reader<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Result<Self, StateBytesError> {
        let (_, metadata) = SafeTensors::read_metadata(bytes)?;
        let entries = metadata.metadata().clone().unwrap_or_default();
        for (field, expected) in [("format", FORMAT), ("version", VERSION), ("layout", LAYOUT)] {
            let found = entries.get(field);
            if found.is_none_or(|found| found != expected) {
                let found = found.cloned();
                return Err(StateBytesError::Metadata {
                    field,
                    expected,
                    found,
                });
            }
        }
        let tensors = SafeTensors::deserialize(bytes)?;
        Ok(Self { tensors })
    }

    /// A tensor by its name, in one of the given dtypes. Nothing is allocated for a shape that the bytes do not fill.
    pub(crate) fn tensor<const D: usize>(
        &self,
        name: &str,
        dtypes: &[DType],
        device: &Device,
    ) -> Result<Tensor<D>, StateBytesError> {
        let tensor = || name.to_string();
        let view = self.tensors.tensor(name);
        let view = view.map_err(|_| StateBytesError::Missing { tensor: tensor() })?;
        let shape = view.shape().to_vec();
        if shape.len() != D {
            return Err(StateBytesError::Rank {
                tensor: tensor(),
                expected: D,
                found: shape,
            });
        }
        let Some(dtype) = one_of(dtypes, view.dtype()) else {
            let found = format!("{:?}", view.dtype());
            return Err(StateBytesError::Dtype {
                tensor: tensor(),
                found,
            });
        };
        if !is_countable(&shape, dtype) {
            return Err(StateBytesError::Size {
                tensor: tensor(),
                found: shape,
            });
        }
        if !device.supports_dtype(dtype) {
            return Err(StateBytesError::Device {
                tensor: tensor(),
                dtype,
                device: format!("{device:?}"),
            });
        }
        let data = TensorData::from_bytes_vec(view.data().to_vec(), shape, dtype);
        Ok(Tensor::from_data(data, (device, dtype)))
    }
}

/// The one of `dtypes` that is stored as `found`.
fn one_of(dtypes: &[DType], found: Dtype) -> Option<DType> {
    let mut dtypes = dtypes.iter().copied();
    dtypes.find(|dtype| file_dtype(*dtype) == Some(found))
}

/// Whether the strides of a shape can be counted in bytes. The format only sees to it that the product of the axes can, which is 0 with a 0
/// before factors that overflow.
fn is_countable(shape: &[usize], dtype: DType) -> bool {
    let mut axes = shape.iter().copied().filter(|axis| *axis > 0);
    let bytes = axes.try_fold(dtype.size(), usize::checked_mul);
    bytes.is_some_and(|bytes| bytes <= isize::MAX as usize)
}

fn file_dtype(dtype: DType) -> Option<Dtype> {
    match dtype {
        DType::F64 => Some(Dtype::F64),
        DType::F32 | DType::Flex32 => Some(Dtype::F32),
        DType::F16 => Some(Dtype::F16),
        DType::BF16 => Some(Dtype::BF16),
        _ => None,
    }
}
