//! The operator as a backend sees it: plain tensors, a plan, and two functions.
//!
//! A backend gets inputs that are already checked ([`super::function`]) and answers with the outputs or the gradients. It is free
//! in how it computes them; what every implementation promises is in [`super`].

use std::sync::Arc;

#[cfg(feature = "cube")]
use burn::backend::fusion::custom::TensorSpec;
use burn::backend::{Backend, ExtensionType, backend_extension, tensor::FloatTensor};

use super::plan::KdaPlan;

/// The tensors of the operator; as the result of the backward pass, the gradient of each.
#[derive(ExtensionType, Clone, Debug)]
#[extension_type(fusion: cfg(feature = "cube"))]
pub(super) struct KdaTensors<B: Backend> {
    /// `[B, T, H, K]`.
    pub(super) q: FloatTensor<B>,
    /// `[B, T, H, K]`.
    pub(super) k: FloatTensor<B>,
    /// `[B, T, HV, V]`.
    pub(super) v: FloatTensor<B>,
    /// `[B, T, HV, K]`: log decay, or the projection that becomes it.
    pub(super) g: FloatTensor<B>,
    /// `[B, T, HV]`: write strength, or the projection that becomes it.
    pub(super) beta: FloatTensor<B>,
    /// `[HV]`, `f32`; anything where the plan does not prepare.
    pub(super) a_log: FloatTensor<B>,
    /// `[HV, K]`, `f32`; anything where the plan does not prepare.
    pub(super) dt_bias: FloatTensor<B>,
    /// `[S, HV, K, V]`, `f32`: one memory a slot.
    pub(super) state: FloatTensor<B>,
}

/// KDA as an extension of a backend.
#[backend_extension(
    Flex: cfg(feature = "flex"),
    Cube: cfg(feature = "cube"),
    Fusion: cfg(feature = "cube"),
    Autodiff
)]
pub(super) trait KdaOps: Backend {
    /// The output, like `v` (zeros where no sequence is), and the states with the slots of the plan's sequences updated.
    #[fusion(meta = forward_shapes)]
    fn kda_forward(
        #[extension_type] tensors: KdaTensors<Self>,
        plan: Arc<KdaPlan>,
    ) -> (FloatTensor<Self>, FloatTensor<Self>);

    /// The gradients with respect to all tensors, from those of the output and of the states.
    ///
    /// Saves nothing of the forward pass but its inputs: everything else is computed again.
    #[fusion(meta = |tensors, _o, _state, _plan| tensors.clone())]
    fn kda_backward(
        #[extension_type] tensors: KdaTensors<Self>,
        o_grad: FloatTensor<Self>,
        state_grad: FloatTensor<Self>,
        plan: Arc<KdaPlan>,
    ) -> KdaTensors<Self>;

    /// The output, and the state after every token, `[B, T, HV, K, V]`. Each step is that of a decode, bit for bit. The plan has
    /// one sequence a batch row, all of `T` tokens.
    #[fusion(meta = snapshot_shapes)]
    fn kda_snapshots(
        #[extension_type] tensors: KdaTensors<Self>,
        plan: Arc<KdaPlan>,
    ) -> (FloatTensor<Self>, FloatTensor<Self>);
}

#[cfg(feature = "cube")]
fn forward_shapes(tensors: &KdaTensorsMetadata, _plan: &Arc<KdaPlan>) -> (TensorSpec, TensorSpec) {
    (tensors.v.clone(), tensors.state.clone())
}

#[cfg(feature = "cube")]
fn snapshot_shapes(tensors: &KdaTensorsMetadata, _plan: &Arc<KdaPlan>) -> (TensorSpec, TensorSpec) {
    let [batch, tokens] = [tensors.v.shape[0], tensors.v.shape[1]];
    let [heads, key_dim, value_dim] = [1, 2, 3].map(|axis| tensors.state.shape[axis]);
    let shape = [batch, tokens, heads, key_dim, value_dim].into();
    (
        tensors.v.clone(),
        TensorSpec::new(shape, tensors.state.dtype),
    )
}
