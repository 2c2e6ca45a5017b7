use std::fs;
use std::path::{Path, PathBuf};

use walkdir::WalkDir;

use super::{Corpus, Document, TextError};

/// The Burn release whose sources are the default text.
pub const BURN_VERSION: &str = "0.22.1";

/// The packages of the default text, in byte order: every `burn*` package of [`BURN_VERSION`] that the default
/// build of `examples` compiles. The list is fixed, so that losses stay comparable whatever is added later.
pub const DEFAULT_PACKAGES: [&str; 18] = [
    "burn",
    "burn-autodiff",
    "burn-backend",
    "burn-backend-extension",
    "burn-core",
    "burn-dataset",
    "burn-derive",
    "burn-dispatch",
    "burn-einsum",
    "burn-flex",
    "burn-ir",
    "burn-linalg",
    "burn-nn",
    "burn-optim",
    "burn-pack",
    "burn-std",
    "burn-tensor",
    "burn-train",
];

/// The packages that are only validated on, about 6 % of the bytes: one that handles data and one that computes.
pub const VALIDATION_PACKAGES: [&str; 2] = ["burn-dataset", "burn-linalg"];

/// Longer files are left out (generated tables, mostly). 256 KB are 256 x 1024 bytes here.
pub const MAX_FILE_BYTES: u64 = 256 * 1024;

/// Files of the default text.
pub const DEFAULT_FILES: usize = 691;

/// Bytes of the default text.
pub const DEFAULT_BYTES: usize = 7_475_557;

/// SHA-256 of the default text.
pub const DEFAULT_SHA256: &str = "5151a6a88a947650fc3483eac7d611ac019a0cc4fc530a19aec44a87451e3afd";

/// Finds the unpacked sources of Burn's packages.
#[derive(Clone, Debug)]
pub struct BurnSources {
    registry: PathBuf,
}

impl BurnSources {
    /// Cargo's own folder of unpacked sources, `$CARGO_HOME/registry/src`.
    ///
    /// # Errors
    /// [`TextError::NoCargoHome`] if neither `CARGO_HOME` nor a home folder is known.
    pub fn from_cargo_home() -> Result<Self, TextError> {
        let home = home::cargo_home().map_err(|source| TextError::NoCargoHome { source })?;
        Ok(Self::in_registry(home.join("registry").join("src")))
    }

    /// `registry` holds one folder per registry, and each of those one folder `NAME-VERSION` per package.
    pub fn in_registry(registry: impl Into<PathBuf>) -> Self {
        Self {
            registry: registry.into(),
        }
    }

    /// Reads `packages` in the given order: the `.rs` files of at most [`MAX_FILE_BYTES`], in byte order of
    /// their path inside the package.
    ///
    /// # Errors
    /// [`TextError::PackageMissing`] if no registry folder has a package, [`TextError::Unreadable`] if a file
    /// cannot be read.
    pub fn read(&self, packages: &[&str]) -> Result<Corpus, TextError> {
        let mut documents = Vec::new();
        for package in packages {
            documents.extend(rust_files(package, &self.folder(package)?)?);
        }
        Ok(Corpus {
            name: format!("Rust sources of Burn {BURN_VERSION}"),
            documents,
        })
    }

    /// Several registries (mirrors) may be unpacked side by side; the first in name order that has the package
    /// serves it.
    fn folder(&self, package: &str) -> Result<PathBuf, TextError> {
        let folder_name = format!("{package}-{BURN_VERSION}");
        let mut registries: Vec<PathBuf> = fs::read_dir(&self.registry)
            .map(|entries| entries.flatten().map(|entry| entry.path()).collect())
            .unwrap_or_default();
        registries.sort();
        registries
            .into_iter()
            .map(|registry| registry.join(&folder_name))
            .find(|folder| folder.is_dir())
            .ok_or_else(|| TextError::PackageMissing {
                package: folder_name.clone(),
                registry: self.registry.clone(),
            })
    }
}

/// The default text, checked against [`DEFAULT_FILES`], [`DEFAULT_BYTES`] and [`DEFAULT_SHA256`].
///
/// # Errors
/// Those of [`BurnSources::read`], and [`TextError::Changed`] if the text found is another one.
pub fn load_default_text(sources: &BurnSources) -> Result<Corpus, TextError> {
    let corpus = sources.read(&DEFAULT_PACKAGES)?;
    let found = (corpus.documents.len(), corpus.bytes(), corpus.sha256());
    if (found.0, found.1, found.2.as_str()) != (DEFAULT_FILES, DEFAULT_BYTES, DEFAULT_SHA256) {
        return Err(TextError::Changed {
            files: found.0,
            bytes: found.1,
            sha256: found.2,
            registry: sources.registry.clone(),
        });
    }
    Ok(corpus)
}

fn rust_files(package: &str, folder: &Path) -> Result<Vec<Document>, TextError> {
    let mut documents = Vec::new();
    for entry in WalkDir::new(folder) {
        let entry = entry.map_err(|error| unreadable(folder, error))?;
        let is_rust = entry
            .path()
            .extension()
            .is_some_and(|extension| extension == "rs");
        if !is_rust || !entry.file_type().is_file() {
            continue;
        }
        let length = entry
            .metadata()
            .map_err(|error| unreadable(folder, error))?
            .len();
        if length <= MAX_FILE_BYTES {
            let bytes = fs::read(entry.path()).map_err(|source| TextError::Unreadable {
                path: entry.path().to_owned(),
                source,
            })?;
            let path = slash_separated(entry.path().strip_prefix(folder).unwrap_or(entry.path()));
            documents.push(Document {
                group: package.to_owned(),
                path,
                bytes,
            });
        }
    }
    documents.sort_by(|a, b| a.path.cmp(&b.path));
    Ok(documents)
}

/// The same text on every platform: `/` between the parts of a path.
pub(super) fn slash_separated(path: &Path) -> String {
    let parts: Vec<_> = path.iter().map(|part| part.to_string_lossy()).collect();
    parts.join("/")
}

pub(super) fn unreadable(root: &Path, error: walkdir::Error) -> TextError {
    TextError::Unreadable {
        path: error.path().unwrap_or(root).to_owned(),
        source: error.into(),
    }
}
