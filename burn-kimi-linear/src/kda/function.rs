use burn::tensor::Tensor;

use super::inputs::KdaInputs;
use super::plan::Preparation;
use super::{KdaOptions, KdaPath, KdaState, primitive};

/// Kimi Delta Attention over a batch of sequences.
///
/// Shapes and meaning are those of [the module](super). The sequence may have any length: with `T = 0` the output
/// is empty and the state comes back as it went in (an empty batch likewise), with `T = 1` this is a decode step. A missing `initial_state`
/// is an empty memory. Both results are differentiable with respect to every input and the initial state.
///
/// Inputs may be stored in half precision, each in a dtype of its own; decay, accumulation and state are `f32`, and `o` has
/// the dtype of `v`. With inputs in `f64`, which all must be then, everything is `f64`. Where several sequences share a batch ([`KdaOptions::with_lengths`],
/// [`KdaOptions::with_cumulative_lengths`]) the state has a slot for each, `[N, HV, K, V]`.
///
/// # Panics
///
/// If a tensor has another shape or device than the others imply, some inputs are `f64` and others not, the state is not stored in the
/// dtype above, `HV` is not a multiple of `H`, a width is 0, or the options do not fit the tensors.
pub fn kda(
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
    run(inputs, options)
}

/// Computes checked inputs the way that the options and the device allow.
pub(super) fn run(inputs: KdaInputs, options: &KdaOptions) -> (Tensor<4>, KdaState) {
    if inputs.is_empty() {
        return (
            inputs.v.zeros_like(),
            KdaState::from_key_value(inputs.state),
        );
    }
    let [_, _, _, key_dim] = inputs.q.dims();
    let path = KdaPath::choose(&inputs.v.device(), inputs.v.dtype(), key_dim, options);
    let (o, state) = match path {
        #[cfg(feature = "kernels")]
        KdaPath::Kernel => super::kernel::forward(inputs),
        #[cfg(not(feature = "kernels"))]
        KdaPath::Kernel => unreachable!("no path leads to a kernel in a build without them"),
        KdaPath::Primitive => primitive::forward(inputs),
    };
    (o, KdaState::from_key_value(state))
}
