use burn::tensor::{DType, Tensor, assert_shape};

use super::{KdaOptions, KdaState};
use crate::precision::compute_dtype;

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
    /// The dtype of the caller's values, which the output gets.
    pub storage_dtype: DType,
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

    /// Whether there is no token to work on.
    pub(super) fn is_empty(&self) -> bool {
        let [batch, tokens, ..] = self.v.dims();
        batch == 0 || tokens == 0
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
