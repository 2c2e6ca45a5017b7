use burn::tensor::Tensor;

use super::{Prepared, by_sequence};
use crate::kda::inputs::KdaInputs;
use crate::kda::plan::Preparation;
use crate::kda::{KdaOptions, KdaState};

/// KDA by its definition, one token after the other.
///
/// Same inputs, outputs and panics as [`kda`](crate::kda::kda). This is the oracle that every faster path is compared with; it is
/// differentiable, and slow on long sequences.
pub fn kda_reference(
    q: Tensor<4>,
    k: Tensor<4>,
    v: Tensor<4>,
    g: Tensor<4>,
    beta: Tensor<3>,
    initial_state: Option<KdaState>,
    options: &KdaOptions,
) -> (Tensor<4>, KdaState) {
    let preparation = Preparation::None;
    let inputs = KdaInputs::new([q, k, v, g], beta, initial_state, preparation, options);
    let (o, state) = if inputs.is_empty() {
        (inputs.v.zeros_like(), inputs.state)
    } else {
        by_sequence(inputs, recurrent)
    };
    (o, KdaState::from_key_value(state))
}

/// The output, `[B, T, HV, V]`, and the state after it.
pub(super) fn recurrent(sequence: Prepared) -> (Tensor<4>, Tensor<4>) {
    let Prepared {
        q,
        k,
        v,
        g,
        beta,
        mut state,
    } = sequence;
    let [batch, tokens, heads, key_dim] = k.dims();
    let [_, _, _, value_dim] = v.dims();
    let row = |x: &Tensor<4>, t: usize| x.clone().narrow(1, t, 1).swap_dims(1, 2);

    let outputs = (0..tokens)
        .map(|t| {
            let k_t = row(&k, t); // [B, HV, 1, K]
            let column = |x: Tensor<4>| x.reshape([batch, heads, key_dim, 1]);
            let decay = column(row(&g, t)).exp();
            let beta_t = beta.clone().narrow(1, t, 1).reshape([batch, heads, 1, 1]);

            let decayed = state.clone() * decay;
            let known = k_t.clone().matmul(decayed.clone());
            let update = (row(&v, t) - known) * beta_t;
            state = decayed + column(k_t) * update;
            row(&q, t)
                .matmul(state.clone())
                .reshape([batch, 1, heads, value_dim])
        })
        .collect();
    (Tensor::cat(outputs, 1), state)
}
