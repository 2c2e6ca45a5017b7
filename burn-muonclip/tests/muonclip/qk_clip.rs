//! QK-Clip: what is scaled by how much, and what is left alone.

use burn::module::{Module, Param};
use burn::nn::attention::{MultiHeadAttention, MultiHeadAttentionConfig};
use burn::nn::{Linear, LinearConfig, RmsNorm, RmsNormConfig};
use burn::tensor::{Bool, DType, Device, Distribution, Tensor};
use burn_muonclip::qk_clip::{
    AttentionInput, HeadColumns, LatentWidths, LogitMaxima, LogitRecorder, QkClip, QkClipConfig,
    QkClipError, QkLayer, QkSide, Unclippable, attend,
};
use burn_muonclip::{MaxLogitOptions, max_logit};

const WIDTH: usize = 24;
const HEADS: usize = 4;

fn device() -> Device {
    Device::default()
}

fn training() -> Device {
    device().autodiff()
}

fn numbers<const D: usize>(x: &Tensor<D>) -> Vec<f32> {
    x.clone().into_data().iter::<f32>().collect()
}

fn random<const D: usize>(shape: [usize; D], scale: f64) -> Tensor<D> {
    Tensor::random(shape, Distribution::Normal(0.0, scale), &device())
}

fn attention() -> MultiHeadAttention {
    MultiHeadAttentionConfig::new(WIDTH, HEADS)
        .with_dropout(0.0)
        .init(&training())
}

fn tracked(x: &Tensor<3>) -> Tensor<3> {
    Tensor::from_inner(x.clone())
}

/// The logits of the attention on `x`, one by one, without [`max_logit`].
fn logits(
    attention: &MultiHeadAttention,
    x: &Tensor<3>,
    mask: Option<Tensor<3, Bool>>,
) -> Vec<f32> {
    let [batch, tokens, _] = x.dims();
    let heads = |linear: &Linear| {
        linear
            .forward(tracked(x))
            .reshape([batch, tokens, HEADS, WIDTH / HEADS])
            .swap_dims(1, 2)
    };
    let scores = heads(&attention.query).matmul(heads(&attention.key).swap_dims(2, 3));
    let mut scores = scores.div_scalar((WIDTH as f64 / HEADS as f64).sqrt());
    if let Some(mask) = mask {
        scores = scores.mask_fill(mask.unsqueeze_dim::<4>(1), f32::NEG_INFINITY);
    }
    numbers(
        &scores
            .max_dim(3)
            .max_dim(2)
            .max_dim(0)
            .inner()
            .reshape([HEADS]),
    )
}

fn clip_of(attention: &MultiHeadAttention, threshold: f64, recorder: &LogitRecorder) -> QkClip {
    QkClipConfig::new()
        .with_threshold(threshold)
        .init(
            attention,
            vec![QkLayer::multi_head("attention", attention)],
            recorder.clone(),
        )
        .unwrap()
}

/// A threshold that about half of the heads exceed.
fn between(logits: &[f32]) -> f64 {
    let mut sorted = logits.to_vec();
    sorted.sort_by(f32::total_cmp);
    f64::from(sorted[1] + sorted[2]) / 2.0
}

