//! The gradient of the operator: an anchor and its two outputs ([`Shelf`]).

use std::sync::Arc;

use burn::backend::autodiff::checkpoint::base::Checkpointer;
use burn::backend::autodiff::checkpoint::strategy::CheckpointStrategy;
use burn::backend::autodiff::grads::Gradients;
use burn::backend::autodiff::ops::{Backward, NodeGuard, Ops, OpsKind};
use burn::backend::tensor::FloatTensor;
use burn::backend::{Autodiff, Backend, TensorMetadata};
use burn_kimi_kernels::outputs::Shelf;

use super::definition::{KdaOps, KdaTensors};
use super::plan::KdaPlan;

impl<B: Backend + KdaOps, C: CheckpointStrategy> KdaOps for Autodiff<B, C> {
    fn kda_forward(
        tensors: KdaTensors<Self>,
        plan: Arc<KdaPlan>,
    ) -> (FloatTensor<Self>, FloatTensor<Self>) {
        let (inputs, nodes) = into_parts::<B, C>(tensors);
        match Anchor.prepare::<C>(nodes).compute_bound().stateful() {
            OpsKind::Tracked(anchor) => {
                let (o, state) = B::kda_forward(inputs.clone(), plan.clone());
                let shelf = Shelf::<B, 2>::new();
                let saved = Saved {
                    inputs,
                    plan,
                    shelf: shelf.clone(),
                };
                let anchor = anchor.finish(saved, o.clone());
                (
                    shelf.output::<C>(OUTPUT, anchor.node(), o),
                    shelf.output::<C>(STATE, anchor.node(), state),
                )
            }
            OpsKind::UnTracked(anchor) => {
                let (o, state) = B::kda_forward(inputs, plan);
                let anchor = anchor.finish(o);
                let state = Shelf::<B, 2>::new().output::<C>(STATE, anchor.node(), state);
                (anchor, state)
            }
        }
    }

    fn kda_backward(
        _: KdaTensors<Self>,
        _: FloatTensor<Self>,
        _: FloatTensor<Self>,
        _: Arc<KdaPlan>,
    ) -> KdaTensors<Self> {
        unreachable!("the backward pass runs on the backend below; Burn has no second derivatives")
    }

    fn kda_snapshots(
        _: KdaTensors<Self>,
        _: Arc<KdaPlan>,
    ) -> (FloatTensor<Self>, FloatTensor<Self>) {
        unreachable!("snapshots are taken of tensors without gradients")
    }
}

/// The places of the outputs on the shelf.
const OUTPUT: usize = 0;
const STATE: usize = 1;

/// What the backward pass needs: the inputs, and the gradients once they are there.
#[derive(Clone, Debug)]
struct Saved<B: Backend> {
    inputs: KdaTensors<B>,
    plan: Arc<KdaPlan>,
    shelf: Shelf<B, 2>,
}

#[derive(Debug)]
struct Anchor;

impl<B: Backend + KdaOps> Backward<B, 8> for Anchor {
    type State = Saved<B>;

    fn backward(
        self,
        ops: Ops<Self::State, 8>,
        grads: &mut Gradients,
        _checkpointer: &mut Checkpointer,
    ) {
        let Saved {
            inputs,
            plan,
            shelf,
        } = ops.state;
        let [o_grad, state_grad] = shelf.take();
        let or_zeros = |grad: Option<FloatTensor<B>>, like: &FloatTensor<B>| {
            grad.unwrap_or_else(|| {
                B::float_zeros(like.shape(), &like.device(), like.dtype().into())
            })
        };
        let o_grad = or_zeros(o_grad, &inputs.v);
        let state_grad = or_zeros(state_grad, &inputs.state);
        let gradients = B::kda_backward(inputs, o_grad, state_grad, plan);
        let gradients = [
            gradients.q,
            gradients.k,
            gradients.v,
            gradients.g,
            gradients.beta,
            gradients.a_log,
            gradients.dt_bias,
            gradients.state,
        ];
        for (parent, gradient) in ops.parents.into_iter().zip(gradients) {
            if let Some(parent) = parent {
                grads.register::<B>(parent.id, gradient);
            }
        }
    }
}

fn into_parts<B: Backend, C: CheckpointStrategy>(
    tensors: KdaTensors<Autodiff<B, C>>,
) -> (KdaTensors<B>, [NodeGuard; 8]) {
    let (q, q_node) = tensors.q.into_parts();
    let (k, k_node) = tensors.k.into_parts();
    let (v, v_node) = tensors.v.into_parts();
    let (g, g_node) = tensors.g.into_parts();
    let (beta, beta_node) = tensors.beta.into_parts();
    let (a_log, a_log_node) = tensors.a_log.into_parts();
    let (dt_bias, dt_bias_node) = tensors.dt_bias.into_parts();
    let (state, state_node) = tensors.state.into_parts();
    let inputs = KdaTensors {
        q,
        k,
        v,
        g,
        beta,
        a_log,
        dt_bias,
        state,
    };
    let nodes = [
        q_node,
        k_node,
        v_node,
        g_node,
        beta_node,
        a_log_node,
        dt_bias_node,
        state_node,
    ];
    (inputs, nodes)
}
