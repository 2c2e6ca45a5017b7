use std::path::PathBuf;

/// Why a text cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TextError {
    /// The path does not exist.
    #[error("text {}: there is no such file or folder", path.display())]
    Missing {
        /// The path as given.
        path: PathBuf,
    },
    /// The path exists and is neither a file nor a folder.
    #[error("text {}: neither a regular file nor a folder", path.display())]
    NotAFile {
        /// The path as given.
        path: PathBuf,
    },
    /// A file or folder cannot be read.
    #[error("text {}: cannot be read", path.display())]
    Unreadable {
        /// The file or folder.
        path: PathBuf,
        /// What the system reported.
        source: std::io::Error,
    },
    /// The file is not valid UTF-8, or contains a NUL byte.
    #[error("text {}: not a text file (valid UTF-8 without NUL bytes is wanted)", path.display())]
    NotText {
        /// The file as given.
        path: PathBuf,
    },
    /// The file is empty, or no file in the folder has text.
    #[error("text {}: empty ({files} text files, {skipped} other files skipped)", path.display())]
    Empty {
        /// The path as given.
        path: PathBuf,
        /// Text files found, all of them empty.
        files: usize,
        /// Files that are not text.
        skipped: usize,
    },
    /// The text holds more bytes than are read into memory.
    #[error("text {}: more than {limit} bytes; give a smaller file or folder", path.display())]
    TooLarge {
        /// The path as given.
        path: PathBuf,
        /// The limit in bytes.
        limit: u64,
    },
    /// A split is shorter than one window.
    #[error(
        "text {name}: too short: {bytes} bytes leave {train} to train on and {validation} to validate on, and \
         each must hold --seq-len + 1 = {needed}; give a longer text or a smaller --seq-len"
    )]
    TooShort {
        /// The name of the text: its path for a user's own.
        name: String,
        /// Bytes of the whole text.
        bytes: usize,
        /// Bytes of the train split.
        train: usize,
        /// Bytes of the validation split.
        validation: usize,
        /// Bytes that each split must have.
        needed: usize,
    },
    /// Cargo's home folder is unknown, so the default text cannot be found.
    #[error("default text: cargo's home folder is unknown; set CARGO_HOME, or give --text PATH")]
    NoCargoHome {
        /// What the system reported.
        source: std::io::Error,
    },
    /// A package of the default text is not unpacked on this machine.
    #[error(
        "default text: the sources of {package} are in no folder of {}; run `cargo fetch` in this repository, or \
         give --text PATH",
        registry.display()
    )]
    PackageMissing {
        /// Name and version of the package.
        package: String,
        /// The folder that holds one folder per registry.
        registry: PathBuf,
    },
    /// The default text differs from the one that published losses belong to.
    #[error(
        "default text: found {files} files, {bytes} bytes, sha256 {sha256}; published are {} files, {} bytes, \
         sha256 {}. Unpacked sources under {} were changed: remove the burn-* folders there and run \
         `cargo fetch`, or give --text PATH",
        super::DEFAULT_FILES, super::DEFAULT_BYTES, super::DEFAULT_SHA256, registry.display()
    )]
    Changed {
        /// Files found.
        files: usize,
        /// Bytes found.
        bytes: usize,
        /// Digest found.
        sha256: String,
        /// The folder that holds one folder per registry.
        registry: PathBuf,
    },
}