#[test]
fn a_clipped_head_comes_back_at_the_threshold_and_others_keep_their_bits() {
    let before = attention();
    let x = random([2, 9, WIDTH], 6.0);
    let recorder = LogitRecorder::new();
    let were = logits(&before, &x, None);
    let threshold = between(&were);
    let clip = clip_of(&before, threshold, &recorder);
    attend(
        &before,
        AttentionInput::self_attn(tracked(&x)),
        &recorder,
        Some(threshold),
    );
    let after = clip.apply(before.clone());

    let are = logits(&after, &x, None);
    let report = clip.last_report().unwrap();
    assert_eq!(report.clipped(), 2);
    assert_eq!(report.share_ever_clipped(), 0.5);
    let width = WIDTH / HEADS;
    for head in 0..HEADS {
        let reported = report.layers[0].heads[head];
        assert!((reported.largest - were[head]).abs() <= 1e-5 * were[head].abs());
        let columns = |linear: &Linear| {
            let weight = linear
                .weight
                .val()
                .inner()
                .slice([0..WIDTH, head * width..(head + 1) * width]);
            let bias = linear.bias.as_ref().unwrap().val().inner();
            let mut all = numbers(&weight);
            all.extend(numbers(&bias.narrow(0, head * width, width)));
            all
        };
        let pairs = [(&before.query, &after.query), (&before.key, &after.key)];
        if f64::from(were[head]) > threshold {
            assert!(
                (f64::from(are[head]) - threshold).abs() < 1e-5 * threshold,
                "{}",
                are[head]
            );
            let factor = (threshold / f64::from(were[head])).sqrt() as f32;
            for (before, after) in pairs {
                for (x, y) in columns(before).iter().zip(columns(after)) {
                    assert!((x * factor - y).abs() <= 1e-6 * x.abs());
                }
            }
        } else {
            assert_eq!(were[head].to_bits(), are[head].to_bits());
            for (before, after) in pairs {
                assert_eq!(columns(before), columns(after));
            }
        }
    }
    for (before, after) in [
        (&before.value, &after.value),
        (&before.output, &after.output),
    ] {
        assert_eq!(
            numbers(&before.weight.val().inner()),
            numbers(&after.weight.val().inner())
        );
    }
    // Nothing is left over for the next step.
    let again = clip.apply(after.clone());
    assert!(clip.last_report().unwrap().layers[0].heads.is_empty());
    assert_eq!(logits(&again, &x, None), are);
}

#[test]
fn the_balance_is_free_and_the_product_is_the_same() {
    let before = attention();
    let x = random([1, 7, WIDTH], 6.0);
    let were = logits(&before, &x, None);
    let threshold = between(&were);
    for balance in [0.0, 0.3, 1.0] {
        let recorder = LogitRecorder::new();
        let config = QkClipConfig::new()
            .with_threshold(threshold)
            .with_balance(balance);
        let layers = vec![QkLayer::multi_head("attention", &before)];
        let clip = config.init(&before, layers, recorder.clone()).unwrap();
        attend(
            &before,
            AttentionInput::self_attn(tracked(&x)),
            &recorder,
            None,
        );
        let after = clip.apply(before.clone());
        for (was, is) in were.iter().zip(logits(&after, &x, None)) {
            let wanted = f64::from(*was).min(threshold);
            assert!((f64::from(is) - wanted).abs() < 1e-5 * wanted.abs());
        }
        let keys = [&before, &after].map(|a| numbers(&a.key.weight.val().inner()));
        assert_eq!(keys[0] == keys[1], balance == 1.0);
        let queries = [&before, &after].map(|a| numbers(&a.query.weight.val().inner()));
        assert_eq!(queries[0] == queries[1], balance == 0.0);
    }
}

#[test]
fn masked_pairs_do_not_count() {
    let attention = attention();
    let x = random([2, 6, WIDTH], 3.0);
    let causal = Tensor::<2, Bool>::tril_mask([6, 6], 0, &device());
    let causal = causal.unsqueeze::<3>().expand([2, 6, 6]);
    let recorder = LogitRecorder::new();
    let input = AttentionInput::self_attn(tracked(&x)).mask_attn(causal.clone());
    attend(&attention, input.clone(), &recorder, None);
    let wanted = logits(&attention, &x, Some(causal.clone()));
    let id = attention.query.weight.id;
    let close = |found: &[f32], wanted: &[f32]| {
        found
            .iter()
            .zip(wanted)
            .all(|(x, y)| (x - y).abs() <= 1e-5 * y.abs().max(1.0))
    };
    assert!(close(recorder.take().get(id).unwrap(), &wanted));

    // The last two keys of the second sequence are padding besides.
    let pad = Tensor::<2>::from_data(
        [[0., 0., 0., 0., 0., 0.], [0., 0., 0., 0., 1., 1.]],
        &device(),
    );
    let pad = pad.greater_elem(0.5);
    attend(&attention, input.mask_pad(pad.clone()), &recorder, None);
    let both = pad.reshape([2, 1, 6]).expand([2, 6, 6]).bool_or(causal);
    let wanted = logits(&attention, &x, Some(both));
    assert!(close(recorder.take().get(id).unwrap(), &wanted));
}

