use std::collections::BTreeSet;
use std::ffi::OsString;
use std::path::PathBuf;

use clap::parser::ValueSource;
use clap::{CommandFactory, FromArgMatches, Parser};

use crate::train::RunSettings;

const EXAMPLES: &str = "\
Examples:
  train-lm                                     train the default model, in a new folder under runs/
  train-lm --text notes/ --out runs/notes      train on your own text
  train-lm --resume runs/notes                 continue after Ctrl-C, or print another sample when finished
  train-lm --resume runs/notes --steps 1000    train a run for longer
  train-lm --compare                           MuonClip and AdamW at three learning rates, three seeds
  train-lm --compare --seeds 0 --adamw-lrs 3e-3
                                               one run of each
  train-lm --resume runs/001 --report          rebuild the table and the chart of a comparison

Exit status: 0 finished, 1 failed, 2 wrong usage, 130 stopped by Ctrl-C after saving.";

/// Trains a small Kimi-style language model on bytes of text and shows that it learns.
#[derive(Clone, Debug, Parser)]
#[command(name = "train-lm", version, after_help = EXAMPLES, allow_negative_numbers = true)]
pub struct Cli {
    /// What decides the numbers of a run.
    #[command(flatten)]
    pub settings: RunSettings,
    /// Where a run is kept.
    #[command(flatten)]
    pub folder: FolderFlags,
    /// What is generated at the end.
    #[command(flatten)]
    pub sample: SampleFlags,
    /// Comparing optimizers.
    #[command(flatten)]
    pub compare: CompareFlags,
    /// Names of the settings that were given, as they are called in [`RunSettings`].
    #[arg(skip)]
    pub given: BTreeSet<String>,
}

/// Where a run is kept.
#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "Results")]
pub struct FolderFlags {
    /// Folder for the results of a new run [default: the first free one of runs/001, runs/002, ...]
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// Continue the run or comparison in DIR; settings come from there, and only --save-every, --device, the
    /// place of --text and, for a run, --steps may differ (the schedule is then rebuilt for the new length)
    #[arg(long, value_name = "DIR", conflicts_with_all = ["out", "overwrite"])]
    pub resume: Option<PathBuf>,
    /// Replace the run that --out holds
    #[arg(long, requires = "out")]
    pub overwrite: bool,
}

/// What is generated at the end.
#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "Sample")]
pub struct SampleFlags {
    /// Text that the sample at the end continues
    #[arg(long, default_value = "fn main", value_name = "TEXT")]
    pub prompt: String,
    /// Bytes to generate; 0 for none
    #[arg(long, default_value_t = 300, value_name = "BYTES")]
    pub sample_len: usize,
    /// Below 1 is bolder, above 1 more varied; 0 takes the likeliest byte
    #[arg(long, default_value_t = 0.7, value_name = "T")]
    pub temperature: f64,
}

/// Comparing optimizers.
#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "Comparison")]
pub struct CompareFlags {
    /// Train MuonClip and AdamW on the same budget, and print one table and draw one chart
    #[arg(long, conflicts_with_all = ["optimizer", "seed", "resume", "overwrite"])]
    pub compare: bool,
    /// Learning rates of the MuonClip arms [default: --lr]
    #[arg(
        long,
        value_name = "RATES",
        value_delimiter = ',',
        requires = "compare",
        conflicts_with = "lr"
    )]
    pub muonclip_lrs: Vec<f64>,
    /// Learning rates of the AdamW arms
    #[arg(
        long,
        value_name = "RATES",
        value_delimiter = ',',
        requires = "compare",
        default_values_t = [3e-3, 1e-2, 3e-2]
    )]
    pub adamw_lrs: Vec<f64>,
    /// Seeds of every arm
    #[arg(
        long,
        value_name = "SEEDS",
        value_delimiter = ',',
        requires = "compare",
        default_values_t = [0, 1, 2]
    )]
    pub seeds: Vec<u64>,
    /// Take only this run of a comparison, such as adamw-lr0.003/1
    #[arg(long, value_name = "ARM/SEED")]
    pub only: Option<String>,
    /// Train nothing; rebuild the table and the chart of the comparison in --resume DIR
    #[arg(long, requires = "resume", conflicts_with = "only")]
    pub report: bool,
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
        let matches = Self::command().try_get_matches_from(line)?;
        let mut cli = Self::from_arg_matches(&matches)?;
        cli.given = matches
            .ids()
            .map(|id| id.as_str())
            .filter(|id| matches.value_source(id) == Some(ValueSource::CommandLine))
            .map(str::to_owned)
            .collect();
        Ok(cli)
    }
}
