use std::time::Instant;

use burn::module::Module;
use burn::tensor::Device;
use burn_kimi_model::Decoder;
use burn_muonclip::qk_clip::QkClip;

use super::checkpoint;
use super::position::Position;
use super::shards::Shards;
use super::{
    HeadLogit, Interrupt, LanguageModelOptimizer, LearningRates, MetricsLine, MetricsLog, Progress,
    RunConfig, RunFolder, Task, TrainError, evaluate, read_metrics,
};
use crate::text::TrainBatches;
use crate::{chart, logit_chart};

/// How a session of training ended.
#[derive(Clone, Debug)]
pub enum Outcome {
    /// All steps were taken.
    Finished {
        /// The trained model, without autodiff.
        model: Box<Decoder>,
        /// The last validation loss in nats per byte.
        validation_loss: f64,
    },
    /// Somebody asked to stop; a checkpoint was written.
    Interrupted {
        /// Steps taken.
        step: usize,
    },
}

/// A run while it is trained.
pub(super) struct Session<'a> {
    folder: &'a RunFolder,
    config: &'a RunConfig,
    task: &'a Task,
    device: Device,
    model: Decoder,
    optimizer: LanguageModelOptimizer,
    rates: LearningRates,
    batches: TrainBatches,
    shards: Shards,
    log: MetricsLog,
    step: usize,
    seconds_before: f64,
    started: Instant,
}

impl<'a> Session<'a> {
    pub(super) fn new(
        folder: &'a RunFolder,
        config: &'a RunConfig,
        task: &'a Task,
        device: Device,
        model: Decoder,
        optimizer: LanguageModelOptimizer,
        log: MetricsLog,
        position: Position,
    ) -> Result<Self, TrainError> {
        let train = &config.settings.train;
        Ok(Self {
            folder,
            config,
            task,
            device,
            model,
            optimizer,
            rates: LearningRates::after(train, position.step)?,
            batches: TrainBatches::new(
                task.split.train.clone(),
                train.batch,
                train.seq_len,
                train.seed,
            ),
            shards: Shards::new(train.shards)?,
            log,
            step: position.step,
            seconds_before: position.seconds,
            started: Instant::now(),
        })
    }

    /// Takes the remaining steps, unless somebody asks to stop.
    pub(super) fn run(
        mut self,
        interrupt: &Interrupt,
        progress: &mut Progress,
    ) -> Result<Outcome, TrainError> {
        let (steps, save_every) = (
            self.config.settings.train.steps,
            self.config.settings.train.save_every,
        );
        progress.start(self.step, steps);
        while self.step < steps {
            if interrupt.requested() {
                progress.finish();
                self.save()?;
                self.draw_chart()?;
                return Ok(Outcome::Interrupted { step: self.step });
            }
            let (session, line) = self.advance()?;
            self = session;
            progress.update(&line);
            if self.step.is_multiple_of(save_every) {
                self.save()?;
            }
        }
        progress.finish();
        self.save()?;
        self.draw_chart()?;
        let model = self.model.valid();
        Ok(Outcome::Finished {
            validation_loss: self.final_validation_loss(&model)?,
            model: Box::new(model),
        })
    }

    /// Takes one step, validates if it is time to, and writes the line.
    fn advance(mut self) -> Result<(Self, MetricsLine), TrainError> {
        let train = &self.config.settings.train;
        let batch = self.batches.batch(self.step, &self.device);
        let qk_clip = self.optimizer.qk_clip();
        let (train_loss, gradients) =
            self.shards
                .gradients(&self.model, &batch, &self.device, qk_clip);
        let lr = self.rates.next_rate();
        if let Some(gradients) = gradients {
            self.model = self.optimizer.step(lr, self.model, gradients);
        }
        self.step += 1;

        let validates = self.step.is_multiple_of(train.eval_every) || self.step == train.steps;
        let validation_loss =
            (validates && train_loss.is_finite()).then(|| self.validate(&self.model.valid()));
        let clipping = self.optimizer.clipping();
        let line = MetricsLine {
            step: self.step,
            tokens: self.step * train.batch * train.seq_len,
            lr,
            train_loss: train_loss.is_finite().then_some(train_loss),
            validation_loss,
            skipped: self.optimizer.skipped(),
            heads: clipping.as_ref().map_or_else(Vec::new, HeadLogit::of),
            ever_clipped: clipping.map(|report| report.share_ever_clipped()),
            seconds: self.seconds(),
        };
        self.log.append(&line)?;
        match line.train_loss {
            Some(_) => Ok((self, line)),
            None => Err(TrainError::Diverged {
                step: line.step,
                loss: train_loss,
            }),
        }
    }

    fn validate(&self, model: &Decoder) -> f64 {
        let windows = self.task.validation_windows();
        let device = self.device.clone().inner();
        evaluate(model, &windows, self.config.settings.train.batch, &device)
    }

    /// The loss of the last step's line. A run that was shortened when it was resumed may end on a step that
    /// was not validated.
    fn final_validation_loss(&self, model: &Decoder) -> Result<f64, TrainError> {
        let lines = read_metrics(&self.folder.metrics_file())?;
        let measured = lines.last().and_then(|line| line.validation_loss);
        Ok(measured.unwrap_or_else(|| self.validate(model)))
    }

    /// Seconds of training so far, in milliseconds' precision: more digits would only be noise.
    fn seconds(&self) -> f64 {
        let seconds = self.seconds_before + self.started.elapsed().as_secs_f64();
        (seconds * 1e3).round() / 1e3
    }

    /// A checkpoint cannot be continued from without the lines of its steps, so they reach the disk first.
    fn save(&self) -> Result<(), TrainError> {
        self.log.sync()?;
        let position = Position {
            step: self.step,
            seconds: self.seconds(),
            qk_clip: self.optimizer.qk_clip().map(QkClip::state),
        };
        let train = &self.config.settings.train;
        checkpoint::save(self.folder, position, train, &self.model, &self.optimizer)
    }

    fn draw_chart(&self) -> Result<(), TrainError> {
        chart::draw_run(self.folder, self.config)?;
        let lines = read_metrics(&self.folder.metrics_file())?;
        let threshold = self.config.settings.train.qk_clip;
        logit_chart::draw(&self.folder.logits_file(), &lines, threshold)
    }
}