#[test]
fn attention_itself_is_that_of_burn() {
    let attention = attention();
    let x = tracked(&random([2, 6, WIDTH], 1.0));
    let recorder = LogitRecorder::new();
    let ours = attend(
        &attention,
        AttentionInput::self_attn(x.clone()),
        &recorder,
        Some(100.0),
    );
    let theirs = attention.forward(burn::nn::attention::MhaInput::self_attn(x));
    assert_eq!(
        numbers(&ours.context.inner()),
        numbers(&theirs.context.inner())
    );
}

#[test]
fn a_step_counts_all_its_micro_batches_and_no_validation() {
    let attention = attention();
    let recorder = LogitRecorder::new();
    let id = attention.query.weight.id;
    let batches = [2.0, 5.0, 1.0].map(|scale| random([1, 5, WIDTH], scale));
    let mut wanted = LogitMaxima::new();
    for x in &batches {
        attend(
            &attention,
            AttentionInput::self_attn(tracked(x)),
            &recorder,
            None,
        );
        let one = LogitRecorder::new();
        attend(
            &attention,
            AttentionInput::self_attn(tracked(x)),
            &one,
            None,
        );
        wanted.merge(&one.take());
    }
    // Validation: no autodiff.
    let valid = attention.valid();
    let loud = AttentionInput::self_attn(random([1, 5, WIDTH], 100.0));
    attend(&valid, loud, &recorder, None);
    assert_eq!(recorder.take().get(id), wanted.get(id));
    assert!(recorder.take().is_empty());
}

#[test]
fn the_bound_saves_the_exact_pass_only_where_nothing_is_clipped() {
    let attention = attention();
    let recorder = LogitRecorder::new();
    let x = random([1, 5, WIDTH], 3.0);
    let id = attention.query.weight.id;
    let recorded = |threshold| {
        attend(
            &attention,
            AttentionInput::self_attn(tracked(&x)),
            &recorder,
            threshold,
        );
        recorder.take().get(id).unwrap().to_vec()
    };
    let exact = recorded(None);
    let bound = recorded(Some(1e6));
    assert!(bound.iter().zip(&exact).all(|(bound, exact)| bound > exact));
    assert_eq!(recorded(Some(f64::from(exact[0]) * 0.5)), exact);
}

/// Logits that are given, for a layer of the attention's own.
fn given(attention: &MultiHeadAttention, logits: &[f32]) -> LogitMaxima {
    let mut maxima = LogitMaxima::new();
    maxima.report(attention.query.weight.id, logits);
    maxima
}

