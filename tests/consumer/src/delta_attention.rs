//! A Kimi Delta Attention layer: trained whole, run in two pieces.

use burn::tensor::{Device, Distribution, Tensor};
use burn_kimi_linear::KimiDeltaAttentionConfig;

use crate::{Shown, difference};

pub(crate) fn show(device: &Device) -> Shown {
    let layer = KimiDeltaAttentionConfig::new(16, 2, 8).init(device);
    let x = Tensor::<3>::random([2, 40, 16], Distribution::Normal(0.0, 1.0), device);

    let whole = layer.forward(x.clone());
    if whole.dims() != x.dims() {
        return Err(format!("shape {:?} from {:?}", whole.dims(), x.dims()));
    }
    let (first, state) = layer.forward_with_state(x.clone().narrow(1, 0, 23), None);
    let (second, _) = layer.forward_with_state(x.narrow(1, 23, 17), Some(state));
    let gap = difference(whole.clone(), Tensor::cat(vec![first, second], 1));

    let gradients = whole.square().mean().backward();
    let gradient = layer.q_proj.weight.grad(&gradients);
    let gradient = gradient.ok_or("the query projection got no gradient")?;
    let size: f32 = gradient.abs().max().into_scalar();

    let text = format!("one pass and two pieces differ by {gap:.1e}; largest gradient {size:.1e}");
    if gap < 1e-4 && size.is_finite() && size > 0.0 {
        Ok(text)
    } else {
        Err(text)
    }
}
