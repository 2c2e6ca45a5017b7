//! The gradient of the operator: a chain of nodes for its sources ([`join`]), an anchor, and two outputs ([`Shelf`]).

use burn::backend::autodiff::checkpoint::base::Checkpointer;
use burn::backend::autodiff::checkpoint::strategy::CheckpointStrategy;
use burn::backend::autodiff::grads::Gradients;
use burn::backend::autodiff::ops::{Backward, Ops, OpsKind};
use burn::backend::tensor::FloatTensor;
use burn::backend::{Autodiff, Backend, TensorMetadata};
use burn::tensor::{DType, Shape};
use burn_kimi_kernels::list::{Deliveries, TensorList, join};
use burn_kimi_kernels::outputs::Shelf;

use super::definition::DepthAttentionOps;

/// The places of the outputs on the shelf.
const H: usize = 0;
const WEIGHTS: usize = 1;

impl<B: Backend + DepthAttentionOps, C: CheckpointStrategy> DepthAttentionOps for Autodiff<B, C> {
    fn depth_attention(
        sources: TensorList<Self>,
        u: FloatTensor<Self>,
        eps: f64,
    ) -> (FloatTensor<Self>, FloatTensor<Self>) {
        let (sources, chain, deliveries) = join::<B, C>(sources);
        let (u, u_node) = u.into_parts();
        let shelf = Shelf::<B, 2>::new();
        let nodes = [chain, u_node];
        let (anchor, weights) = match Anchor.prepare::<C>(nodes).compute_bound().stateful() {
            OpsKind::Tracked(anchor) => {
                let (h, weights) = B::depth_attention(sources.clone(), u.clone(), eps);
                let saved = Saved {
                    sources,
                    u,
                    eps,
                    shelf: shelf.clone(),
                    deliveries,
                };
                (anchor.finish(saved, h), weights)
            }
            OpsKind::UnTracked(anchor) => {
                let (h, weights) = B::depth_attention(sources, u, eps);
                (anchor.finish(h), weights)
            }
        };
        let weights = shelf.output::<C>(WEIGHTS, anchor.node(), weights);
        let (h, anchor) = anchor.into_parts();
        (shelf.output::<C>(H, anchor, h), weights)
    }

    fn depth_attention_backward(
        _: TensorList<Self>,
        _: FloatTensor<Self>,
        _: FloatTensor<Self>,
        _: FloatTensor<Self>,
        _: f64,
    ) -> (TensorList<Self>, FloatTensor<Self>) {
        unreachable!("the backward pass runs on the backend below; Burn has no second derivatives")
    }
}

/// What the backward pass needs: the inputs, the gradients once they are there, and where to leave those of the sources.
#[derive(Clone, Debug)]
struct Saved<B: Backend> {
    sources: TensorList<B>,
    u: FloatTensor<B>,
    eps: f64,
    shelf: Shelf<B, 2>,
    deliveries: Deliveries<B>,
}

#[derive(Debug)]
struct Anchor;

impl<B: Backend + DepthAttentionOps> Backward<B, 2> for Anchor {
    type State = Saved<B>;

    fn backward(
        self,
        ops: Ops<Self::State, 2>,
        grads: &mut Gradients,
        _checkpointer: &mut Checkpointer,
    ) {
        let Saved {
            sources,
            u,
            eps,
            shelf,
            deliveries,
        } = ops.state;
        let [h_grad, weights_grad] = shelf.take();
        let first = &sources.0[0];
        let zeros = |shape: Shape, dtype: DType| B::float_zeros(shape, &u.device(), dtype.into());
        let h_grad = h_grad.unwrap_or_else(|| zeros(first.shape(), first.dtype()));
        let weights_grad = weights_grad.unwrap_or_else(|| {
            let [batch, tokens, _] = first.shape().dims();
            zeros([sources.0.len(), batch, tokens].into(), u.dtype())
        });
        let (of_sources, of_u) = B::depth_attention_backward(sources, u, h_grad, weights_grad, eps);
        let [chain, u] = ops.parents;
        if chain.is_some() {
            deliveries.leave(of_sources);
        }
        if let Some(u) = u {
            grads.register::<B>(u.id, of_u);
        }
    }
}
