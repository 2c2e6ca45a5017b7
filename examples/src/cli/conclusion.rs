use std::path::Path;

use burn_kimi_model::Decoder;

use super::exit::EXIT_INTERRUPTED;
use super::print::say;
use super::{Cli, SampleFlags};
use crate::sample::{Sampling, sample};
use crate::train::{Interrupt, Outcome, RunConfig, RunFolder, TrainError};

/// Prints how a session of training ended, and a sample of a finished run. Returns the exit status.
pub(super) fn conclude(
    cli: &Cli,
    folder: &RunFolder,
    outcome: Outcome,
    interrupt: &Interrupt,
) -> Result<u8, TrainError> {
    let config = folder.read_config()?;
    match outcome {
        Outcome::Interrupted { step } => {
            let steps = config.settings.train.steps;
            say(format_args!(
                "stopped after step {step} of {steps} and saved; continue with\n  {}",
                resume_command(folder.path())
            ));
            Ok(EXIT_INTERRUPTED)
        }
        Outcome::Finished {
            model,
            validation_loss,
        } => {
            let bigram = config.text.bigram_loss;
            say(format_args!(
                "finished    {} steps; raise --steps with --resume to train on",
                config.settings.train.steps
            ));
            say(format_args!(
                "validation  {validation_loss:.4} nats per byte, {:.4} {} the bigram table's {bigram:.4}",
                (bigram - validation_loss).abs(),
                if validation_loss < bigram {
                    "below"
                } else {
                    "above"
                }
            ));
            say(format_args!(
                "results     {}: config.json, metrics.jsonl, checkpoint, loss.svg",
                folder.path().display()
            ));
            print_sample(&cli.sample, &config, &model, interrupt)
        }
    }
}

fn print_sample(
    flags: &SampleFlags,
    config: &RunConfig,
    model: &Decoder,
    interrupt: &Interrupt,
) -> Result<u8, TrainError> {
    if flags.sample_len == 0 {
        return Ok(0);
    }
    let train = &config.settings.train;
    let sampling = Sampling {
        length: flags.sample_len,
        temperature: flags.temperature,
        seed: train.seed,
    };
    let prompt = flags.prompt.as_bytes();
    let added = sample(model, prompt, &sampling, &train.device.open()?, interrupt);
    let text = [prompt, &added].concat();
    say(format_args!("sample\n{}", String::from_utf8_lossy(&text)));
    if added.len() < flags.sample_len {
        say(format_args!(
            "stopped the sample after {} of {} bytes; the run is finished and saved",
            added.len(),
            flags.sample_len
        ));
        return Ok(EXIT_INTERRUPTED);
    }
    Ok(0)
}

/// The command that continues the run or comparison in `folder`.
pub(super) fn resume_command(folder: &Path) -> String {
    format!(
        "cargo run --release -p examples --bin train-lm -- --resume {}",
        folder.display()
    )
}
