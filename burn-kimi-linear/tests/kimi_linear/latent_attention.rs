use burn::module::{Module, ModuleMapper, Param};
use burn::tensor::{DType, Device, Tensor};
use burn_kimi_linear::{MultiHeadLatentAttention, MultiHeadLatentAttentionConfig};

use crate::closeness::{assert_close, values};
use crate::draws::normal_on;

const D_MODEL: usize = 10;
const HEADS: usize = 2;
const LATENT: usize = 6;
const NOPE: usize = 4;
const ROPE: usize = 3;
const VALUE: usize = 5;

fn config() -> MultiHeadLatentAttentionConfig {
    MultiHeadLatentAttentionConfig::new(D_MODEL, HEADS, LATENT, NOPE, ROPE, VALUE)
}

fn layer() -> MultiHeadLatentAttention {
    config().init(&Device::flex())
}

fn random(shape: [usize; 3]) -> Tensor<3> {
    normal_on(shape, &Device::flex())
}

/// Row vector times Burn's `[in, out]` weight.
fn project(x: &[f64], weight: &[f64], out: usize) -> Vec<f64> {
    (0..out)
        .map(|o| {
            x.iter()
                .enumerate()
                .map(|(i, x)| x * weight[i * out + o])
                .sum()
        })
        .collect()
}

/// The layer for one sequence, in `f64`, pair by pair.
fn formula(layer: &MultiHeadLatentAttention, x: &[f64]) -> Vec<f64> {
    let q_proj = values(layer.q_proj.weight.val());
    let kv_a = values(layer.kv_a_proj_with_mqa.weight.val());
    let kv_b = values(layer.kv_b_proj.weight.val());
    let o_proj = values(layer.o_proj.weight.val());
    let rows: Vec<&[f64]> = x.chunks(D_MODEL).collect();
    let compressed: Vec<Vec<f64>> = rows
        .iter()
        .map(|x| project(x, &kv_a, LATENT + ROPE))
        .collect();
    let expanded: Vec<Vec<f64>> = compressed
        .iter()
        .map(|c| {
            let square = c[..LATENT].iter().map(|x| x * x).sum::<f64>() / LATENT as f64;
            let unit: Vec<f64> = c[..LATENT]
                .iter()
                .map(|x| x / (square + 1e-6).sqrt())
                .collect();
            project(&unit, &kv_b, HEADS * (NOPE + VALUE))
        })
        .collect();
    let mut outputs = Vec::new();
    for (t, row) in rows.iter().enumerate() {
        let q = project(row, &q_proj, HEADS * (NOPE + ROPE));
        let mut heads = Vec::new();
        for h in 0..HEADS {
            let q = &q[h * (NOPE + ROPE)..][..NOPE + ROPE];
            let scores: Vec<f64> = (0..=t)
                .map(|s| {
                    let own = &expanded[s][h * (NOPE + VALUE)..][..NOPE];
                    let key = own.iter().chain(&compressed[s][LATENT..]);
                    let dot: f64 = q.iter().zip(key).map(|(q, k)| q * k).sum();
                    (dot / ((NOPE + ROPE) as f64).sqrt()).exp()
                })
                .collect();
            let total: f64 = scores.iter().sum();
            for e in 0..VALUE {
                let value = |s: usize| expanded[s][h * (NOPE + VALUE) + NOPE + e];
                heads.push((0..=t).map(|s| scores[s] / total * value(s)).sum());
            }
        }
        outputs.extend(project(&heads, &o_proj, D_MODEL));
    }
    outputs
}

#[test]
fn matches_its_formula() {
    let (layer, x) = (layer(), random([2, 7, D_MODEL]));
    let got = values(layer.forward(x.clone()));
    let x = values(x);
    let want: Vec<f64> = x
        .chunks(7 * D_MODEL)
        .flat_map(|x| formula(&layer, x))
        .collect();
    assert_close("y", &got, &want, 1e-5);
}

