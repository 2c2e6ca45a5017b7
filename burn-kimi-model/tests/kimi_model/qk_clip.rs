//! QK-Clip on whole decoders.

use burn::module::{Module, ModuleVisitor, Param};
use burn::optim::GradientsParams;
use burn::tensor::{Device, Distribution, Int, Tensor, TensorData};
use burn_kimi_linear::AttentionPlan;
use burn_kimi_model::layers::Attention;
use burn_kimi_model::{Decoder, DecoderConfig};
use burn_muonclip::MuonClipConfig;
use burn_muonclip::qk_clip::{LayerReport, QkClip, QkClipConfig};

const HEADS: usize = 3;

fn config() -> DecoderConfig {
    DecoderConfig::new(20, 16, 4, HEADS, 8, 24)
        .with_attention(AttentionPlan::Hybrid { kda_per_mla: 1 })
        .with_qk_rope_head_dim(Some(4))
}

fn device() -> Device {
    Device::default().autodiff()
}

fn tokens(seed: u64, batch: usize) -> Tensor<2, Int> {
    let count = batch * 9;
    let ids: Vec<i64> = (0..count as u64)
        .map(|i| ((i * 7 + seed * 5) * 13 % 20) as i64)
        .collect();
    Tensor::from_data(TensorData::new(ids, [batch, 9]), &device())
}

/// A decoder whose logits are far apart.
fn loud() -> Decoder {
    device().seed(3);
    let mut decoder = config().init(&device());
    for layer in &mut decoder.layers {
        if let Attention::Mla(attention) = &mut layer.self_attn {
            let louder = |x: Tensor<2>| {
                let louder = Tensor::random(x.dims(), Distribution::Normal(0.0, 3.0), &x.device());
                louder.require_grad()
            };
            attention.q_proj.weight = attention.q_proj.weight.clone().map(louder);
        }
    }
    decoder
}

fn largest(decoder: &Decoder, clip: &QkClip, tokens: Tensor<2, Int>) -> Vec<Vec<f32>> {
    decoder.forward_watched(tokens, clip);
    clip.apply(decoder.clone());
    let report = clip.last_report().unwrap();
    let heads = |layer: &LayerReport| layer.heads.iter().map(|head| head.largest).collect();
    report.layers.iter().map(heads).collect()
}

#[test]
fn every_clipped_head_is_at_the_threshold_when_the_batch_comes_again() {
    let decoder = loud();
    let quiet = decoder
        .qk_clip(&QkClipConfig::new().with_threshold(1e-3))
        .unwrap();
    let were = largest(&decoder, &quiet, tokens(1, 2));
    assert_eq!(were.len(), 2);
    let mut all = were.concat();
    all.sort_by(f32::total_cmp);
    let threshold = f64::from(all[all.len() / 2]);

    // With a learning rate of 0 nothing else moves.
    let clip = decoder
        .qk_clip(&QkClipConfig::new().with_threshold(threshold))
        .unwrap();
    let mut optimizer = MuonClipConfig::new()
        .init_fused(&decoder)
        .with_qk_clip(clip.clone());
    let loss = decoder.forward_watched(tokens(1, 2), &clip).square().mean();
    let grads = GradientsParams::from_grads(loss.backward(), &decoder);
    let decoder = optimizer.step(0.0, decoder, grads);
    let report = clip.last_report().unwrap();
    assert!(report.clipped() >= 2 && report.share_ever_clipped() < 1.0);
    assert_eq!(report.skipped.len(), 2);
    assert_eq!(report.layers[0].name, "layers.1.self_attn");

    // The first layer's inputs are what they were; those of the second are not.
    let are = largest(&decoder, &quiet, tokens(1, 2));
    for (was, is) in were[0].iter().zip(&are[0]) {
        let wanted = f64::from(*was).min(threshold);
        assert!(
            (f64::from(*is) - wanted).abs() < 2e-5 * wanted.abs(),
            "{is} instead of {wanted}"
        );
        if f64::from(*was) <= threshold {
            assert_eq!(was.to_bits(), is.to_bits());
        }
    }
}

#[test]
fn micro_batches_count_like_one_batch() {
    let decoder = loud();
    let clip = decoder
        .qk_clip(&QkClipConfig::new().with_threshold(1e-3))
        .unwrap();
    let both = Tensor::cat(vec![tokens(1, 2), tokens(2, 2)], 0);
    let wanted = largest(&decoder, &clip, both);
    decoder.forward_watched(tokens(1, 2), &clip);
    let found = largest(&decoder, &clip, tokens(2, 2));
    for (wanted, found) in wanted.concat().iter().zip(found.concat()) {
        assert!((wanted - found).abs() <= 1e-5 * wanted.abs());
    }
}

#[test]
fn watching_changes_nothing_and_validation_is_not_watched() {
    let decoder = loud();
    let clip = decoder.qk_clip(&QkClipConfig::new()).unwrap();
    let plain = decoder.forward(tokens(1, 2)).into_data();
    assert_eq!(
        decoder.forward_watched(tokens(1, 2), &clip).into_data(),
        plain
    );
    assert!(!clip.recorder().take().is_empty());
    decoder.valid().forward_watched(tokens(1, 2).inner(), &clip);
    assert!(clip.recorder().take().is_empty());
}

#[test]
fn a_skipped_step_clips_nothing_and_forgets_its_logits() {
    let decoder = loud();
    let clip = decoder
        .qk_clip(&QkClipConfig::new().with_threshold(1e-3))
        .unwrap();
    let mut optimizer = MuonClipConfig::new()
        .init_fused(&decoder)
        .with_qk_clip(clip.clone());
    let loss = decoder
        .forward_watched(tokens(1, 2), &clip)
        .mul_scalar(f32::NAN)
        .mean();
    let grads = GradientsParams::from_grads(loss.backward(), &decoder);
    let before = bits(&decoder);
    let after = bits(&optimizer.step(0.1, decoder, grads));
    assert_eq!(before, after);
    assert!(clip.last_report().is_none());
    assert!(clip.recorder().take().is_empty());
}

/// The bytes of every parameter.
fn bits(decoder: &Decoder) -> Vec<Vec<u8>> {
    struct Visitor(Vec<Vec<u8>>);
    impl ModuleVisitor for Visitor {
        fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
            let data = param.val().inner().into_data();
            self.0.push(data.as_bytes().to_vec());
        }
    }
    let mut visitor = Visitor(Vec::new());
    decoder.visit(&mut visitor);
    visitor.0
}
