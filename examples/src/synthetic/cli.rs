use std::ffi::OsString;
use std::path::PathBuf;

use burn_kimi_model::DeviceName;
use clap::Parser;

use super::{Arm, Settings, TaskKind};

const EXAMPLES: &str = "\
Examples:
  synthetic                                      all runs, in a new folder under runs/
  synthetic --tasks mqar --arms kda,scalar-gate --seeds 0
                                                 two runs
  synthetic --resume runs/001                    continue after Ctrl-C, and take the runs that are missing
  synthetic --resume runs/001 --only mqar/kda/2  take or continue a single run
  synthetic --resume runs/001 --report           rebuild the tables and the charts

Exit status: 0 finished, 1 failed, 2 wrong usage, 130 stopped by Ctrl-C after saving.";

/// Trains small models on synthetic tasks and compares Kimi Delta Attention with what it is made from.
#[derive(Clone, Debug, Parser)]
#[command(name = "synthetic", version, after_help = EXAMPLES, allow_negative_numbers = true)]
pub struct Cli {
    /// What is compared.
    #[command(flatten)]
    pub choice: ChoiceFlags,
    /// What all runs have in common.
    #[command(flatten)]
    pub settings: Settings,
    /// Where results are kept, and which runs are taken.
    #[command(flatten)]
    pub execution: ExecutionFlags,
}

/// What is compared: every arm on every task with every seed.
#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "Comparison")]
pub struct ChoiceFlags {
    /// Tasks
    #[arg(long, value_enum, value_name = "TASKS", value_delimiter = ',', default_values_t = TaskKind::ALL)]
    pub tasks: Vec<TaskKind>,
    /// What mixes the tokens
    #[arg(long, value_enum, value_name = "ARMS", value_delimiter = ',', default_values_t = Arm::ALL)]
    pub arms: Vec<Arm>,
    /// Seeds of the weights and of the training sequences
    #[arg(long, value_name = "SEEDS", value_delimiter = ',', default_values_t = [0, 1, 2])]
    pub seeds: Vec<u64>,
}

/// Where results are kept, and which runs are taken.
#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "Runs")]
pub struct ExecutionFlags {
    /// Folder for the results of a new experiment [default: the first free one of runs/001, runs/002, ...]
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// Continue the experiment in DIR; what is compared and all settings come from there
    #[arg(
        long,
        value_name = "DIR",
        conflicts_with_all = ["out", "ChoiceFlags", "TaskSettings", "ModelSettings", "TrainingSettings"]
    )]
    pub resume: Option<PathBuf>,
    /// Take only this run, such as mqar/kda/2
    #[arg(long, value_name = "TASK/ARM/SEED")]
    pub only: Option<String>,
    /// Train nothing; rebuild the tables and the charts of the experiment in --resume DIR
    #[arg(long, requires = "resume", conflicts_with = "only")]
    pub report: bool,
    /// Device: flex, wgpu, vulkan, metal, webgpu, cuda or rocm, if compiled in by the feature of that name
    #[arg(long, default_value_t, value_name = "NAME")]
    pub device: DeviceName,
}

impl Cli {
    /// Parses a command line; the first item is the program's name.
    ///
    /// # Errors
    /// What [`clap`] reports, `--help` and `--version` included.
    pub fn parse_line<I, T>(line: I) -> Result<Self, clap::Error>
    where
        I: IntoIterator<Item = T>,
        T: Into<OsString> + Clone,
    {
        Self::try_parse_from(line)
    }
}
