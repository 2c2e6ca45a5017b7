//! Which outputs each read mixes: plain data, without tensors.

mod display;
mod error;
mod plan;

pub use error::ScheduleError;
pub use plan::BlockPlan;

/// One operand of a read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Source {
    /// The embedding, block 0 of the paper.
    Embedding,
    /// The sum of the outputs of all sub-layers of this block (from 1).
    Block(usize),
    /// The running sum of this block (from 1), over those of its sub-layers that came before the read.
    Partial(usize),
}

/// The sources of every read of a stack, and where its blocks close.
///
/// A stack has `L` *sub-layers*; each attention and each feed-forward counts as one, so a transformer layer is
/// two. Sub-layer `l` starts with read `l`, and one more read, number `L`, makes the output of the stack. Blocks
/// group consecutive sub-layers. A read mixes the embedding, the sum of every finished block, and the running
/// sum of the current block once that has a term (arXiv 2603.15031, equations 5 and 6; with blocks of one
/// sub-layer these are equations 1 to 4).
///
/// Sub-layers and reads count from 0. Blocks count from 1, as in the paper, whose block 0 is the embedding.
///
/// ```
/// use burn_attnres::{BlockPlan, Schedule, Source};
///
/// let schedule = Schedule::new(BlockPlan::SublayersPerBlock(3), 7)?;
/// assert_eq!(schedule.block_sizes(), [3, 3, 1]);
/// assert_eq!(schedule.sources_per_read(), [1, 2, 2, 2, 3, 3, 3, 4]);
/// assert_eq!(
///     schedule.sources(4),
///     [Source::Embedding, Source::Block(1), Source::Partial(2)]
/// );
/// println!("{schedule}");
/// # Ok::<(), burn_attnres::ScheduleError>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Schedule {
    /// For each block, the number of sub-layers up to and including its last: increasing, ending in `L`.
    block_ends: Vec<usize>,
}

impl Schedule {
    /// Groups `sublayers` sub-layers by `plan`.
    ///
    /// # Errors
    ///
    /// If there are no sub-layers, if the plan asks for empty blocks, or for more blocks than sub-layers.
    pub fn new(plan: BlockPlan, sublayers: usize) -> Result<Self, ScheduleError> {
        let mut end = 0;
        let block_ends = plan
            .block_sizes(sublayers)?
            .into_iter()
            .map(|size| {
                end += size;
                end
            })
            .collect();
        Ok(Self { block_ends })
    }

    /// The number of sub-layers, `L`.
    pub fn sublayers(&self) -> usize {
        *self.block_ends.last().expect("a schedule has a block")
    }

    /// The number of reads, `L + 1`: one before every sub-layer, and the output read.
    pub fn reads(&self) -> usize {
        self.sublayers() + 1
    }

    /// The number of blocks, `N`, without the embedding.
    pub fn blocks(&self) -> usize {
        self.block_ends.len()
    }

    /// The number of sub-layers of every block, in order.
    pub fn block_sizes(&self) -> Vec<usize> {
        (1..=self.blocks())
            .map(|block| self.block_ends[block - 1] - self.block_start(block))
            .collect()
    }

    /// The block (from 1) that a sub-layer adds to.
    ///
    /// # Panics
    ///
    /// If there is no such sub-layer.
    pub fn block_of(&self, sublayer: usize) -> usize {
        assert!(
            sublayer < self.sublayers(),
            "Schedule: sub-layer {sublayer} of {}, numbered from 0",
            self.sublayers()
        );
        1 + self.block_ends.partition_point(|&end| end <= sublayer)
    }

    /// Whether a block is complete once this sub-layer has written its output.
    ///
    /// # Panics
    ///
    /// If there is no such sub-layer.
    pub fn closes_block(&self, sublayer: usize) -> bool {
        self.block_ends[self.block_of(sublayer) - 1] == sublayer + 1
    }

    /// What a read mixes, in order: the embedding, the finished blocks, the running sum.
    ///
    /// # Panics
    ///
    /// If there is no such read; the last one is the output read, number [`sublayers`](Self::sublayers).
    pub fn sources(&self, read: usize) -> Vec<Source> {
        assert!(
            read < self.reads(),
            "Schedule: read {read} of {}, numbered from 0",
            self.reads()
        );
        let finished = self.block_ends.partition_point(|&end| end <= read);
        let mut sources = vec![Source::Embedding];
        sources.extend((1..=finished).map(Source::Block));
        let current = finished + 1;
        if read > self.block_start(current) {
            sources.push(Source::Partial(current));
        }
        sources
    }

    /// The number of sources of every read, the output read last.
    pub fn sources_per_read(&self) -> Vec<usize> {
        (0..self.reads())
            .map(|read| self.sources(read).len())
            .collect()
    }

    /// The first sub-layer of a block; `L` for the block after the last, which has none.
    fn block_start(&self, block: usize) -> usize {
        match block {
            1 => 0,
            _ => self.block_ends[block - 2],
        }
    }
}
