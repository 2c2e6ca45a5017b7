use burn::config::Config;
use burn::module::Module;

use super::{LogitRecorder, QkClip, QkClipError, QkLayer};

/// Settings of [`QkClip`].
///
/// ```
/// use burn::nn::attention::{MultiHeadAttention, MultiHeadAttentionConfig};
/// use burn::tensor::{Device, Distribution, Tensor};
/// use burn_muonclip::qk_clip::{AttentionInput, LogitRecorder, QkClipConfig, QkLayer, attend};
///
/// let device = Device::default().autodiff();
/// let attention: MultiHeadAttention = MultiHeadAttentionConfig::new(32, 4).init(&device);
/// let recorder = LogitRecorder::new();
/// let layers = vec![QkLayer::multi_head("attention", &attention)];
/// let clip = QkClipConfig::new().init(&attention, layers, recorder.clone()).unwrap();
///
/// // Forward, and a step of any optimizer.
/// let x = Tensor::random([2, 10, 32], Distribution::Normal(0.0, 30.0), &device);
/// let output = attend(&attention, AttentionInput::self_attn(x), &recorder, None);
/// // Behind the step:
/// let attention = clip.apply(attention);
/// println!("{}", clip.last_report().unwrap());
/// ```
#[derive(Config, Debug, PartialEq)]
pub struct QkClipConfig {
    /// The largest logit that is left alone (`tau`). Kimi K2 has 100.
    #[config(default = 100.0)]
    pub threshold: f64,
    /// The queries' share of the scaling (`alpha`), from 0 to 1; the keys have the rest.
    #[config(default = 0.5)]
    pub balance: f64,
    /// Whether largest logits are computed even where the lengths of queries and keys show that nothing is above the threshold: for statistics. Otherwise reports
    /// have what those lengths allow at most.
    #[config(default = false)]
    pub exact: bool,
}

impl QkClipConfig {
    /// The threshold that [`LogitRecorder::observe`] takes.
    pub fn bound(&self) -> Option<f64> {
        (!self.exact).then_some(self.threshold)
    }

    /// For the attention layers of `module`, whose logits `recorder` will have.
    ///
    /// # Errors
    /// [`QkClipError`] if a setting is out of range, or a layer's description does not fit the module.
    pub fn init<M: Module>(
        &self,
        module: &M,
        layers: Vec<QkLayer>,
        recorder: LogitRecorder,
    ) -> Result<QkClip, QkClipError> {
        QkClip::new(self, module, layers, recorder)
    }
}
