use burn::backend::autodiff::checkpoint::base::Checkpointer;
use burn::backend::autodiff::checkpoint::strategy::CheckpointStrategy;
use burn::backend::autodiff::grads::Gradients;
use burn::backend::autodiff::ops::{Backward, Ops, OpsKind};
use burn::backend::tensor::FloatTensor;
use burn::backend::{Autodiff, Backend};

use super::definition::GatedNormOps;

impl<B: Backend + GatedNormOps, C: CheckpointStrategy> GatedNormOps for Autodiff<B, C> {
    fn gated_norm(
        x: FloatTensor<Self>,
        gate: FloatTensor<Self>,
        weight: FloatTensor<Self>,
        epsilon: f64,
    ) -> FloatTensor<Self> {
        let (x, x_node) = x.into_parts();
        let (gate, gate_node) = gate.into_parts();
        let (weight, weight_node) = weight.into_parts();
        let nodes = [x_node, gate_node, weight_node];
        match Node.prepare::<C>(nodes).compute_bound().stateful() {
            OpsKind::Tracked(node) => {
                let inputs = [x.clone(), gate.clone(), weight.clone()];
                let y = B::gated_norm(x, gate, weight, epsilon);
                node.finish((inputs, epsilon), y)
            }
            OpsKind::UnTracked(node) => node.finish(B::gated_norm(x, gate, weight, epsilon)),
        }
    }

    fn gated_norm_backward(
        _: FloatTensor<Self>,
        _: FloatTensor<Self>,
        _: FloatTensor<Self>,
        _: FloatTensor<Self>,
        _: f64,
    ) -> (FloatTensor<Self>, FloatTensor<Self>, FloatTensor<Self>) {
        unreachable!("the backward pass runs on the backend below; Burn has no second derivatives")
    }
}

/// Everything is computed again: only the inputs are kept.
#[derive(Debug)]
struct Node;

impl<B: Backend + GatedNormOps> Backward<B, 3> for Node {
    type State = ([FloatTensor<B>; 3], f64);

    fn backward(
        self,
        ops: Ops<Self::State, 3>,
        grads: &mut Gradients,
        _checkpointer: &mut Checkpointer,
    ) {
        let ([x, gate, weight], epsilon) = ops.state;
        let gradient = grads.consume::<B>(&ops.node);
        let (x, gate, weight) = B::gated_norm_backward(x, gate, weight, gradient, epsilon);
        for (parent, gradient) in ops.parents.into_iter().zip([x, gate, weight]) {
            if let Some(parent) = parent {
                grads.register::<B>(parent.id, gradient);
            }
        }
    }
}
