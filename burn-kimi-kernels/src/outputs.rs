//! The gradient of an operator with several outputs.
//!
//! A node of Burn's graph has one output. An operator with more becomes an anchor, whose parents are the inputs and whose own output nobody
//! sees, and behind it one node for each output. When an output's turn comes in the backward pass, it leaves its gradient on a shared
//! shelf; the anchor's turn comes after all of them, because steps run from the deepest to the shallowest, and there the gradients of all
//! inputs are computed at once. An output that was not used leaves nothing.

use std::sync::{Arc, Mutex};

use burn::backend::autodiff::checkpoint::base::Checkpointer;
use burn::backend::autodiff::checkpoint::strategy::CheckpointStrategy;
use burn::backend::autodiff::grads::Gradients;
use burn::backend::autodiff::ops::{Backward, NodeGuard, Ops, OpsKind};
use burn::backend::tensor::FloatTensor;
use burn::backend::{Autodiff, Backend};

/// Where the gradients of `N` outputs wait for the anchor.
#[derive(Debug)]
pub struct Shelf<B: Backend, const N: usize>(Arc<Mutex<[Option<FloatTensor<B>>; N]>>);

impl<B: Backend, const N: usize> Shelf<B, N> {
    /// An empty one.
    pub fn new() -> Self {
        Self(Arc::new(Mutex::new(std::array::from_fn(|_| None))))
    }

    /// The node of output number `place`, behind the anchor.
    pub fn output<C: CheckpointStrategy>(
        &self,
        place: usize,
        anchor: NodeGuard,
        value: FloatTensor<B>,
    ) -> FloatTensor<Autodiff<B, C>> {
        match Output.prepare::<C>([anchor]).compute_bound().stateful() {
            OpsKind::Tracked(node) => node.finish((place, self.clone()), value),
            OpsKind::UnTracked(node) => node.finish(value),
        }
    }

    /// What the outputs left, for the anchor.
    pub fn take(&self) -> [Option<FloatTensor<B>>; N] {
        let mut places = self.0.lock().expect("nothing panics with it");
        std::mem::replace(&mut *places, std::array::from_fn(|_| None))
    }
}

impl<B: Backend, const N: usize> Clone for Shelf<B, N> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<B: Backend, const N: usize> Default for Shelf<B, N> {
    fn default() -> Self {
        Self::new()
    }
}

#[derive(Debug)]
struct Output<const N: usize>;

impl<B: Backend, const N: usize> Backward<B, 1> for Output<N> {
    type State = (usize, Shelf<B, N>);

    fn backward(
        self,
        ops: Ops<Self::State, 1>,
        grads: &mut Gradients,
        _checkpointer: &mut Checkpointer,
    ) {
        let (place, shelf) = ops.state;
        let gradient = grads.consume::<B>(&ops.node);
        shelf.0.lock().expect("nothing panics with it")[place] = Some(gradient);
    }
}
