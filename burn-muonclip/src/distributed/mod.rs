//! MuonClip over several workers, each with a part of the optimizer (ZeRO-1).
//!
//! Every worker has the whole model and computes the gradients of its share of the batch. Each parameter has one owner among them, and one step is
//!
//! 1. **reduce**: the owner adds up the gradients of all workers, in the order of their ranks;
//! 2. **update**: it advances its momentum, orthogonalises and moves the weight, all owners at the same time;
//! 3. **broadcast**: it sends the new weight to the others;
//! 4. **QK-Clip**: every worker clips by the largest logits of all.
//!
//! Nothing is computed twice, and nobody but the owner has a parameter's state, so each of `N` workers holds about an `N`th of it. Whole matrices
//! go to one owner, so Newton-Schulz needs no communication of its own: `8 (N - 1)` bytes an `f32` parameter and step in all, those of an
//! all-reduce (Moonlight's own ZeRO-1 needs a quarter more, [arXiv:2502.16982](https://arxiv.org/abs/2502.16982), section 2.3; whole matrices to one
//! worker is Megatron's layer-wise optimizer).
//!
//! One thread has the tensors of all workers and says what happens, as with Burn's own collectives from 0.23 on. A worker is a
//! [`Device`](burn::tensor::Device): the same one several times, several GPUs, or Burn's remote devices, which are how a step leaves the machine.
//!
//! * [`DistributedMuonClip`]: the optimizer.
//! * [`Collective`]: how tensors come from one worker to another; [`Transfers`] works between any devices.
//! * [`Workers`]: runs what the workers do beside each other, and turns one that died or fell silent into an error with its name.

mod broadcast;
mod collective;
#[cfg(feature = "cuda")]
mod nccl;
mod optimizer;
mod owners;
mod pulse;
mod reduce;
mod threads;
mod workers;

pub use collective::{Collective, Transfers};
#[cfg(feature = "cuda")]
pub use nccl::Nccl;
pub use optimizer::DistributedMuonClip;
pub use owners::{Owners, Share};
pub use workers::{Worker, WorkerError, Workers};
