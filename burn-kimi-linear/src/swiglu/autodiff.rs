use burn::backend::autodiff::checkpoint::base::Checkpointer;
use burn::backend::autodiff::checkpoint::strategy::CheckpointStrategy;
use burn::backend::autodiff::grads::Gradients;
use burn::backend::autodiff::ops::{Backward, Ops, OpsKind};
use burn::backend::tensor::FloatTensor;
use burn::backend::{Autodiff, Backend};

use super::definition::SwigluOps;

impl<B: Backend + SwigluOps, C: CheckpointStrategy> SwigluOps for Autodiff<B, C> {
    fn swiglu(gate: FloatTensor<Self>, up: FloatTensor<Self>) -> FloatTensor<Self> {
        let (gate, gate_node) = gate.into_parts();
        let (up, up_node) = up.into_parts();
        match Node
            .prepare::<C>([gate_node, up_node])
            .compute_bound()
            .stateful()
        {
            OpsKind::Tracked(node) => {
                let y = B::swiglu(gate.clone(), up.clone());
                node.finish([gate, up], y)
            }
            OpsKind::UnTracked(node) => node.finish(B::swiglu(gate, up)),
        }
    }

    fn swiglu_backward(
        _: FloatTensor<Self>,
        _: FloatTensor<Self>,
        _: FloatTensor<Self>,
    ) -> (FloatTensor<Self>, FloatTensor<Self>) {
        unreachable!("the backward pass runs on the backend below; Burn has no second derivatives")
    }
}

/// The sigmoid is computed again: only the inputs are kept.
#[derive(Debug)]
struct Node;

impl<B: Backend + SwigluOps> Backward<B, 2> for Node {
    type State = [FloatTensor<B>; 2];

    fn backward(
        self,
        ops: Ops<Self::State, 2>,
        grads: &mut Gradients,
        _checkpointer: &mut Checkpointer,
    ) {
        let [gate, up] = ops.state;
        let gradient = grads.consume::<B>(&ops.node);
        let (gate, up) = B::swiglu_backward(gate, up, gradient);
        for (parent, gradient) in ops.parents.into_iter().zip([gate, up]) {
            if let Some(parent) = parent {
                grads.register::<B>(parent.id, gradient);
            }
        }
    }
}
