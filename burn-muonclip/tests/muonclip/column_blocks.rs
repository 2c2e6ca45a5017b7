//! Parameters that are several matrices side by side.

use burn::module::{Module, Param, ParamGroup};
use burn::optim::{GradientsParams, Optimizer};
use burn::tensor::Tensor;
use burn_muonclip::{ColumnBlocks, MuonClipConfig, MuonConfig, Route};

use crate::models::{noise, tensor, training_device, values};

const ROWS: usize = 6;

#[derive(Module, Debug)]
struct Projection {
    weight: Param<Tensor<2>>,
    other: Param<Tensor<2>>,
}

fn projection(columns: usize) -> Projection {
    let param = |seed, columns| {
        let value = tensor::<2>(&noise(seed, ROWS * columns), [ROWS, columns]);
        Param::from_tensor(Tensor::from_inner(value).to_device(&training_device()))
    };
    Projection {
        weight: param(1, columns),
        other: param(2, 4),
    }
}

fn gradient(seed: u64, columns: usize) -> Tensor<2> {
    tensor(&noise(seed, ROWS * columns), [ROWS, columns])
}

fn config(blocks: ColumnBlocks) -> MuonClipConfig {
    MuonClipConfig::new()
        .with_muon(ParamGroup::all())
        .with_column_blocks(ParamGroup::from_path("weight"), blocks)
}

/// The weight after two steps in which every block was a parameter of its own.
fn apart(columns: usize, blocks: &[Vec<usize>]) -> Vec<f64> {
    let muon = MuonConfig::new().build();
    let start = projection(columns).weight.val().inner();
    let take = |x: &Tensor<2>, block: &[usize]| {
        let columns = block.iter().map(|&c| x.clone().narrow(1, c, 1)).collect();
        Tensor::cat(columns, 1)
    };
    let mut result = vec![0.0; ROWS * columns];
    for block in blocks {
        let (mut weight, mut state) = (take(&start, block), None);
        for seed in [7, 8] {
            let grad = take(&gradient(seed, columns), block);
            (weight, state) = muon.step(0.1, weight, grad, state);
        }
        for (at, value) in values(&weight).into_iter().enumerate() {
            let (row, column) = (at / block.len(), at % block.len());
            result[row * columns + block[column]] = value;
        }
    }
    result
}

fn steps(
    columns: usize,
    mut step: impl FnMut(Projection, GradientsParams) -> Projection,
) -> Vec<f64> {
    let mut model = projection(columns);
    for seed in [7, 8] {
        let mut grads = GradientsParams::new();
        grads.register(model.weight.id, gradient(seed, columns));
        grads.register(model.other.id, gradient(seed + 10, 4));
        model = step(model, grads);
    }
    values(&model.weight.val())
}

fn check(columns: usize, blocks: ColumnBlocks, wanted: &[Vec<usize>]) {
    let wanted = apart(columns, wanted);
    let model = projection(columns);
    let mut fused = config(blocks.clone()).init_fused(&model);
    let mut grouped = config(blocks).init(&model);
    let fused = steps(columns, |model, grads| fused.step(0.1, model, grads));
    let grouped = steps(columns, |model, grads| grouped.step(0.1, model, grads));
    for found in [fused, grouped] {
        for (x, y) in found.iter().zip(&wanted) {
            assert!((x - y).abs() < 1e-6, "{x} instead of {y}");
        }
    }
}

#[test]
fn the_parts_of_a_fused_projection_are_trained_like_projections_of_their_own() {
    let wanted = [(0..8).collect(), (8..12).collect(), (12..15).collect()];
    check(15, ColumnBlocks::Split(vec![8, 4, 3]), &wanted);
}

#[test]
fn heads_are_matrices_of_their_own() {
    let wanted: Vec<Vec<usize>> = (0..3).map(|h| (4 * h..4 * h + 4).collect()).collect();
    check(12, ColumnBlocks::Heads(3), &wanted);
}

