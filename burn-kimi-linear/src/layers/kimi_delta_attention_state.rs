use burn::tensor::{DType, Device, Tensor};

use crate::kda::state_file::{self, Reader};
use crate::kda::{KdaState, MEMORY_DTYPES, StateBytesError};

/// What a [`KimiDeltaAttention`](super::KimiDeltaAttention) layer remembers of the tokens before: constant in size, whatever their number.
///
/// A value: a clone is a snapshot to rewind to, or a fork to continue apart. Neither copies anything until one of the two moves on.
#[derive(Clone, Debug)]
pub struct KimiDeltaAttentionState {
    /// The memory matrices.
    pub memory: KdaState,
    /// The last inputs of the convolutions of queries, keys and values, `[B, conv_size - 1, channels]` each.
    pub windows: [Tensor<3>; 3],
}

const WINDOWS: [&str; 3] = ["q_window", "k_window", "v_window"];
const WINDOW_DTYPES: &[DType] = &[DType::F32, DType::BF16, DType::F16, DType::F64];

impl KimiDeltaAttentionState {
    /// The state as bytes: safetensors, with format, version and layout in the metadata.
    ///
    /// # Panics
    ///
    /// If the parts are of different batches, or the memory is stored neither in `f32` nor in `f64`, so that no layer would take it.
    pub fn to_bytes(&self) -> Vec<u8> {
        if let Err(error) = self.check_batch() {
            panic!("KimiDeltaAttentionState: {error}");
        }
        let memory = self.memory.clone().into_key_value().into_data();
        let windows = WINDOWS.into_iter().zip(&self.windows);
        let windows = windows.map(|(name, window)| (name, WINDOW_DTYPES, window.to_data()));
        let tensors = std::iter::once(("memory", MEMORY_DTYPES, memory)).chain(windows);
        state_file::write(tensors.collect())
    }

    /// The state that [`to_bytes`](Self::to_bytes) wrote.
    ///
    /// # Errors
    ///
    /// If the bytes are no such file, of another version or layout, a tensor in it is missing, of another rank or dtype or of a size that
    /// cannot be, `device` does not support its dtype, or the tensors are of different batches.
    pub fn from_bytes(bytes: &[u8], device: &Device) -> Result<Self, StateBytesError> {
        let file = Reader::new(bytes)?;
        let memory = file.tensor("memory", MEMORY_DTYPES, device)?;
        let window = |name| file.tensor(name, WINDOW_DTYPES, device);
        let [q, k, v] = WINDOWS;
        let state = Self {
            memory: KdaState::from_key_value(memory),
            windows: [window(q)?, window(k)?, window(v)?],
        };
        state.check_batch()?;
        Ok(state)
    }

    fn check_batch(&self) -> Result<(), StateBytesError> {
        let [expected, ..] = self.memory.dims();
        for (name, window) in WINDOWS.into_iter().zip(&self.windows) {
            let [found, ..] = window.dims();
            if found != expected {
                return Err(StateBytesError::Batch {
                    tensor: name.to_string(),
                    expected,
                    found,
                });
            }
        }
        Ok(())
    }
}