#[test]
fn logits_that_are_not_above_the_threshold_or_not_numbers_change_nothing() {
    let attention = attention();
    let clip = clip_of(&attention, 100.0, &LogitRecorder::new());
    let weights = |a: &MultiHeadAttention| {
        [&a.query, &a.key].map(|linear| numbers(&linear.weight.val().inner()))
    };
    let before = weights(&attention);
    for logits in [
        [-3.0, 0.0, 100.0, f32::NEG_INFINITY],
        [f32::NAN, f32::INFINITY, f32::NAN, -1e30],
    ] {
        let after = clip.apply_maxima(attention.clone(), &given(&attention, &logits));
        assert_eq!(weights(&after), before);
        assert_eq!(clip.last_report().unwrap().clipped(), 0);
    }
    let report = clip.last_report().unwrap();
    let broken: Vec<_> = report.broken().map(|(_, head)| head).collect();
    assert_eq!(broken, [0, 1, 2]);

    // Beside them, a head that is above is clipped as if it were alone.
    let logits = [150.0, -3.0, f32::NAN, 100.0];
    let after = clip.apply_maxima(attention.clone(), &given(&attention, &logits));
    let after = weights(&after);
    for (before, after) in before.iter().zip(&after) {
        for (at, (x, y)) in before.iter().zip(after).enumerate() {
            let clipped = at % WIDTH < WIDTH / HEADS;
            let factor = if clipped {
                (100.0f64 / 150.0).sqrt() as f32
            } else {
                1.0
            };
            assert_eq!((x * factor).to_bits(), y.to_bits());
        }
    }
    assert!(after.iter().flatten().all(|x| x.is_finite()));
}

#[derive(Module, Debug)]
struct Grouped {
    query: Linear,
    key: Linear,
}

#[test]
fn query_heads_that_share_keys_get_exactly_their_own_factor() {
    let (heads, key_heads, width) = (6, 2, 4);
    let linear = |count: usize| LinearConfig::new(WIDTH, count * width).init(&training());
    let model = Grouped {
        query: linear(heads),
        key: linear(key_heads),
    };
    let x = random([2, 11, WIDTH], 5.0);
    let logits = |model: &Grouped| {
        let split = |linear: &Linear, heads: usize| {
            let y = linear.forward(tracked(&x));
            y.reshape([2, 11, heads, width]).swap_dims(1, 2)
        };
        let (q, k) = (split(&model.query, heads), split(&model.key, key_heads));
        numbers(&max_logit(q, k, &MaxLogitOptions::new()))
    };
    let were = logits(&model);
    let mut sorted = were.clone();
    sorted.sort_by(f32::total_cmp);
    // One group has heads on both sides of it.
    let threshold = f64::from(sorted[2]);
    let layer =
        QkLayer::grouped_query("layer", &model.query, &model.key, [heads, key_heads], width);
    let recorder = LogitRecorder::new();
    let clip = QkClipConfig::new()
        .with_threshold(threshold)
        .init(&model, vec![layer], recorder)
        .unwrap();
    let mut maxima = LogitMaxima::new();
    maxima.report(model.query.weight.id, &were);
    let after = clip.apply_maxima(model, &maxima);
    for (was, is) in were.iter().zip(logits(&after)) {
        let wanted = f64::from(*was).min(threshold);
        assert!(
            (f64::from(is) - wanted).abs() < 2e-5 * wanted,
            "{is} instead of {wanted}"
        );
    }
}

#[derive(Module, Debug)]
struct Latent {
    q_proj: Linear,
    kv_b_proj: Linear,
}

#[test]
fn latent_attention_is_clipped_by_parts() {
    let widths = LatentWidths {
        nope: 3,
        rope: 2,
        value: 4,
    };
    let heads = 2;
    let linear = |columns: usize| {
        LinearConfig::new(8, columns)
            .with_bias(false)
            .init(&training())
    };
    let model = Latent {
        q_proj: linear(heads * 5),
        kv_b_proj: linear(heads * 7),
    };
    let layer = QkLayer::latent("layer", &model.q_proj, &model.kv_b_proj, heads, widths);
    let clip = QkClipConfig::new()
        .init(&model, vec![layer], LogitRecorder::new())
        .unwrap();
    let mut maxima = LogitMaxima::new();
    maxima.report(model.q_proj.weight.id, &[50.0, 400.0]);
    let before = [&model.q_proj, &model.kv_b_proj].map(|l| numbers(&l.weight.val().inner()));
    let after = clip.apply_maxima(model, &maxima);
    let after = [&after.q_proj, &after.kv_b_proj].map(|l| numbers(&l.weight.val().inner()));
    // The second head: own queries by the root, rotary ones by all of it; own keys by the root, values not.
    let query = [1.0, 1.0, 1.0, 1.0, 1.0, 0.5, 0.5, 0.5, 0.25, 0.25];
    let key = [
        1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 0.5, 0.5, 0.5, 1.0, 1.0, 1.0, 1.0,
    ];
    for (factors, (before, after)) in [&query[..], &key[..]].iter().zip(before.iter().zip(&after)) {
        for (at, (x, y)) in before.iter().zip(after).enumerate() {
            assert_eq!((x * factors[at % factors.len()]).to_bits(), y.to_bits());
        }
    }
}

