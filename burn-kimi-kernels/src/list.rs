//! Any number of tensors as one argument of an operator.
//!
//! Burn's macro for backend extensions takes tensors one by one or in structures of a fixed number of them, and its graph takes an array of parents.
//! [`TensorList`] is such a structure of any length. In the graph it becomes a chain of nodes with one tensor each: the operator has the end of
//! the chain as its one parent, and leaves the gradients on a shelf, from which each link passes its own on.

use std::sync::{Arc, Mutex};

use burn::backend::autodiff::checkpoint::base::Checkpointer;
use burn::backend::autodiff::checkpoint::strategy::CheckpointStrategy;
use burn::backend::autodiff::grads::Gradients;
use burn::backend::autodiff::ops::{Backward, NodeGuard, Ops, OpsKind};
use burn::backend::tensor::FloatTensor;
use burn::backend::{
    Autodiff, Backend, BackendTensor, Dispatch, DispatchAutodiffContext, DispatchTensor,
    DispatchTensorKind, ExtensionType,
};

/// Float tensors of one backend; as an argument of a backend extension marked `#[extension_type]`.
#[derive(Clone, Debug)]
pub struct TensorList<B: Backend>(pub Vec<FloatTensor<B>>);

impl<B: Backend> ExtensionType<B> for TensorList<B> {
    type Target = TensorList<Dispatch>;

    fn map_to_dispatch<F>(self, map_kind: F, autodiff: DispatchAutodiffContext) -> Self::Target
    where
        F: Fn(BackendTensor<B>) -> DispatchTensorKind,
    {
        let wrap = |tensor| DispatchTensor {
            kind: map_kind(BackendTensor::Float(tensor)),
            autodiff,
        };
        TensorList(self.0.into_iter().map(wrap).collect())
    }

    fn map_from_dispatch<F>(target: Self::Target, unwrap_kind: F) -> Self
    where
        F: Fn(DispatchTensor) -> BackendTensor<B>,
    {
        let unwrap = |tensor| unwrap_kind(tensor).float();
        Self(target.0.into_iter().map(unwrap).collect())
    }

    fn routing_tensor(target: &Self::Target) -> Option<&DispatchTensor> {
        target.0.first()
    }

    fn routing_float_tensor(target: &Self::Target) -> Option<&DispatchTensor> {
        target.0.first()
    }

    fn autodiff_context(target: &Self::Target) -> DispatchAutodiffContext {
        target
            .0
            .iter()
            .fold(DispatchAutodiffContext::Disabled, |context, tensor| {
                context.merge(tensor.autodiff)
            })
    }
}

/// Where the gradients of a list wait for its links.
#[derive(Debug)]
pub struct Deliveries<B: Backend>(Arc<Mutex<Vec<Option<FloatTensor<B>>>>>);

impl<B: Backend> Deliveries<B> {
    /// Leaves the gradients of the whole list. The operator does so in its backward pass; the links' turns come after it.
    pub fn leave(&self, gradients: TensorList<B>) {
        let gradients = gradients.0.into_iter().map(Some).collect();
        *self.0.lock().expect("nothing panics with it") = gradients;
    }
}

impl<B: Backend> Clone for Deliveries<B> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

/// Splits a list into its tensors, the node to have as a parent for all of them, and where to leave their gradients.
///
/// # Panics
///
/// If the list is empty.
pub fn join<B: Backend, C: CheckpointStrategy>(
    list: TensorList<Autodiff<B, C>>,
) -> (TensorList<B>, NodeGuard, Deliveries<B>) {
    let deliveries = Deliveries(Arc::new(Mutex::new(Vec::new())));
    let mut tensors = Vec::with_capacity(list.0.len());
    let mut chain = None;
    for (place, tensor) in list.0.into_iter().enumerate() {
        let (tensor, node) = tensor.into_parts();
        let state = (place, deliveries.clone());
        let link = match chain {
            None => link::<B, C, 1>([node], state, &tensor),
            Some(chain) => link::<B, C, 2>([chain, node], state, &tensor),
        };
        chain = Some(link);
        tensors.push(tensor);
    }
    let chain = chain.expect("at least one tensor");
    (TensorList(tensors), chain, deliveries)
}

/// A node whose own value nobody sees; `value` is of the backend's type, and costs nothing.
fn link<B: Backend, C: CheckpointStrategy, const N: usize>(
    parents: [NodeGuard; N],
    state: (usize, Deliveries<B>),
    value: &FloatTensor<B>,
) -> NodeGuard {
    match Link.prepare::<C>(parents).compute_bound().stateful() {
        OpsKind::Tracked(node) => node.finish(state, value.clone()).node(),
        OpsKind::UnTracked(node) => node.finish(value.clone()).node(),
    }
}

