//! The parameters of a stack with Attention Residuals: one query and one key scale for every read.

use burn::config::Config;
use burn::module::{Initializer, Module, Param};
use burn::tensor::{Device, Tensor};

use crate::depth_attention::depth_attention;
use crate::schedule::{BlockPlan, Schedule, ScheduleError};
use crate::state::AttnResState;

/// Configuration of [`AttnRes`].
#[derive(Config, Debug, PartialEq)]
pub struct AttnResConfig {
    /// The width of the residual stream, `d`.
    pub d_model: usize,
    /// The number of sub-layers, `L`: attention and feed-forward count one each.
    pub sublayers: usize,
    /// How sub-layers are grouped into blocks. Default: [`BlockPlan::Full`].
    #[config(default = "BlockPlan::Full")]
    pub plan: BlockPlan,
    /// Added to the mean square of a source before the root is taken. Default: 1e-6.
    #[config(default = 1e-6)]
    pub eps: f64,
}

impl AttnResConfig {
    /// The schedule of this configuration.
    ///
    /// # Errors
    ///
    /// If the plan does not fit the number of sub-layers.
    pub fn schedule(&self) -> Result<Schedule, ScheduleError> {
        Schedule::new(self.plan, self.sublayers)
    }

    /// Makes the parameters: every query is zero, every key scale one.
    ///
    /// Zero queries weigh all sources equally, so the first step of training starts from the network that adds
    /// its residuals (with normalised sub-layer inputs, up to the `eps` of those norms). The paper requires it;
    /// do not initialise them in any other way.
    ///
    /// # Panics
    ///
    /// If `d_model` is 0 or the plan does not fit (see [`schedule`](Self::schedule)).
    pub fn init(&self, device: &Device) -> AttnRes {
        assert!(
            self.d_model > 0,
            "AttnResConfig: d_model is 0, wanted at least 1"
        );
        let schedule = self
            .schedule()
            .unwrap_or_else(|error| panic!("AttnResConfig: {error}"));
        let reads = (0..schedule.reads())
            .map(|_| DepthRead {
                query: Initializer::Zeros.init([self.d_model], device),
                gamma: Initializer::Ones.init([self.d_model], device),
            })
            .collect();
        AttnRes {
            reads,
            eps: self.eps,
            schedule,
        }
    }
}

/// The parameters of all reads of a stack, and its schedule.
///
/// A stack of `L` sub-layers has `L + 1` reads, the last for the output. [`start`](Self::start) begins a forward
/// pass. The parameters are rank 1, at the paths `reads.<read>.query` and `reads.<read>.gamma`; train them with
/// AdamW and without weight decay.
///
/// Read 0 sees the embedding alone, so its parameters never matter and never move. They are kept so that
/// parameters, reads and sub-layers share one numbering, and as released checkpoints hold them too.
#[derive(Module, Debug)]
pub struct AttnRes {
    /// The parameters of each read, in order; the last is the output read.
    pub reads: Vec<DepthRead>,
    eps: f64,
    #[module(skip)]
    schedule: Schedule,
}

/// The parameters of one read.
#[derive(Module, Debug)]
pub struct DepthRead {
    /// The query, `[d_model]`. Zero at first.
    pub query: Param<Tensor<1>>,
    /// The scale of the normalised keys, `[d_model]`. One at first.
    pub gamma: Param<Tensor<1>>,
}

impl AttnRes {
    /// Begins a forward pass over the stack with the embedding `[batch, tokens, d_model]`.
    ///
    /// # Panics
    ///
    /// If the embedding is not `d_model` wide.
    pub fn start(&self, embedding: Tensor<3>) -> AttnResState {
        let [d_model] = self.reads[0].query.dims();
        assert!(
            embedding.dims()[2] == d_model,
            "AttnRes::start: embedding has shape {:?}, wanted [batch, tokens, {d_model}]",
            embedding.dims()
        );
        AttnResState::new(embedding, self.schedule.clone())
    }

    /// What each read mixes.
    pub fn schedule(&self) -> &Schedule {
        &self.schedule
    }

    /// Read number `read` over these sources.
    pub(crate) fn mix(&self, read: usize, sources: &[Tensor<3>]) -> Tensor<3> {
        let DepthRead { query, gamma } = &self.reads[read];
        depth_attention(sources, query.val(), gamma.val(), self.eps)
    }
}
