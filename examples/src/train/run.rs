use burn::module::{Module, ModuleVisitor, Param};
use burn::tensor::{Device, Tensor};
use burn_kimi_model::{Decoder, DecoderConfig};

use super::checkpoint;
use super::position::Position;
use super::session::Session;
use super::{
    Interrupt, LanguageModelOptimizer, LockedFolder, MetricsLog, Outcome, Progress, RunConfig,
    RunSettings, Task, TrainError, decoder_config, load_model, newest_checkpoint,
};

/// Starts a run in an empty folder.
///
/// # Errors
/// [`TrainError`] if the settings make no model, the device is missing, a file cannot be written, or the loss
/// is no longer finite.
pub fn start(
    folder: &LockedFolder,
    settings: RunSettings,
    task: &Task,
    interrupt: &Interrupt,
    progress: &mut Progress,
) -> Result<Outcome, TrainError> {
    settings.validate()?;
    let device = settings.train.device.open()?.autodiff();
    let decoder = decoder_config(&settings.model)?;
    let model = seeded_model(&decoder, settings.train.seed, &device);
    let optimizer = LanguageModelOptimizer::new(&settings.train, &model);
    let config = RunConfig::new(settings, decoder, model.num_params(), task.summary.clone());
    folder.write_config(&config)?;
    let log = MetricsLog::open(&folder.metrics_file(), 0)?;
    let session = Session::new(
        folder,
        &config,
        task,
        device,
        model,
        optimizer,
        log,
        Position::default(),
    )?;
    session.run(interrupt, progress)
}

/// Continues the run in `folder` from its newest checkpoint, up to `config.settings.train.steps`. If that is
/// another number than the run was started with, the learning rates are from here on those of a run of that
/// length.
///
/// # Errors
/// Those of [`start`]; [`TrainError::NoCheckpoint`], [`TrainError::TextChanged`], [`TrainError::Setting`] if more
/// steps are taken already, or [`TrainError::Malformed`] if the folder does not hold what `config` says.
pub fn resume(
    folder: &LockedFolder,
    config: &RunConfig,
    task: &Task,
    interrupt: &Interrupt,
    progress: &mut Progress,
) -> Result<Outcome, TrainError> {
    if task.summary.sha256 != config.text.sha256 {
        return Err(TrainError::TextChanged {
            path: folder.path().to_owned(),
            stored: config.text.sha256.clone(),
            found: task.summary.sha256.clone(),
        });
    }
    let checkpoint = newest_checkpoint(folder)?.ok_or_else(|| TrainError::NoCheckpoint {
        path: folder.path().to_owned(),
    })?;
    let train = &config.settings.train;
    let position = checkpoint::load_position(&checkpoint, train)?;
    if position.step > train.steps {
        return Err(TrainError::Setting {
            flag: "steps",
            reason: format!(
                "{} steps are taken already, so {} are too few",
                position.step, train.steps
            ),
        });
    }
    let device = train.device.open()?.autodiff();
    let model = load_model(&checkpoint, &config.model, &device)?;
    let optimizer = LanguageModelOptimizer::new(train, &model);
    let optimizer = checkpoint::load_optimizer(&checkpoint, optimizer)?;
    if let (Some(qk_clip), Some(state)) = (optimizer.qk_clip(), &position.qk_clip) {
        qk_clip
            .load_state(state.clone())
            .map_err(|e| TrainError::malformed(&checkpoint, e))?;
    }
    folder.write_config(config)?;
    let log = MetricsLog::open(&folder.metrics_file(), position.step)?;
    let session = Session::new(
        folder, config, task, device, model, optimizer, log, position,
    )?;
    session.run(interrupt, progress)
}

/// A model whose weights depend on the seed alone.
///
/// Burn draws weights when they are first read. Reading them here, in the order of the model's fields, keeps
/// the order of the first forward pass or of the optimizer from deciding what is drawn.
fn seeded_model(config: &DecoderConfig, seed: u64, device: &Device) -> Decoder {
    struct Draw;
    impl ModuleVisitor for Draw {
        fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
            param.val();
        }
    }
    device.seed(seed);
    let model = config.init(device);
    model.visit(&mut Draw);
    model
}
