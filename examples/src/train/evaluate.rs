use burn::nn::loss::CrossEntropyLossConfig;
use burn::tensor::{DType, Device, Int, Tensor};
use burn_kimi_model::Decoder;
use burn_muonclip::qk_clip::QkClip;

use crate::text::Batch;

/// Mean cross entropy in nats per byte, `[1]`, of logits `[batch, seq_len, vocabulary]` and the tokens that
/// came, `[batch, seq_len]`; in f32 whatever the model's dtype.
///
/// The sum over the vocabulary is taken row by row and only `batch * seq_len` values are averaged at once, which
/// Flex does in a fixed order.
pub fn cross_entropy(logits: Tensor<3>, targets: Tensor<2, Int>) -> Tensor<1> {
    let [batch_size, seq_len, vocabulary] = logits.dims();
    let rows = batch_size * seq_len;
    let logits = logits.reshape([rows, vocabulary]).cast(DType::F32);
    CrossEntropyLossConfig::new()
        .init(&logits.device())
        .forward(logits, targets.reshape([rows]))
}

/// The cross entropy of the model's predictions on a batch.
pub fn batch_loss(model: &Decoder, batch: &Batch) -> Tensor<1> {
    cross_entropy(model.forward(batch.inputs.clone()), batch.targets.clone())
}

/// The same in training, with the attention logits watched.
pub fn watched_batch_loss(model: &Decoder, batch: &Batch, qk_clip: &QkClip) -> Tensor<1> {
    let logits = model.forward_watched(batch.inputs.clone(), qk_clip);
    cross_entropy(logits, batch.targets.clone())
}

/// Mean cross entropy over all windows in nats per byte. `model` must be without autodiff
/// ([`Module::valid`](burn::module::Module::valid)) and on `device`; the windows are of one length.
pub fn evaluate(model: &Decoder, windows: &[&[u8]], batch_size: usize, device: &Device) -> f64 {
    let total: f64 = windows
        .chunks(batch_size)
        .map(|windows| {
            let loss = batch_loss(model, &Batch::from_windows(windows, device));
            f64::from(loss.into_scalar::<f32>()) * windows.len() as f64
        })
        .sum();
    total / windows.len() as f64
}
