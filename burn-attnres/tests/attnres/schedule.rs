//! The schedule against the equations of the paper, written out independently.

use burn_attnres::{BlockPlan, Schedule, ScheduleError, Source};
use proptest::prelude::*;

/// A source as the list of what it sums: `None` is the embedding, `Some(l)` the output of sub-layer `l` (from 0).
type Terms = Vec<Option<usize>>;

/// Equations 5 and 6 for blocks of `s` sub-layers, with the paper's numbers from 1: layer `l` is the `i`-th of
/// block `n`, and reads `b_0 .. b_{n-1}` and, from the second on, the sum of the first `i - 1` layers of block `n`.
/// The output reads all blocks.
fn equation_6(s: usize, layers: usize) -> Vec<Vec<Terms>> {
    let block = |n: usize| -> Terms {
        match n {
            0 => vec![None],
            _ => ((n - 1) * s + 1..=(n * s).min(layers))
                .map(|l| Some(l - 1))
                .collect(),
        }
    };
    let mut reads = Vec::new();
    for l in 1..=layers {
        let n = (l - 1) / s + 1;
        let i = l - (n - 1) * s;
        let mut sources: Vec<Terms> = (0..n).map(block).collect();
        if i >= 2 {
            sources.push((l - i + 1..l).map(|j| Some(j - 1)).collect());
        }
        reads.push(sources);
    }
    reads.push((0..=layers.div_ceil(s)).map(block).collect());
    reads
}

/// The same from a schedule: its source names, spelled out by the sizes of its blocks.
fn spelled_out(schedule: &Schedule) -> Vec<Vec<Terms>> {
    let sizes = schedule.block_sizes();
    let start = |block: usize| sizes[..block - 1].iter().sum::<usize>();
    (0..schedule.reads())
        .map(|read| {
            let terms = |source| match source {
                Source::Embedding => vec![None],
                Source::Block(b) => (start(b)..start(b) + sizes[b - 1]).map(Some).collect(),
                Source::Partial(b) => (start(b)..read).map(Some).collect(),
            };
            schedule.sources(read).into_iter().map(terms).collect()
        })
        .collect()
}

fn schedule(plan: BlockPlan, sublayers: usize) -> Schedule {
    Schedule::new(plan, sublayers).expect("a possible plan")
}

proptest! {
    #[test]
    fn agrees_with_equation_6(size in 1usize..20, sublayers in 1usize..60) {
        let schedule = schedule(BlockPlan::SublayersPerBlock(size), sublayers);
        prop_assert_eq!(spelled_out(&schedule), equation_6(size, sublayers));
    }

    #[test]
    fn every_output_is_read_once_by_the_output_read(blocks in 1usize..30, more in 0usize..60) {
        let sublayers = blocks + more;
        let schedule = schedule(BlockPlan::NumBlocks(blocks), sublayers);
        prop_assert_eq!(schedule.blocks(), blocks);
        let reads = spelled_out(&schedule);
        let terms: Terms = reads[sublayers].concat();
        let want: Terms = std::iter::once(None).chain((0..sublayers).map(Some)).collect();
        prop_assert_eq!(terms, want);
    }

    #[test]
    fn blocks_close_at_their_last_sublayer(size in 1usize..9, sublayers in 1usize..40) {
        let schedule = schedule(BlockPlan::SublayersPerBlock(size), sublayers);
        for l in 0..sublayers {
            prop_assert_eq!(schedule.block_of(l), l / size + 1);
            prop_assert_eq!(schedule.closes_block(l), (l + 1) % size == 0 || l + 1 == sublayers);
        }
    }
}

#[test]
fn full_reads_everything_before() {
    let full = schedule(BlockPlan::Full, 6);
    assert_eq!(full.sources_per_read(), [1, 2, 3, 4, 5, 6, 7]);
    assert_eq!(full, schedule(BlockPlan::SublayersPerBlock(1), 6));
    assert_eq!(full, schedule(BlockPlan::NumBlocks(6), 6));
    assert_eq!(
        full.sources(2),
        [Source::Embedding, Source::Block(1), Source::Block(2)]
    );
}

#[test]
fn sources_per_read_of_blocks() {
    let counts = |size, sublayers| {
        schedule(BlockPlan::SublayersPerBlock(size), sublayers).sources_per_read()
    };
    assert_eq!(counts(2, 8), [1, 2, 2, 3, 3, 4, 4, 5, 5]);
    assert_eq!(counts(6, 6), [1, 2, 2, 2, 2, 2, 2]);
    assert_eq!(counts(3, 7), [1, 2, 2, 2, 3, 3, 3, 4]);
}