#[test]
fn a_fused_projection_is_clipped_where_its_queries_and_keys_are() {
    let qkv = LinearConfig::new(8, 3 * 6).init(&training());
    let layer = QkLayer::fused("layer", &qkv, [2, 2], 3);
    let clip = QkClipConfig::new()
        .init(&qkv, vec![layer], LogitRecorder::new())
        .unwrap();
    let mut maxima = LogitMaxima::new();
    maxima.report(qkv.weight.id, &[400.0, 1.0]);
    let before = [
        numbers(&qkv.weight.val().inner()),
        numbers(&qkv.bias.as_ref().unwrap().val().inner()),
    ];
    let after = clip.apply_maxima(qkv, &maxima);
    let after = [
        numbers(&after.weight.val().inner()),
        numbers(&after.bias.as_ref().unwrap().val().inner()),
    ];
    for (before, after) in before.iter().zip(&after) {
        for (at, (x, y)) in before.iter().zip(after).enumerate() {
            let factor = if [0, 1, 2, 6, 7, 8].contains(&(at % 18)) {
                0.5
            } else {
                1.0
            };
            assert_eq!((x * factor).to_bits(), y.to_bits());
        }
    }
}

#[derive(Module, Debug)]
struct Looped {
    first: MultiHeadAttention,
    second: MultiHeadAttention,
}

#[test]
fn a_layer_that_is_used_twice_is_clipped_once_by_the_larger_of_both() {
    let first = attention();
    let model = Looped {
        second: first.clone(),
        first,
    };
    let recorder = LogitRecorder::new();
    let clip = QkClipConfig::new()
        .with_threshold(1.0)
        .init(
            &model,
            vec![QkLayer::multi_head("both", &model.first)],
            recorder.clone(),
        )
        .unwrap();
    let quiet = Tensor::<1>::from_data([0.5, 4.0, 0.5, 0.5], &device());
    let loud = Tensor::<1>::from_data([0.5, 1.0, 16.0, 0.5], &device());
    recorder.record(&model.first.query, quiet);
    recorder.record(&model.second.query, loud);
    let before = numbers(&model.first.query.weight.val().inner());
    let after = clip.apply(model);
    let first = numbers(&after.first.query.weight.val().inner());
    let second = numbers(&after.second.query.weight.val().inner());
    assert_eq!(first, second);
    let factors = [1.0, 0.5, 0.25, 1.0];
    for (at, (x, y)) in before.iter().zip(&first).enumerate() {
        assert_eq!(x * factors[at % WIDTH / (WIDTH / HEADS)], *y);
    }
    // It is still one parameter: a gradient through either use is a gradient of it.
    let x = tracked(&random([1, 3, WIDTH], 1.0));
    let sum = after.first.query.forward(x.clone()) + after.second.query.forward(x.clone());
    let both = after
        .first
        .query
        .weight
        .val()
        .grad(&sum.sum().backward())
        .unwrap();
    let one = after.first.query.forward(x).sum().backward();
    let one = after.first.query.weight.val().grad(&one).unwrap();
    for (both, one) in numbers(&both).iter().zip(numbers(&one)) {
        assert!((both - 2.0 * one).abs() <= 1e-4 * one.abs().max(1e-3));
    }
}