#[test]
fn keys_and_values_of_latent_attention_are_told_apart() {
    let widths = vec![2, 3];
    let runs = || (0..3).map(|head| 5 * head);
    let keys: Vec<usize> = runs().flat_map(|first| first..first + 2).collect();
    let heads_values: Vec<usize> = runs().flat_map(|first| first + 2..first + 5).collect();
    let parts = ColumnBlocks::Parts {
        widths: widths.clone(),
        heads: 3,
    };
    check(15, parts, &[keys, heads_values]);
    let each = runs().flat_map(|first| {
        [
            (first..first + 2).collect(),
            (first + 2..first + 5).collect(),
        ]
    });
    let parts = ColumnBlocks::HeadParts { widths, heads: 3 };
    check(15, parts, &each.collect::<Vec<_>>());
}

#[test]
fn one_block_is_the_whole() {
    check(9, ColumnBlocks::Split(vec![9]), &[(0..9).collect()]);
    check(9, ColumnBlocks::Heads(1), &[(0..9).collect()]);
}

#[test]
fn every_matrix_of_a_stack_is_cut_alike() {
    let blocks = ColumnBlocks::Split(vec![3, 5]);
    let muon = MuonConfig::new().with_column_blocks(Some(blocks)).build();
    let weight = tensor::<3>(&noise(1, 2 * 6 * 8), [2, 6, 8]);
    let grad = tensor::<3>(&noise(2, 2 * 6 * 8), [2, 6, 8]);
    let (whole, _) = muon.step(0.1, weight.clone(), grad.clone(), None);
    for index in 0..2 {
        let one = |x: &Tensor<3>| x.clone().narrow(0, index, 1).squeeze_dim::<2>(0);
        let (alone, _) = muon.step(0.1, one(&weight), one(&grad), None);
        for (x, y) in values(&one(&whole)).iter().zip(values(&alone)) {
            assert!((x - y).abs() < 1e-6);
        }
    }
}

#[test]
fn the_report_counts_every_block_and_states_stay_whole() {
    let model = projection(12);
    let mut optimizer = config(ColumnBlocks::Heads(3)).init_fused(&model);
    steps(12, |model, grads| optimizer.step(0.1, model, grads));
    // Three heads of 6 x 4, and the other parameter of the same shape, in one call.
    let report = optimizer.last_report().unwrap();
    assert_eq!((report.muon_matrices, report.newton_schulz_calls), (4, 1));
    let bytes = optimizer.into_bytes().unwrap();
    MuonClipConfig::new()
        .with_muon(ParamGroup::all())
        .init_fused(&model)
        .from_bytes(bytes)
        .expect("the momentum is that of the whole parameter");
}

#[test]
fn the_plan_says_what_is_cut() {
    let plan = config(ColumnBlocks::Heads(3))
        .plan(&projection(12))
        .unwrap();
    assert!(plan.to_string().contains("columns of [4, 4, 4]"));
    assert!(plan.get("other").unwrap().blocks.is_none());
    let adamw = config(ColumnBlocks::Heads(3)).with_adamw(ParamGroup::from_path("weight"));
    let plan = adamw.plan(&projection(12)).unwrap();
    let entry = plan.get("weight").unwrap();
    assert!(entry.route == Route::AdamW && entry.blocks.is_none());
    let nobody = MuonClipConfig::new()
        .with_column_blocks(ParamGroup::from_path("nowhere"), ColumnBlocks::Heads(2));
    assert_eq!(
        nobody.plan(&projection(12)).unwrap().unmatched_blocks(),
        [0]
    );
}

#[test]
fn blocks_that_do_not_fit_are_refused_by_path() {
    let error = config(ColumnBlocks::Heads(5))
        .plan(&projection(12))
        .unwrap_err();
    assert_eq!(
        error.to_string(),
        "parameter `weight` has shape [6, 12], whose last axis is not made up by Heads(5)"
    );
}

#[test]
fn configurations_are_stored_with_their_blocks() {
    use burn::config::Config;
    let config = config(ColumnBlocks::Parts {
        widths: vec![2, 3],
        heads: 3,
    });
    let file = tempfile::NamedTempFile::new().unwrap();
    config.save(file.path()).unwrap();
    let loaded = MuonClipConfig::load(file.path()).unwrap();
    assert_eq!(
        loaded.block_overrides[0].blocks,
        config.block_overrides[0].blocks
    );
}
