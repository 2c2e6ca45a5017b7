//! The same decoder under Burn's own training loop, [`SupervisedTraining`].
//!
//! Burn's loop takes a model that knows a training step and an inference step, a data loader for each part, and
//! a [`Learner`] of model, optimizer and schedule. MuonClip takes AdamW's place in one line:
//!
//! ```
//! # use burn::optim::{AdamWConfig, ModuleOptimizer};
//! # use burn_muonclip::MuonClipConfig;
//! # let model = burn::nn::LinearConfig::new(4, 4).init(&burn::tensor::Device::default());
//! let optimizer: ModuleOptimizer = AdamWConfig::new().with_weight_decay(0.1).init();
//! let optimizer: ModuleOptimizer = MuonClipConfig::new().with_weight_decay(0.1).init(&model);
//! ```

use std::path::PathBuf;
use std::sync::Arc;

use burn::data::dataloader::batcher::Batcher;
use burn::data::dataloader::{DataLoader, DataLoaderBuilder};
use burn::data::dataset::InMemDataset;
use burn::lr_scheduler::cosine::CosineAnnealingLrSchedulerConfig;
use burn::lr_scheduler::module_lr_scheduler::ModuleLearningRate;
use burn::module::Module;
use burn::optim::{AdamWConfig, GradientsParams, ModuleOptimizer};
use burn::tensor::Device;
use burn::train::metric::{LearningRateMetric, LossMetric, PerplexityMetric};
use burn::train::{
    InferenceStep, Learner, LearningResult, SequenceOutput, SupervisedTraining, TrainOutput,
    TrainStep,
};
use burn_kimi_model::Decoder;
use burn_muonclip::MuonClipConfig;
use burn_muonclip::qk_clip::{QkClip, QkClipConfig};

use crate::text::{Batch, evaluation_windows, load_and_split};
use crate::train::{
    ModelSettings, OptimizerKind, TrainError, check_batch, check_count, check_fraction,
    check_learning_rate, cross_entropy, decoder_config,
};
use burn_kimi_model::DeviceName;

/// The flags of the program.
#[derive(Clone, Debug, clap::Args)]
pub struct SupervisedSettings {
    /// A text file or folder of your own [default: the Rust sources of Burn 0.22.1]
    #[arg(long, value_name = "PATH")]
    pub text: Option<PathBuf>,
    /// The model.
    #[command(flatten)]
    pub model: ModelSettings,
    /// Optimizer
    #[arg(long, value_enum, default_value_t)]
    pub optimizer: OptimizerKind,
    /// Peak learning rate
    #[arg(long, default_value_t = 0.02, value_name = "RATE")]
    pub lr: f64,
    /// Decoupled weight decay
    #[arg(long, default_value_t = 0.1, value_name = "DECAY")]
    pub weight_decay: f32,
    /// Passes over the chosen windows, each followed by a validation
    #[arg(long, default_value_t = 2, value_name = "N")]
    pub epochs: usize,
    /// Windows of the training text in an epoch, spread evenly over it
    #[arg(long, default_value_t = 1600, value_name = "N")]
    pub windows: usize,
    /// Windows in a batch
    #[arg(long, default_value_t = 16, value_name = "N")]
    pub batch: usize,
    /// Tokens (bytes) predicted in a window
    #[arg(long, default_value_t = 128, value_name = "TOKENS")]
    pub seq_len: usize,
    /// Seed of the weights and of the order of the windows
    #[arg(long, default_value_t = 0, value_name = "SEED")]
    pub seed: u64,
    /// Device: flex, wgpu, vulkan, metal, webgpu, cuda or rocm
    #[arg(long, default_value_t, value_name = "NAME")]
    pub device: DeviceName,
    /// Folder for Burn's logs and checkpoints
    #[arg(long, default_value = "runs/supervised", value_name = "DIR")]
    pub out: PathBuf,
}

impl SupervisedSettings {
    /// Checks every range.
    ///
    /// # Errors
    /// [`TrainError::Setting`] naming the flag, what was given and what is wanted.
    pub fn validate(&self) -> Result<(), TrainError> {
        self.model.validate()?;
        check_batch(self.batch, self.seq_len)?;
        check_count("epochs", self.epochs, usize::MAX)?;
        check_count("windows", self.windows, usize::MAX)?;
        check_learning_rate("lr", self.lr)?;
        check_fraction("weight-decay", self.weight_decay.into())
    }
}

/// A decoder with the steps that Burn's loop asks for.
#[derive(Module, Debug)]
pub struct LanguageModel {
    decoder: Decoder,
    /// Not a part of the model: it clips attention logits behind every step.
    #[module(skip)]
    qk_clip: Option<QkClip>,
}

