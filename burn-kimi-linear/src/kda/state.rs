use burn::tensor::{DType, Device, Tensor};

use super::state_file::{self, Reader, StateBytesError};

/// What a memory may be stored as.
pub(crate) const MEMORY_DTYPES: &[DType] = &[DType::F32, DType::F64];

/// The memory of a KDA layer: one `K x V` matrix for every sequence and value head.
///
/// Implementations disagree on whether keys or values come first, and with `K = V` a mix-up goes unnoticed.
/// The order is therefore part of every name here; inside, it is `[B, HV, K, V]`.
///
/// A state is a value: a clone is a snapshot to come back to or a fork to go on from, costs nothing, and is copied only when one of the two
/// moves on. A step that holds the only reference to its state updates it where it is.
///
/// The state is kept in `f32` whatever the dtype of the sequence (in `f64` for `f64` sequences). Operators refuse one in another dtype
/// instead of casting it: a memory in half precision has already lost what it was kept for.
#[derive(Clone, Debug)]
pub struct KdaState {
    key_value: Tensor<4>,
}

impl KdaState {
    /// An empty memory for `batch` sequences and `value_heads` heads, in `f32`. For `f64` sequences, leave the initial state out.
    pub fn zeros([batch, value_heads, key_dim, value_dim]: [usize; 4], device: &Device) -> Self {
        let shape = [batch, value_heads, key_dim, value_dim];
        Self::from_key_value(Tensor::zeros(shape, (device, DType::F32)))
    }

    /// Takes a state stored key-first, `[B, HV, K, V]`.
    pub fn from_key_value(state: Tensor<4>) -> Self {
        Self { key_value: state }
    }

    /// Takes a state stored value-first, `[B, HV, V, K]`, as FLA's layers, vLLM and FlashKDA store it.
    pub fn from_value_key(state: Tensor<4>) -> Self {
        Self::from_key_value(state.swap_dims(2, 3))
    }

    /// The state key-first, `[B, HV, K, V]`.
    pub fn into_key_value(self) -> Tensor<4> {
        self.key_value
    }

    /// The state value-first, `[B, HV, V, K]`.
    pub fn into_value_key(self) -> Tensor<4> {
        self.key_value.swap_dims(2, 3)
    }

    /// `[B, HV, K, V]`.
    pub fn dims(&self) -> [usize; 4] {
        self.key_value.dims()
    }

    /// The same state on another device.
    pub fn to_device(self, device: &Device) -> Self {
        Self::from_key_value(self.key_value.to_device(device))
    }

    /// The state as bytes: safetensors, with format, version and layout in the metadata.
    ///
    /// # Panics
    ///
    /// If the state is stored neither in `f32` nor in `f64`, so that no operator would take it.
    pub fn to_bytes(&self) -> Vec<u8> {
        state_file::write(vec![("memory", MEMORY_DTYPES, self.key_value.to_data())])
    }

    /// The state that [`to_bytes`](Self::to_bytes) wrote.
    ///
    /// # Errors
    ///
    /// If the bytes are no such file, of another version or layout, the tensor in it is missing, of another rank or dtype or of a size
    /// that cannot be, or `device` does not support its dtype.
    pub fn from_bytes(bytes: &[u8], device: &Device) -> Result<Self, StateBytesError> {
        let memory = Reader::new(bytes)?.tensor("memory", MEMORY_DTYPES, device)?;
        Ok(Self::from_key_value(memory))
    }
}
