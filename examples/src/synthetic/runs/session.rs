use std::path::Path;
use std::time::Instant;

use burn::module::Module;
use burn::optim::{AdamWConfig, GradientsParams, ModuleOptimizer};
use burn::tensor::Device;
use burn_kimi_model::DeviceName;

use super::{Point, RunConfig, RunDisplay, RunProgress, RunState, checkpoint};
use crate::synthetic::{
    Batch, Network, Plan, RunId, accuracy, answer_loss, held_out_examples, train_examples,
};
use crate::train::{Interrupt, LockedFolder, TrainError};

/// How a session of a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    /// The run is over.
    Over,
    /// Somebody asked to stop; a checkpoint was written.
    Interrupted,
}

/// A run while it is trained.
pub(super) struct Session<'a> {
    plan: &'a Plan,
    run: RunId,
    folder: LockedFolder,
    device: Device,
    network: Network,
    optimizer: ModuleOptimizer,
    held_out: Vec<Batch>,
    progress: RunProgress,
    saved_step: usize,
    seconds_before: f64,
    started: Instant,
}

impl<'a> Session<'a> {
    /// Starts the run in `folder`, or continues it. `experiment` is the folder of the whole experiment.
    pub(super) fn open(
        plan: &'a Plan,
        run: RunId,
        experiment: &Path,
        folder: LockedFolder,
        device: DeviceName,
    ) -> Result<Self, TrainError> {
        let settings = &plan.settings;
        let device = device.open()?.autodiff();
        let vocabulary = run.task.vocabulary(&settings.tasks);
        let network = Network::seeded(vocabulary, run.arm, &settings.model, run.seed, &device);
        let optimizer = AdamWConfig::new()
            .with_epsilon(1e-8)
            .with_weight_decay(settings.training.weight_decay as f32)
            .init();
        if RunConfig::read(plan, experiment, run)?.is_none() {
            RunConfig::new(plan, run, network.num_params()).write(&folder)?;
        }
        let progress = RunProgress::read(plan, experiment, run)?;
        let (network, optimizer) = match &progress.checkpoint {
            Some(digests) => checkpoint::load(&folder, progress.step, digests, network, optimizer)?,
            None => (network, optimizer),
        };
        Ok(Self {
            held_out: held_out_batches(plan, run, &device.clone().inner()),
            plan,
            run,
            folder,
            device,
            network,
            optimizer,
            saved_step: progress.step,
            seconds_before: progress.seconds,
            progress,
            started: Instant::now(),
        })
    }

    /// Takes the remaining steps, unless somebody asks to stop.
    pub(super) fn run(
        mut self,
        interrupt: &Interrupt,
        display: &mut RunDisplay,
    ) -> Result<Outcome, TrainError> {
        let plan = self.plan;
        let training = &plan.settings.training;
        display.start(self.progress.step, training.steps);
        while !self.state().is_over() {
            if interrupt.requested() {
                display.finish();
                self.save()?;
                return Ok(Outcome::Interrupted);
            }
            let (next, loss) = self.advance();
            self = next;
            let step = self.progress.step;
            display.step(step, loss);
            if !loss.is_finite() {
                self.progress.diverged = true;
            } else if step.is_multiple_of(training.eval_every) || step == training.steps {
                let point = self.evaluate(loss);
                display.evaluated(&point);
                self.progress.curve.push(point);
                if step < training.steps {
                    self.save()?;
                }
            }
        }
        display.finish();
        self.close()
    }

    fn state(&self) -> RunState {
        self.progress.state(self.plan.settings.training.steps)
    }

    /// Takes one step and returns the loss of its batch before the update.
    fn advance(mut self) -> (Self, f64) {
        let settings = &self.plan.settings;
        let done = self.progress.step;
        let RunId { task, seed, .. } = self.run;
        let examples = train_examples(task, &settings.tasks, seed, done, settings.training.batch);
        let loss = answer_loss(&self.network, &Batch::new(&examples, &self.device));
        let value = f64::from(loss.clone().into_scalar::<f32>());
        if value.is_finite() {
            let gradients = GradientsParams::from_grads(loss.backward(), &self.network);
            let rate = settings.training.learning_rate(done);
            self.network = self.optimizer.step(rate, self.network, gradients);
        }
        self.progress.step = done + 1;
        (self, value)
    }

    fn evaluate(&self, loss: f64) -> Point {
        Point {
            step: self.progress.step,
            loss,
            accuracy: accuracy(&self.network.valid(), &self.held_out),
        }
    }

    /// Keeps what is needed to continue. Files that `progress.json` names already are never written again.
    fn save(&mut self) -> Result<(), TrainError> {
        let step = self.progress.step;
        if step == self.saved_step {
            return Ok(());
        }
        let digests = checkpoint::save(&self.folder, step, &self.network, &self.optimizer)?;
        self.progress.checkpoint = Some(digests);
        self.write_progress()?;
        self.saved_step = step;
        checkpoint::keep_only(&self.folder, step)
    }

    /// Keeps the numbers of a run that is over.
    fn close(mut self) -> Result<Outcome, TrainError> {
        self.progress.checkpoint = None;
        self.write_progress()?;
        checkpoint::remove(&self.folder)?;
        Ok(Outcome::Over)
    }

    /// Seconds are kept in milliseconds' precision: more digits would only be noise.
    fn write_progress(&mut self) -> Result<(), TrainError> {
        let seconds = self.seconds_before + self.started.elapsed().as_secs_f64();
        self.progress.seconds = (seconds * 1e3).round() / 1e3;
        self.progress.write(self.folder.path())
    }
}

fn held_out_batches(plan: &Plan, run: RunId, device: &Device) -> Vec<Batch> {
    let (tasks, training) = (&plan.settings.tasks, &plan.settings.training);
    let examples = held_out_examples(run.task, tasks, training.eval_sequences);
    let batches = examples.chunks(training.batch);
    batches.map(|batch| Batch::new(batch, device)).collect()
}