/// Its last parent is a tensor of the list, the one before it the chain so far.
#[derive(Debug)]
struct Link;

impl<B: Backend, const N: usize> Backward<B, N> for Link {
    type State = (usize, Deliveries<B>);

    fn backward(
        self,
        ops: Ops<Self::State, N>,
        grads: &mut Gradients,
        _checkpointer: &mut Checkpointer,
    ) {
        let (place, deliveries) = ops.state;
        let gradient = {
            let mut gradients = deliveries.0.lock().expect("nothing panics with it");
            gradients.get_mut(place).and_then(Option::take)
        };
        if let (Some(Some(tensor)), Some(gradient)) = (ops.parents.last(), gradient) {
            grads.register::<B>(tensor.id, gradient);
        }
    }
}

#[cfg(feature = "cube")]
mod fusion {
    //! What Burn's fusion must know of a list: the same of each of its tensors.

    use burn::backend::fusion::custom::{
        ExtensionMetadata, Float, FusionValueAdapter, HandleContainer, OutputTensor, TensorId,
        TensorIr, TensorSpec,
    };
    use burn::backend::fusion::{Fusion, FusionBackend, FusionRuntime, FusionTensor};
    use burn::backend::{Backend, ExecutionError};

    use super::TensorList;

    type Handles<B> =
        HandleContainer<<<B as FusionBackend>::FusionRuntime as FusionRuntime>::FusionHandle>;

    impl<B: Backend> ExtensionMetadata for TensorList<B> {
        type Metadata = Vec<TensorSpec>;
        type Input = Vec<TensorIr>;
        type Output = Vec<OutputTensor>;
    }

    impl<B: FusionBackend> FusionValueAdapter<B> for TensorList<B> {
        type Metadata = Vec<TensorSpec>;
        type Input = Vec<TensorIr>;
        type Output = Vec<OutputTensor>;
        type Inner = Self;
        type Fused = TensorList<Fusion<B>>;

        fn to_metadata(value: &Self::Fused) -> Self::Metadata {
            let of = <Float as FusionValueAdapter<B>>::to_metadata;
            value.0.iter().map(of).collect()
        }

        fn visit_fused_tensors(
            value: &Self::Fused,
            visit: &mut impl FnMut(&FusionTensor<B::FusionRuntime>),
        ) {
            value.0.iter().for_each(visit);
        }

        fn tensor_count(meta: &Self::Metadata) -> usize {
            meta.len()
        }

        fn append_input_ir(value: Self::Fused, inputs: &mut Vec<TensorIr>) -> Self::Input {
            let append = |tensor| <Float as FusionValueAdapter<B>>::append_input_ir(tensor, inputs);
            value.0.into_iter().map(append).collect()
        }

        fn resolve_inputs(input: &Self::Input, handles: &mut Handles<B>) -> Self::Inner {
            let resolve =
                |tensor| <Float as FusionValueAdapter<B>>::resolve_inputs(tensor, handles);
            Self(input.iter().map(resolve).collect())
        }

        fn append_output_ir(
            meta: &Self::Metadata,
            out: &mut Vec<TensorIr>,
            create: &mut impl FnMut() -> TensorId,
        ) -> Self::Output {
            let append =
                |spec| <Float as FusionValueAdapter<B>>::append_output_ir(spec, out, create);
            meta.iter().map(append).collect()
        }

        fn validate_outputs(
            value: &Self::Inner,
            output: &Self::Output,
            device: Option<&B::Device>,
        ) -> Result<(), ExecutionError> {
            value.0.iter().zip(output).try_for_each(|(value, output)| {
                <Float as FusionValueAdapter<B>>::validate_outputs(value, output, device)
            })
        }

        fn register_output_handles(
            value: Self::Inner,
            output: &Self::Output,
            handles: &mut Handles<B>,
        ) {
            for (value, output) in value.0.into_iter().zip(output) {
                <Float as FusionValueAdapter<B>>::register_output_handles(value, output, handles);
            }
        }

        fn build_fused_output(
            meta: &Self::Metadata,
            tensors: &mut std::vec::IntoIter<FusionTensor<B::FusionRuntime>>,
        ) -> Self::Fused {
            let build = |spec| <Float as FusionValueAdapter<B>>::build_fused_output(spec, tensors);
            TensorList(meta.iter().map(build).collect())
        }
    }
}
