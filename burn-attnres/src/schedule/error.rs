//! Plans that no stack can follow.

use super::BlockPlan;

/// Why a [`BlockPlan`] does not fit a stack.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ScheduleError {
    /// The stack is empty.
    #[error("a schedule needs at least one sub-layer, got 0")]
    NoSublayers,
    /// Blocks of size 0.
    #[error("the plan `{plan}` makes empty blocks; a block needs a size of at least 1")]
    EmptyBlocks {
        /// The plan.
        plan: BlockPlan,
    },
    /// Zero blocks.
    #[error("the plan has 0 blocks; a stack needs at least 1")]
    NoBlocks,
    /// A block would have no sub-layer.
    #[error(
        "{blocks} blocks cannot be made of {sublayers} sub-layers; ask for at most {sublayers} blocks"
    )]
    MoreBlocksThanSublayers {
        /// The number of blocks asked for.
        blocks: usize,
        /// The number of sub-layers of the stack.
        sublayers: usize,
    },
}
