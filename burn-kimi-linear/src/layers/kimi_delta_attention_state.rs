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
const WINDOW_DTYPES: [DType; 4] = [DType::F32, DType::BF16, DType::F16, DType::F64];

impl KimiDeltaAttentionState {
    /// The state as bytes: safetensors, with format, version and layout in the metadata.
    pub fn to_bytes(&self) -> Vec<u8> {
        let memory = self.memory.clone().into_key_value().into_data();
        let windows = WINDOWS.into_iter().zip(&self.windows);
        let windows = windows.map(|(name, window)| (name, window.to_data()));
        let tensors = std::iter::once(("memory", memory)).chain(windows);
        state_file::write(tensors.collect())
    }

    /// The state that [`to_bytes`](Self::to_bytes) wrote.
    ///
    /// # Errors
    ///
    /// If the bytes are no such file, of another version or layout, or a tensor in it is missing or of another rank or dtype.
    pub fn from_bytes(bytes: &[u8], device: &Device) -> Result<Self, StateBytesError> {
        let file = Reader::new(bytes)?;
        let memory = file.tensor("memory", &MEMORY_DTYPES, device)?;
        let window = |name| file.tensor(name, &WINDOW_DTYPES, device);
        let [q, k, v] = WINDOWS;
        Ok(Self {
            memory: KdaState::from_key_value(memory),
            windows: [window(q)?, window(k)?, window(v)?],
        })
    }
}
