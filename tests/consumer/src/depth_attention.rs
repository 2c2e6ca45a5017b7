//! Attention Residuals around layers of the user's own.

use burn::nn::{LinearConfig, RmsNormConfig};
use burn::tensor::{Device, Distribution, Tensor, activation::silu};
use burn_attnres::{AttnResConfig, BlockPlan};

use crate::{Shown, difference};

pub(crate) fn show(device: &Device) -> Shown {
    let norm = RmsNormConfig::new(16).init(device);
    let layers: Vec<_> = (0..6)
        .map(|_| LinearConfig::new(16, 16).init(device))
        .collect();
    let sublayer = |at: usize, x: Tensor<3>| silu(layers[at].forward(norm.forward(x)));
    let embedding = Tensor::<3>::random([2, 5, 16], Distribution::Normal(0.0, 1.0), device);

    let mut plain = embedding.clone();
    for at in 0..layers.len() {
        plain = plain.clone() + sublayer(at, plain);
    }

    let attn_res = AttnResConfig::new(16, layers.len())
        .with_plan(BlockPlan::SublayersPerBlock(2))
        .init(device);
    let mut stream = attn_res.start(embedding);
    for at in 0..layers.len() {
        let x = stream.read(&attn_res);
        stream.write(sublayer(at, x));
    }
    let mixed = stream.finish(&attn_res);

    // Queries start at zero, so that after the norm both networks are the same.
    let gap = difference(norm.forward(plain), norm.forward(mixed.clone()));
    let gradients = mixed.powi_scalar(3).mean().backward();
    let query = attn_res.reads.last().expect("the output read").query.val();
    let gradient = query.grad(&gradients).ok_or("the query got no gradient")?;
    let size: f32 = gradient.abs().max().into_scalar();

    let text = format!(
        "{} blocks; differs from PreNorm by {gap:.1e} at the start; largest query gradient {size:.1e}",
        attn_res.schedule().blocks()
    );
    if gap < 1e-3 && size.is_finite() && size > 0.0 {
        Ok(text)
    } else {
        Err(text)
    }
}
