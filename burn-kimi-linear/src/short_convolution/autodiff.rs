use burn::backend::autodiff::checkpoint::base::Checkpointer;
use burn::backend::autodiff::checkpoint::strategy::CheckpointStrategy;
use burn::backend::autodiff::grads::Gradients;
use burn::backend::autodiff::ops::{Backward, Ops, OpsKind};
use burn::backend::tensor::FloatTensor;
use burn::backend::{Autodiff, Backend};

use super::Activation;
use super::definition::ShortConvolutionOps;

impl<B: Backend + ShortConvolutionOps, C: CheckpointStrategy> ShortConvolutionOps
    for Autodiff<B, C>
{
    fn short_convolution(
        x: FloatTensor<Self>,
        weight: FloatTensor<Self>,
        window: FloatTensor<Self>,
        activation: Activation,
    ) -> FloatTensor<Self> {
        let (x, x_node) = x.into_parts();
        let (weight, weight_node) = weight.into_parts();
        let (window, window_node) = window.into_parts();
        let nodes = [x_node, weight_node, window_node];
        match Node.prepare::<C>(nodes).compute_bound().stateful() {
            OpsKind::Tracked(node) => {
                let inputs = [x.clone(), weight.clone(), window.clone()];
                let y = B::short_convolution(x, weight, window, activation);
                node.finish((inputs, activation), y)
            }
            OpsKind::UnTracked(node) => {
                node.finish(B::short_convolution(x, weight, window, activation))
            }
        }
    }

    fn short_convolution_backward(
        _: FloatTensor<Self>,
        _: FloatTensor<Self>,
        _: FloatTensor<Self>,
        _: FloatTensor<Self>,
        _: Activation,
    ) -> (FloatTensor<Self>, FloatTensor<Self>, FloatTensor<Self>) {
        unreachable!("the backward pass runs on the backend below; Burn has no second derivatives")
    }
}

/// The sums are computed again: only the inputs are kept.
#[derive(Debug)]
struct Node;

impl<B: Backend + ShortConvolutionOps> Backward<B, 3> for Node {
    type State = ([FloatTensor<B>; 3], Activation);

    fn backward(
        self,
        ops: Ops<Self::State, 3>,
        grads: &mut Gradients,
        _checkpointer: &mut Checkpointer,
    ) {
        let ([x, weight, window], activation) = ops.state;
        let gradient = grads.consume::<B>(&ops.node);
        let (x, weight, window) =
            B::short_convolution_backward(x, weight, window, gradient, activation);
        for (parent, gradient) in ops.parents.into_iter().zip([x, weight, window]) {
            if let Some(parent) = parent {
                grads.register::<B>(parent.id, gradient);
            }
        }
    }
}
