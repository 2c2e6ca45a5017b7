use burn::tensor::{DType, Device, Tensor};

/// The memory of a KDA layer: one `K x V` matrix for every sequence and value head.
///
/// Implementations disagree on whether keys or values come first, and with `K = V` a mix-up goes unnoticed.
/// The order is therefore part of every name here; inside, it is `[B, HV, K, V]`.
///
/// The state is kept in `f32` whatever the dtype of the sequence (in `f64` for `f64` sequences).
#[derive(Clone, Debug)]
pub struct KdaState {
    key_value: Tensor<4>,
}

impl KdaState {
    /// An empty memory for `batch` sequences and `value_heads` heads.
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
}