#[test]
fn parameters_stay_what_they_are() {
    let attention = attention();
    let clip = clip_of(&attention, 1.0, &LogitRecorder::new());
    let after = clip.apply_maxima(attention.clone(), &given(&attention, &[9.0; HEADS]));
    let ids = |a: &MultiHeadAttention| burn::module::list_param_ids(a);
    assert_eq!(ids(&attention), ids(&after));
    let weight = after.query.weight.val();
    assert!(weight.is_require_grad() && weight.is_autodiff());
    assert!(!after.query.weight.val().dims().is_empty());
}

#[test]
fn sixteen_bit_weights_are_rounded_once() {
    let device = device();
    let mut attention: MultiHeadAttention =
        MultiHeadAttentionConfig::new(WIDTH, HEADS).init(&device);
    let cast = |param: Param<Tensor<2>>| param.map(|weight| weight.cast(DType::BF16));
    attention.query.weight = cast(attention.query.weight);
    attention.key.weight = cast(attention.key.weight);
    let clip = clip_of(&attention, 1.0, &LogitRecorder::new());
    let before = attention.query.weight.val();
    let after = clip.apply_maxima(attention.clone(), &given(&attention, &[3.0, 1.0, 0.5, 7.0]));
    let after = after.query.weight.val();
    assert_eq!(after.dtype(), DType::BF16);
    let factors = [3.0f64, 1.0, 1.0, 7.0].map(|s| (1.0 / s).sqrt() as f32);
    let factors = factors.map(|factor| [factor; WIDTH / HEADS]).concat();
    let factors = Tensor::<1>::from_data(factors.as_slice(), &device).unsqueeze::<2>();
    let wanted = (before.cast(DType::F32) * factors).cast(DType::BF16);
    assert_eq!(numbers(&after), numbers(&wanted));
}

#[test]
fn what_was_ever_clipped_survives_a_resume() {
    let attention = attention();
    let clip = clip_of(&attention, 1.0, &LogitRecorder::new());
    clip.apply_maxima(attention.clone(), &given(&attention, &[9.0, 0.0, 0.0, 0.0]));
    let saved = serde_json::to_string(&clip.state()).unwrap();
    let resumed = clip_of(&attention, 1.0, &LogitRecorder::new());
    resumed
        .load_state(serde_json::from_str(&saved).unwrap())
        .unwrap();
    resumed.apply_maxima(attention.clone(), &given(&attention, &[0.0, 9.0, 0.0, 0.0]));
    assert_eq!(resumed.last_report().unwrap().share_ever_clipped(), 0.5);

    let other: MultiHeadAttention = MultiHeadAttentionConfig::new(WIDTH, 2).init(&training());
    let other = clip_of(&other, 1.0, &LogitRecorder::new());
    let error = other.load_state(clip.state()).unwrap_err();
    assert_eq!(
        error.to_string(),
        "the saved state of QK-Clip has 4 heads for layer `attention`, which has 2"
    );
}

#[derive(Module, Debug)]
struct Normed {
    q_proj: Linear,
    k_proj: Linear,
    q_norm: RmsNorm,
}

#[derive(Module, Debug)]
struct Block {
    attention: Normed,
}

#[test]
fn layers_that_cannot_be_clipped_are_refused_or_named() {
    let linear = || LinearConfig::new(8, 8).init(&training());
    let model = Block {
        attention: Normed {
            q_proj: linear(),
            k_proj: linear(),
            q_norm: RmsNormConfig::new(4).init(&training()),
        },
    };
    let layer = || {
        let attention = &model.attention;
        QkLayer::grouped_query("a", &attention.q_proj, &attention.k_proj, [2, 2], 4)
    };
    let config = QkClipConfig::new();
    let error = config
        .init(&model, vec![layer()], LogitRecorder::new())
        .unwrap_err();
    assert!(
        error
            .to_string()
            .starts_with("layer `a` cannot be clipped: its queries or keys are normalised")
    );

    let clip = config
        .init(&model, Vec::new(), LogitRecorder::new())
        .unwrap()
        .skipping("a", Unclippable::QkNorm)
        .skipping("b", Unclippable::NoSoftmax);
    clip.apply_maxima(model, &LogitMaxima::new());
    let report = clip.last_report().unwrap().to_string();
    assert!(report.contains("a: skipped, its queries or keys are normalised"));
    assert!(report.contains("b: skipped, it has no softmax over logits"));
}

