//! A small hybrid decoder that learns to count.

use burn::nn::loss::CrossEntropyLossConfig;
use burn::optim::GradientsParams;
use burn::tensor::{Device, Int, Tensor};
use burn_kimi_model::{DecoderConfig, ResidualScheme};
use burn_muonclip::MuonClipConfig;

use crate::{Shown, fell};

const VOCABULARY: usize = 12;

pub(crate) fn show(device: &Device) -> Shown {
    let config = DecoderConfig::new(VOCABULARY, 32, 4, 2, 16, 64)
        .with_residual(ResidualScheme::AttnResBlock { blocks: 4 });
    let mut decoder = config.init(device);
    let mut optimizer = MuonClipConfig::new().init_fused(&decoder);

    // 0 1 2 .. 11 0 1 2 ..: the next token is always known.
    let text = Tensor::<1, Int>::arange(0..25, device).remainder_scalar(VOCABULARY as i64);
    let text = text.unsqueeze::<2>();
    let tokens = text.clone().narrow(1, 0, 24);
    let targets = text.narrow(1, 1, 24).reshape([24]);

    let loss_of = CrossEntropyLossConfig::new().init(device);
    let mut losses = Vec::new();
    for _ in 0..40 {
        let logits = decoder.forward(tokens.clone()).reshape([24, VOCABULARY]);
        let loss = loss_of.forward(logits, targets.clone());
        losses.push(loss.clone().into_scalar());
        let gradients = GradientsParams::from_grads(loss.backward(), &decoder);
        decoder = optimizer.step(1e-2, decoder, gradients);
    }
    fell(&losses, 0.5)
}