impl LanguageModel {
    /// Predicts every next token of a batch.
    pub fn forward_batch(&self, batch: Batch) -> SequenceOutput {
        // Without autodiff nothing is recorded, so validation does not count.
        let logits = match &self.qk_clip {
            Some(qk_clip) => self.decoder.forward_watched(batch.inputs, qk_clip),
            None => self.decoder.forward(batch.inputs),
        };
        let loss = cross_entropy(logits.clone(), batch.targets.clone());
        SequenceOutput::new(loss, logits, None, batch.targets)
    }
}

impl TrainStep for LanguageModel {
    type Input = Batch;
    type Output = SequenceOutput;

    fn step(&self, batch: Batch) -> TrainOutput<SequenceOutput> {
        let output = self.forward_batch(batch);
        TrainOutput::new(self, output.loss.backward(), output)
    }

    fn optimize(
        self,
        optimizer: &mut ModuleOptimizer,
        lr: ModuleLearningRate,
        grads: GradientsParams,
    ) -> Self {
        let qk_clip = self.qk_clip.clone();
        let model = optimizer.step(lr, self, grads);
        match qk_clip {
            Some(qk_clip) => qk_clip.apply(model),
            None => model,
        }
    }
}

impl InferenceStep for LanguageModel {
    type Input = Batch;
    type Output = SequenceOutput;

    fn step(&self, batch: Batch) -> SequenceOutput {
        self.forward_batch(batch)
    }
}

/// Stacks windows of text.
#[derive(Clone, Copy, Debug)]
struct WindowBatcher;

impl Batcher<Vec<u8>, Batch> for WindowBatcher {
    fn batch(&self, windows: Vec<Vec<u8>>, device: &Device) -> Batch {
        let windows: Vec<&[u8]> = windows.iter().map(Vec::as_slice).collect();
        Batch::from_windows(&windows, device)
    }
}

/// Trains as the settings say.
///
/// # Errors
/// [`TrainError`] if a setting, the text, the device or the model cannot be used. What happens during training is
/// in the result.
pub fn train(settings: &SupervisedSettings) -> Result<LearningResult<LanguageModel>, TrainError> {
    settings.validate()?;
    let decoder = decoder_config(&settings.model)?;
    let device = settings.device.open()?.autodiff();
    let (train_loader, valid_loader) = data_loaders(settings)?;
    device.seed(settings.seed);
    let decoder = decoder.init(&device);
    let qk_clip = match settings.optimizer {
        OptimizerKind::MuonClip => Some(decoder.qk_clip(&QkClipConfig::new())),
        OptimizerKind::AdamW => None,
    };
    let model = LanguageModel {
        decoder,
        qk_clip: qk_clip.map(|clip| clip.expect("the defaults are in range")),
    };
    let optimizer = optimizer(settings, &model);
    // A short text has fewer windows than were asked for.
    let batches = train_loader.num_items().div_ceil(settings.batch);
    let steps = settings.epochs.saturating_mul(batches);
    let schedule = CosineAnnealingLrSchedulerConfig::new(settings.lr, steps)
        .init()
        .map_err(|reason| TrainError::Setting { flag: "lr", reason })?;
    Ok(
        SupervisedTraining::new(&settings.out, train_loader, valid_loader)
            .metrics((LossMetric::new(), PerplexityMetric::new()))
            .metric_train_numeric(LearningRateMetric::new())
            .with_default_checkpointers()
            .num_epochs(settings.epochs)
            .summary()
            .launch(Learner::new(model, optimizer, schedule)),
    )
}

/// The one line that differs between the optimizers.
fn optimizer(settings: &SupervisedSettings, model: &LanguageModel) -> ModuleOptimizer {
    match settings.optimizer {
        OptimizerKind::MuonClip => MuonClipConfig::new()
            .with_weight_decay(settings.weight_decay)
            .init(model),
        OptimizerKind::AdamW => AdamWConfig::new()
            .with_weight_decay(settings.weight_decay)
            .init(),
    }
}

type Loader = Arc<dyn DataLoader<Batch>>;

fn data_loaders(settings: &SupervisedSettings) -> Result<(Loader, Loader), TrainError> {
    let (_, split) = load_and_split(settings.text.as_deref(), settings.seq_len)?;
    let loader = |text: &[u8], windows: usize, shuffle: Option<u64>| -> Loader {
        let tokens = windows.saturating_mul(settings.seq_len);
        let windows = evaluation_windows(text, settings.seq_len, tokens);
        let windows = windows.into_iter().map(<[u8]>::to_vec).collect();
        let builder = DataLoaderBuilder::new(WindowBatcher).batch_size(settings.batch);
        match shuffle {
            Some(seed) => builder.shuffle(seed),
            None => builder,
        }
        .build(InMemDataset::new(windows))
    };
    let train = loader(&split.train, settings.windows, Some(settings.seed));
    let validation = loader(&split.validation, settings.windows.div_ceil(10), None);
    Ok((train, validation))
}