#[test]
fn descriptions_that_do_not_fit_are_refused_by_name() {
    let attention = attention();
    let with = |layers: Vec<QkLayer>| {
        let error = QkClipConfig::new().init(&attention, layers, LogitRecorder::new());
        error.unwrap_err().to_string()
    };
    let layer = || QkLayer::multi_head("layer", &attention);
    assert_eq!(with(vec![layer(), layer()]), "two layers are named `layer`");
    let twin = QkLayer::multi_head("twin", &attention);
    assert!(
        with(vec![layer(), twin])
            .starts_with("layers `layer` and `twin` both scale `query.weight`")
    );
    let heads = QkLayer::grouped_query("layer", &attention.query, &attention.key, [4, 3], 6);
    assert_eq!(
        with(vec![heads]),
        "layer `layer`: 4 query heads are not a multiple of 3 key heads"
    );
    let wide = QkLayer::grouped_query("layer", &attention.query, &attention.key, [4, 4], 7);
    assert_eq!(
        with(vec![wide]),
        "layer `layer`: `query.weight` has shape [24, 24], but the heads need 28 columns"
    );
    let stranger = LinearConfig::new(WIDTH, WIDTH).init(&training());
    let unknown = QkLayer::grouped_query("layer", &stranger, &attention.key, [4, 4], 6);
    assert_eq!(
        with(vec![unknown]),
        "layer `layer`: its Query is no parameter of the module"
    );
    let keyless = QkLayer::new("layer", 4, 4, &attention.query).with_part(
        &attention.query,
        QkSide::Query,
        HeadColumns::dense(6),
    );
    assert_eq!(
        with(vec![keyless]),
        "layer `layer` has no part that makes its keys"
    );
    let twice = layer().with_part(&attention.query, QkSide::Query, HeadColumns::dense(6));
    assert_eq!(
        with(vec![twice]),
        "layer `layer`: column 0 of `query.weight` belongs to two parts"
    );

    for (config, field) in [
        (QkClipConfig::new().with_threshold(0.0), "threshold"),
        (QkClipConfig::new().with_threshold(f64::NAN), "threshold"),
        (QkClipConfig::new().with_balance(1.5), "balance"),
    ] {
        let error = config
            .init(&attention, vec![layer()], LogitRecorder::new())
            .unwrap_err();
        assert!(matches!(error, QkClipError::Setting { field: found, .. } if found == field));
    }
}

#[test]
#[should_panic(expected = "QK-Clip: layer `attention` recorded 3 heads and has 4")]
fn a_report_of_other_heads_is_refused() {
    let attention = attention();
    let clip = clip_of(&attention, 1.0, &LogitRecorder::new());
    clip.apply_maxima(attention.clone(), &given(&attention, &[9.0; 3]));
}

#[test]
fn maxima_of_devices_are_merged_head_by_head() {
    let attention = attention();
    let mut all = given(&attention, &[1.0, 5.0, f32::NAN, -1.0]);
    all.merge(&given(&attention, &[2.0, 3.0, 9.0, f32::NEG_INFINITY]));
    let merged = all.get(attention.query.weight.id).unwrap();
    assert_eq!(merged[..2], [2.0, 5.0]);
    assert!(merged[2].is_nan());
    assert_eq!(merged[3], -1.0);
}