#[test]
fn by_pieces_equals_one_pass() {
    let (layer, x) = (layer(), random([2, 9, D_MODEL]));
    let want = values(layer.forward(x.clone()));
    for pieces in [&[1; 9][..], &[4, 5], &[8, 1], &[3, 0, 6]] {
        let (mut state, mut at, mut outputs) = (None, 0, Vec::new());
        for &tokens in pieces {
            let (y, next) =
                layer.forward_with_state(x.clone().slice_dim(1, at..at + tokens), state);
            at += tokens;
            assert_eq!(next.tokens(), at);
            state = Some(next);
            outputs.extend((tokens > 0).then_some(y));
        }
        assert_close(
            &format!("{pieces:?}"),
            &values(Tensor::cat(outputs, 1)),
            &want,
            1e-5,
        );
    }
}

/// Without a positional encoding the order of earlier tokens does not show.
#[test]
fn earlier_tokens_have_no_order() {
    let (layer, x) = (layer(), random([1, 6, D_MODEL]));
    let order: Vec<_> = [3, 0, 2, 1, 4, 5].map(|t| x.clone().narrow(1, t, 1)).into();
    let last = |y: Tensor<3>| values(y.narrow(1, 5, 1));
    let shuffled = layer.forward(Tensor::cat(order, 1));
    assert_close("last token", &last(shuffled), &last(layer.forward(x)), 1e-5);
}

#[test]
fn remembers_only_the_latent_and_the_shared_key() {
    let (_, state) = layer().forward_with_state(random([2, 5, D_MODEL]), None);
    assert_eq!(state.latent.dims(), [2, 5, LATENT]);
    assert_eq!(state.shared_key.dims(), [2, 5, ROPE]);
}

#[test]
fn works_without_a_shared_key() {
    let layer = MultiHeadLatentAttentionConfig::new(D_MODEL, HEADS, LATENT, NOPE, 0, VALUE)
        .init(&Device::flex());
    let y = layer.forward(random([1, 4, D_MODEL]));
    assert_eq!(y.dims(), [1, 4, D_MODEL]);
}

#[test]
fn large_logits_stay_finite() {
    let y = layer().forward(random([1, 5, D_MODEL]) * 1e4);
    assert!(values(y).iter().all(|y| y.is_finite()));
}

/// Logits beyond the range of `f16` must not pass through it on their way to the softmax.
#[test]
fn scores_of_half_precision_inputs_are_f32() {
    let config = MultiHeadLatentAttentionConfig::new(4, 1, 4, 4, 0, 4);
    for dtype in [DType::F16, DType::BF16] {
        let layer = config.init(&Device::flex()).map(&mut Store(dtype));
        let y = layer.forward(random([1, 5, 4]).cast(dtype) * 2e4);
        assert_eq!(y.dtype(), dtype);
        assert!(values(y).iter().all(|y| !y.is_nan()), "{dtype:?}");
    }
}

/// Stores every parameter in another dtype.
struct Store(DType);

impl ModuleMapper for Store {
    fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
        let (id, value, mapper) = param.consume();
        Param::from_mapped_value(id, value.cast(self.0), mapper)
    }
}

#[test]
fn nothing_in_gives_nothing_out() {
    let layer = layer();
    for shape in [[2, 0, D_MODEL], [0, 4, D_MODEL], [0, 0, D_MODEL]] {
        let [batch, tokens, _] = shape;
        let (y, state) = layer.forward_with_state(random(shape), None);
        assert_eq!(y.dims(), shape);
        assert_eq!(state.latent.dims(), [batch, tokens, LATENT]);
        let (_, after) = layer.forward_with_state(random([batch, 3, D_MODEL]), Some(state));
        assert_eq!(after.tokens(), tokens + 3);
    }
}

#[test]
fn every_parameter_gets_a_gradient() {
    let device = Device::flex().autodiff();
    let layer = config().init(&device);
    let x = normal_on([2, 5, D_MODEL], &device);
    let grads = layer.forward(x).square().sum().backward();
    let grads = burn::optim::GradientsParams::from_grads(grads, &layer);
    assert_eq!(grads.len(), 5);
}

#[test]
fn a_saved_layer_loads_the_same() {
    let (layer, x) = (layer(), random([1, 5, D_MODEL]));
    let loaded = config()
        .init(&Device::flex())
        .load_record(layer.clone().into_record());
    assert_eq!(
        loaded.forward(x.clone()).into_data(),
        layer.forward(x).into_data()
    );
}
