//! How sub-layers are grouped into blocks.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::ScheduleError;

/// How the sub-layers of a stack are grouped into blocks; the name of each variant says its unit.
///
/// The same number means different things elsewhere: `block_size` counts sub-layers in the paper, and
/// transformer layers in the released Kimi K3 configuration.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum BlockPlan {
    /// Every sub-layer is a block of its own: Full Attention Residuals.
    Full,
    /// Blocks of this many sub-layers; the last one holds what is left and may be shorter.
    SublayersPerBlock(usize),
    /// Blocks of this many transformer layers, each of two sub-layers; the last one may be shorter.
    LayersPerBlock(usize),
    /// Exactly this many blocks. Their size is `L / N` rounded up, with a shorter last block; where that
    /// would make fewer blocks, sizes differ by at most one and the larger blocks come first.
    NumBlocks(usize),
}

impl BlockPlan {
    /// The number of sub-layers of every block, in order; none is 0, and they add up to `sublayers`.
    pub(super) fn block_sizes(self, sublayers: usize) -> Result<Vec<usize>, ScheduleError> {
        if sublayers == 0 {
            return Err(ScheduleError::NoSublayers);
        }
        match self {
            Self::Full => Ok(vec![1; sublayers]),
            Self::SublayersPerBlock(0) | Self::LayersPerBlock(0) => {
                Err(ScheduleError::EmptyBlocks { plan: self })
            }
            Self::SublayersPerBlock(size) => Ok(equal_blocks(size, sublayers)),
            Self::LayersPerBlock(layers) => Ok(equal_blocks(layers.saturating_mul(2), sublayers)),
            Self::NumBlocks(0) => Err(ScheduleError::NoBlocks),
            Self::NumBlocks(blocks) if blocks > sublayers => {
                Err(ScheduleError::MoreBlocksThanSublayers { blocks, sublayers })
            }
            Self::NumBlocks(blocks) => {
                let sizes = equal_blocks(sublayers.div_ceil(blocks), sublayers);
                if sizes.len() == blocks {
                    Ok(sizes)
                } else {
                    Ok(near_equal_blocks(blocks, sublayers))
                }
            }
        }
    }
}

impl fmt::Display for BlockPlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Full => write!(f, "full"),
            Self::SublayersPerBlock(n) => write!(f, "blocks of {n} sub-layers"),
            Self::LayersPerBlock(n) => write!(f, "blocks of {n} layers"),
            Self::NumBlocks(n) => write!(f, "{n} blocks"),
        }
    }
}

fn equal_blocks(size: usize, sublayers: usize) -> Vec<usize> {
    let mut sizes = vec![size; sublayers / size];
    if !sublayers.is_multiple_of(size) {
        sizes.push(sublayers % size);
    }
    sizes
}

fn near_equal_blocks(blocks: usize, sublayers: usize) -> Vec<usize> {
    let larger = sublayers % blocks;
    (0..blocks)
        .map(|block| sublayers / blocks + usize::from(block < larger))
        .collect()
}
