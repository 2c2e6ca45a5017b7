//! The residual stream of one forward pass.
//!
//! ```text
//!              read            write            ... L times
//! start --> [to read l] --> [to write l] --> [to read l+1] --> ... --> [all written] -- finish --> h
//! ```
//!
//! Each sub-layer reads its input and then writes its output; nothing else is allowed, and a call out of turn
//! panics. Only `write` changes the sources: it adds to the running sum, and moves that to the finished blocks
//! where the schedule closes one. Tensors are shared with the automatic-differentiation graph, not copied.

use burn::tensor::Tensor;

use crate::attn_res::AttnRes;
use crate::schedule::Schedule;

/// The residual stream of one forward pass: the embedding, the finished block sums and the running sum.
///
/// Made by [`AttnRes::start`]. It belongs to the tokens of this pass and is dropped with it: decoding keeps
/// nothing of it between tokens.
///
/// ```
/// use burn::nn::{LinearConfig, RmsNormConfig};
/// use burn::tensor::{Device, Distribution, Tensor};
/// use burn_attnres::{AttnResConfig, BlockPlan};
///
/// let device = Device::default();
/// let attn_res = AttnResConfig::new(8, 4)
///     .with_plan(BlockPlan::SublayersPerBlock(2))
///     .init(&device);
/// let norm = RmsNormConfig::new(8).init(&device);
/// let layers: Vec<_> = (0..4).map(|_| LinearConfig::new(8, 8).init(&device)).collect();
///
/// let embedding = Tensor::random([1, 5, 8], Distribution::Default, &device);
/// let mut stream = attn_res.start(embedding);
/// for layer in &layers {
///     let h = stream.read(&attn_res);
///     stream.write(layer.forward(norm.forward(h)));
/// }
/// let output = stream.finish(&attn_res);
/// assert_eq!(output.dims(), [1, 5, 8]);
/// ```
#[derive(Debug, Clone)]
pub struct AttnResState {
    schedule: Schedule,
    /// The embedding, then the sum of every closed block.
    finished: Vec<Tensor<3>>,
    /// The running sum of the open block, once it has a term.
    partial: Option<Tensor<3>>,
    turn: Turn,
}

/// The call that the stream waits for. `sublayer` counts from 0; after the last write it is `L`.
#[derive(Debug, Clone, Copy)]
enum Turn {
    Read { sublayer: usize },
    Write { sublayer: usize },
}

impl AttnResState {
    pub(crate) fn new(embedding: Tensor<3>, schedule: Schedule) -> Self {
        Self {
            schedule,
            finished: vec![embedding],
            partial: None,
            turn: Turn::Read { sublayer: 0 },
        }
    }

    /// The input of the next sub-layer, `[batch, tokens, d_model]`; its norm is the sub-layer's own.
    ///
    /// # Panics
    ///
    /// If the output of the last sub-layer read was not written, if all sub-layers were written, or if
    /// `attn_res` has another schedule than the one that started this stream.
    pub fn read(&mut self, attn_res: &AttnRes) -> Tensor<3> {
        let sublayer = match self.turn {
            Turn::Read { sublayer } => sublayer,
            Turn::Write { sublayer } => panic!(
                "AttnResState::read: sub-layer {sublayer} was read and not written; call write first"
            ),
        };
        assert!(
            sublayer < self.schedule.sublayers(),
            "AttnResState::read: all {sublayer} sub-layers are written; call finish"
        );
        self.turn = Turn::Write { sublayer };
        self.mix("read", attn_res, sublayer)
    }

    /// Adds the output of the sub-layer that was read last, `[batch, tokens, d_model]`.
    ///
    /// # Panics
    ///
    /// If no sub-layer was read since the last write, or if `output` has another shape or dtype than the
    /// embedding.
    pub fn write(&mut self, output: Tensor<3>) {
        let sublayer = match self.turn {
            Turn::Write { sublayer } => sublayer,
            Turn::Read { sublayer } => panic!(
                "AttnResState::write: sub-layer {sublayer} was not read; call read first, or finish after the last"
            ),
        };
        let embedding = &self.finished[0];
        assert!(
            output.dims() == embedding.dims(),
            "AttnResState::write: the output of sub-layer {sublayer} has shape {:?}, wanted {:?} as the embedding",
            output.dims(),
            embedding.dims()
        );
        assert!(
            output.dtype() == embedding.dtype(),
            "AttnResState::write: the output of sub-layer {sublayer} has dtype {:?}, wanted {:?} as the embedding",
            output.dtype(),
            embedding.dtype()
        );
        let sum = match self.partial.take() {
            Some(partial) => partial + output,
            None => output,
        };
        if self.schedule.closes_block(sublayer) {
            self.finished.push(sum);
        } else {
            self.partial = Some(sum);
        }
        self.turn = Turn::Read {
            sublayer: sublayer + 1,
        };
    }

    /// The output of the stack, `[batch, tokens, d_model]`: the last read, over the embedding and all blocks.
    ///
    /// The final norm of the model comes after it.
    ///
    /// # Panics
    ///
    /// If a sub-layer was not read and written, or if `attn_res` has another schedule than the one that
    /// started this stream.
    pub fn finish(self, attn_res: &AttnRes) -> Tensor<3> {
        let sublayers = self.schedule.sublayers();
        match self.turn {
            Turn::Read { sublayer } if sublayer == sublayers => {}
            Turn::Read { sublayer } => panic!(
                "AttnResState::finish: {sublayer} of {sublayers} sub-layers are written; call read and write for the others"
            ),
            Turn::Write { sublayer } => panic!(
                "AttnResState::finish: sub-layer {sublayer} was read and not written; call write first"
            ),
        }
        self.mix("finish", attn_res, sublayers)
    }

    fn mix(&self, call: &str, attn_res: &AttnRes, read: usize) -> Tensor<3> {
        assert!(
            attn_res.schedule() == &self.schedule,
            "AttnResState::{call}: attn_res has {} sub-layers in {} blocks, wanted {} in {}, as the one that started this stream",
            attn_res.schedule().sublayers(),
            attn_res.schedule().blocks(),
            self.schedule.sublayers(),
            self.schedule.blocks()
        );
        let mut sources = self.finished.clone();
        sources.extend(self.partial.clone());
        attn_res.mix(read, &sources)
    }
}
