use std::path::{Path, PathBuf};

use burn_kimi_model::ConfigError;

use crate::text::TextError;
use burn_kimi_model::DeviceError;

/// Why a run cannot start, continue, or be read.
#[derive(Debug, thiserror::Error)]
pub enum TrainError {
    /// The text cannot be used.
    #[error(transparent)]
    Text(#[from] TextError),
    /// The device cannot be opened.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// A file or folder cannot be read or written.
    #[error("{}", path.display())]
    Io {
        /// The file or folder.
        path: PathBuf,
        /// What the system reported.
        source: std::io::Error,
    },
    /// A file of a run is not what it should be.
    #[error("{}: {reason}", path.display())]
    Malformed {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// A setting is out of range or contradicts another one.
    #[error("--{flag}: {reason}")]
    Setting {
        /// The flag without its dashes.
        flag: &'static str,
        /// What is wrong and what is wanted.
        reason: String,
    },
    /// The sizes do not make a model.
    #[error("the model's settings do not fit together: {0}")]
    Model(#[from] ConfigError),
    /// The folder for a new run holds something already.
    #[error(
        "{0}: holds a run already; continue it with --resume {0}, choose another --out, or replace it with \
         --overwrite",
        path.display()
    )]
    FolderTaken {
        /// The folder.
        path: PathBuf,
    },
    /// The folder for a new run holds files that no run wrote, which `--overwrite` does not remove either.
    #[error("{}: is not empty and holds no run; choose another --out", path.display())]
    FolderNotEmpty {
        /// The folder.
        path: PathBuf,
    },
    /// Another process trains the run in the folder.
    #[error("{}: another process is at work on this run; wait for it to end, or stop it", path.display())]
    FolderBusy {
        /// The folder.
        path: PathBuf,
    },
    /// Flags that only a new comparison takes were given without one.
    #[error(
        "--{}: only together with --compare; a comparison that is resumed takes its learning rates and seeds from \
         its folder",
        flags.join(", --")
    )]
    NeedsCompare {
        /// The flags without their dashes.
        flags: Vec<&'static str>,
    },
    /// There is no run in the folder.
    #[error("{}: there is no run here (config.json is missing)", path.display())]
    NoRun {
        /// The folder.
        path: PathBuf,
    },
    /// The run was stopped before its first checkpoint.
    #[error("{}: there is no checkpoint here to continue from; start again with --overwrite", path.display())]
    NoCheckpoint {
        /// The folder.
        path: PathBuf,
    },
    /// A flag given with `--resume` differs from what the run was started with.
    #[error(
        "{}: the run was started with --{flag} {stored}, which --{flag} {given} contradicts; leave the flag out, \
         or start a new run",
        path.display()
    )]
    Contradiction {
        /// The folder of the run.
        path: PathBuf,
        /// The flag without its dashes.
        flag: String,
        /// The value in `config.json`.
        stored: String,
        /// The value given.
        given: String,
    },
    /// The text is no longer the one that the run was started on.
    #[error(
        "{}: the run was started on a text with sha256 {stored}, and the text now has {found}; give the same text \
         with --text",
        path.display()
    )]
    TextChanged {
        /// The folder of the run.
        path: PathBuf,
        /// Digest in `config.json`.
        stored: String,
        /// Digest of the text found.
        found: String,
    },
    /// The system lets this program listen to no signals.
    #[error("Ctrl-C cannot be listened to")]
    Signals {
        /// What the system reported.
        source: ctrlc::Error,
    },
    /// The loss is not a finite number.
    #[error("the loss is {loss} at step {step}: the run diverged; lower --lr or raise --warmup")]
    Diverged {
        /// The step, counted from 1.
        step: usize,
        /// The loss found.
        loss: f32,
    },
}

impl TrainError {
    pub(crate) fn io(path: &Path, source: std::io::Error) -> Self {
        Self::Io {
            path: path.to_owned(),
            source,
        }
    }

    pub(crate) fn malformed(path: &Path, reason: impl ToString) -> Self {
        Self::Malformed {
            path: path.to_owned(),
            reason: reason.to_string(),
        }
    }
}
