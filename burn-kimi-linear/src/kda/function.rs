use burn::tensor::{DType, Tensor, assert_shape};

use super::{KdaState, chunked, reference};

/// The chunk that [`kda`] works in when no other is asked for.
///
/// Measured on Flex with `cargo bench -p burn-kimi-linear`: of 16, 32 and 64 the smallest is the fastest, because
/// the work inside a chunk grows with its square and the steps between chunks are cheap.
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
    let [batch, tokens, _, _] = input.v.dims();
    let dtype = input.storage_dtype;

    let (o, state) = match tokens {
        _ if batch == 0 || tokens == 0 => (input.v, input.state),
        1 => reference::recurrent(input),
        _ => {
            let chunk_size = options.chunk_size.unwrap_or(DEFAULT_CHUNK_SIZE);
            chunked::chunked(input, chunk_size)
        }
    };
    (o.cast(dtype), KdaState::from_key_value(state))
}

/// The inputs of the operator once they are checked: one dtype, one head count, queries scaled.
pub(super) struct KdaInput {
    /// `[B, T, HV, K]`, times the scale.
    pub q: Tensor<4>,
    /// `[B, T, HV, K]`.
    pub k: Tensor<4>,
    /// `[B, T, HV, V]`.
    pub v: Tensor<4>,
    /// `[B, T, HV, K]`.
    pub g: Tensor<4>,
    /// `[B, T, HV]`.
    pub beta: Tensor<3>,
    /// `[B, HV, K, V]`.
    pub state: Tensor<4>,
    storage_dtype: DType,
}

impl KdaInput {
    pub(super) fn new(
        q: Tensor<4>,
        k: Tensor<4>,
        v: Tensor<4>,
        g: Tensor<4>,
        beta: Tensor<3>,
        initial_state: Option<KdaState>,
        options: &KdaOptions,
    ) -> Self {
        let [batch, tokens, heads, key_dim] = q.dims();
        let [_, _, value_heads, value_dim] = v.dims();
        assert_shape!(k, [batch, tokens, heads, key_dim]);
        assert_shape!(v, [batch, tokens, value_heads, value_dim]);
        assert!(
            heads > 0 && value_heads > 0 && value_heads.is_multiple_of(heads),
            "kda: v has {value_heads} heads, which is not a multiple of the {heads} heads of q and k"
        );
        assert!(
            key_dim > 0 && value_dim > 0,
            "kda: heads must have a width, got K = {key_dim} and V = {value_dim}"
        );
        assert_shape!(g, [batch, tokens, value_heads, key_dim]);
        assert_shape!(beta, [batch, tokens, value_heads]);

        let storage_dtype = v.dtype();
        let dtype = compute_dtype(storage_dtype);
        let state = match initial_state {
            Some(state) => {
                let initial_state = state.into_key_value();
                assert_shape!(initial_state, [batch, value_heads, key_dim, value_dim]);
                initial_state.cast(dtype)
            }
            None => Tensor::zeros(
                [batch, value_heads, key_dim, value_dim],
                (&v.device(), dtype),
            ),
        };
        let group = value_heads / heads;
        Self {
            q: repeat_heads(q.cast(dtype) * options.scale_for(key_dim), group),
            k: repeat_heads(k.cast(dtype), group),
            v: v.cast(dtype),
            g: g.cast(dtype),
            beta: beta.cast(dtype),
            state,
            storage_dtype,
        }
    }
}

/// Half precision loses the running sum of the decay and the state; only `f64` may stay what it is.
fn compute_dtype(storage: DType) -> DType {
    match storage {
        DType::F64 => DType::F64,
        _ => DType::F32,
    }
}

/// Each head `group` times in a row: `[B, T, H, K]` to `[B, T, H * group, K]`. Without tokens nothing reads the result, and Burn
/// expands no empty tensor.
fn repeat_heads(x: Tensor<4>, group: usize) -> Tensor<4> {
    let [batch, tokens, heads, dim] = x.dims();
    if group == 1 || batch == 0 || tokens == 0 {
        return x;
    }
    x.reshape([batch, tokens, heads, 1, dim])
        .expand([batch, tokens, heads, group, dim])
        .reshape([batch, tokens, heads * group, dim])
}