#[test]
fn the_last_block_may_be_short() {
    let short = schedule(BlockPlan::SublayersPerBlock(3), 7);
    assert_eq!(short.block_sizes(), [3, 3, 1]);
    assert_eq!(short.sources(7).len(), 4);
    let larger_than_the_stack = schedule(BlockPlan::SublayersPerBlock(usize::MAX), 7);
    assert_eq!(larger_than_the_stack.block_sizes(), [7]);
    let larger_than_the_stack = schedule(BlockPlan::LayersPerBlock(usize::MAX), 7);
    assert_eq!(larger_than_the_stack.block_sizes(), [7]);
}

/// Kimi K3: 93 transformer layers, 12 to a block. It seals the stream into its bank before layers 0, 12, .. 84
/// (8 slots, the first is the embedding), and its output read has 9 sources.
#[test]
fn the_released_k3_boundaries() {
    let k3 = schedule(BlockPlan::LayersPerBlock(12), 2 * 93);
    let sealed_before: Vec<usize> = (1..93)
        .filter(|layer| k3.closes_block(2 * layer - 1))
        .collect();
    assert_eq!(sealed_before, [12, 24, 36, 48, 60, 72, 84]);
    assert!((0..k3.sublayers() - 1).all(|l| !k3.closes_block(l) || l % 2 == 1));

    let bank = |read: usize| {
        let sources = k3.sources(read);
        let partial = |source: &Source| matches!(source, Source::Partial(_));
        sources.iter().filter(|source| !partial(source)).count()
    };
    assert_eq!((bank(0), bank(2 * 84), bank(185)), (1, 8, 8));
    assert_eq!(k3.sources(186).len(), 9);
    assert_eq!(k3.block_sizes(), [24, 24, 24, 24, 24, 24, 24, 18]);
    assert_eq!(k3, schedule(BlockPlan::NumBlocks(8), 186));
}

/// The 48B model of the paper: 27 transformer layers, 6 sub-layers to a block, 9 blocks and the embedding.
#[test]
fn the_paper_48b_model() {
    let plan = schedule(BlockPlan::SublayersPerBlock(6), 54);
    assert_eq!(plan, schedule(BlockPlan::LayersPerBlock(3), 54));
    assert_eq!(plan, schedule(BlockPlan::NumBlocks(9), 54));
    assert_eq!(plan.sources(54).len(), 10);
}

#[test]
fn blocks_that_do_not_divide_the_stack() {
    let sizes = |blocks, sublayers| schedule(BlockPlan::NumBlocks(blocks), sublayers).block_sizes();
    assert_eq!(sizes(8, 54), [7, 7, 7, 7, 7, 7, 7, 5]);
    // Equal sizes with a short last block would make 6 blocks here, not 8.
    assert_eq!(sizes(8, 12), [2, 2, 2, 2, 1, 1, 1, 1]);
}

#[test]
fn impossible_plans_are_typed_errors() {
    let error = |plan, sublayers| Schedule::new(plan, sublayers).expect_err("an error");
    assert_eq!(error(BlockPlan::Full, 0), ScheduleError::NoSublayers);
    for plan in [
        BlockPlan::SublayersPerBlock(0),
        BlockPlan::LayersPerBlock(0),
    ] {
        assert_eq!(error(plan, 4), ScheduleError::EmptyBlocks { plan });
    }
    assert_eq!(error(BlockPlan::NumBlocks(0), 4), ScheduleError::NoBlocks);
    let too_many = error(BlockPlan::NumBlocks(5), 4);
    assert_eq!(
        too_many,
        ScheduleError::MoreBlocksThanSublayers {
            blocks: 5,
            sublayers: 4
        }
    );
    assert_eq!(
        too_many.to_string(),
        "5 blocks cannot be made of 4 sub-layers; ask for at most 4 blocks"
    );
    assert_eq!(
        error(BlockPlan::LayersPerBlock(0), 4).to_string(),
        "the plan `blocks of 0 layers` makes empty blocks; a block needs a size of at least 1"
    );
}

#[test]
fn prints_reads_and_boundaries() {
    let printed = schedule(BlockPlan::SublayersPerBlock(2), 5).to_string();
    assert_eq!(
        printed,
        "\
5 sub-layers in 3 blocks
  read  n  sources
     0  1  embedding
     1  2  embedding, partial 1
           block 1 closes after sub-layer 1 (size 2)
     2  2  embedding, block 1
     3  3  embedding, block 1, partial 2
           block 2 closes after sub-layer 3 (size 2)
     4  3  embedding, blocks 1-2
           block 3 closes after sub-layer 4 (size 1)
output  4  embedding, blocks 1-3"
    );
}
