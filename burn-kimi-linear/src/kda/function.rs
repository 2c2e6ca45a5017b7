use burn::tensor::Tensor;

use super::input::KdaInput;
use super::{KdaState, chunked, reference};

/// The chunk that [`kda`] works in when no other is asked for.
///
/// The work inside a chunk grows with its square, the steps between chunks with their number: the README has the times of 16, 32
/// and 64.
const DEFAULT_CHUNK_SIZE: usize = 16;

/// Settings of the [`kda`] operator.
#[derive(Clone, Debug, Default)]
pub struct KdaOptions {
    scale: Option<f64>,
    chunk_size: Option<usize>,
}

impl KdaOptions {
    /// The published settings: scale `K^-1/2`.
    pub fn new() -> Self {
        Self::default()
    }

    /// Multiplies the queries by `scale` instead of `K^-1/2`.
    pub fn with_scale(mut self, scale: f64) -> Self {
        self.scale = Some(scale);
        self
    }

    /// Works in chunks of `chunk_size` tokens, a power of two from 2. The result does not depend on it beyond rounding.
    ///
    /// # Panics
    ///
    /// If `chunk_size` is not a power of two, or below 2.
    pub fn with_chunk_size(mut self, chunk_size: usize) -> Self {
        assert!(
            chunk_size >= 2 && chunk_size.is_power_of_two(),
            "KdaOptions: chunk_size must be a power of two and at least 2, got {chunk_size}"
        );
        self.chunk_size = Some(chunk_size);
        self
    }

    pub(super) fn scale_for(&self, key_dim: usize) -> f64 {
        self.scale.unwrap_or((key_dim as f64).powf(-0.5))
    }
}

/// Kimi Delta Attention over a batch of sequences.
///
/// Shapes and meaning are those of [the module](super). The sequence may have any length: with `T = 0` the output
/// is empty and the state comes back as it went in (an empty batch likewise), with `T = 1` this is a decode step. A missing `initial_state`
/// is an empty memory. Both results are differentiable with respect to every input and the initial state.
///
/// Inputs may be stored in half precision; decay, accumulation and state are `f32` (`f64` if `v` is), and `o` has
/// the dtype of `v`.
///
/// # Panics
///
/// If a tensor has another shape than the others imply, `HV` is not a multiple of `H`, or a width is 0.
pub fn kda(
    q: Tensor<4>,
    k: Tensor<4>,
    v: Tensor<4>,
    g: Tensor<4>,
    beta: Tensor<3>,
    initial_state: Option<KdaState>,
    options: &KdaOptions,
) -> (Tensor<4>, KdaState) {
    let input = KdaInput::new(q, k, v, g, beta, initial_state, options);
    let [_, tokens, ..] = input.v.dims();
    let dtype = input.storage_dtype;

    let (o, state) = if input.is_empty() {
        (input.v, input.state)
    } else if tokens == 1 {
        reference::recurrent(input)
    } else {
        let chunk_size = options.chunk_size.unwrap_or(DEFAULT_CHUNK_SIZE);
        chunked::chunked(input, chunk_size.min(tokens.next_power_of_two()))
    };
    (o.cast(dtype), KdaState::from_key_value(state))
}
