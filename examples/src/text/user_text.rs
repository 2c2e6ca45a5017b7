use std::fs::{self, File};
use std::io::Read;
use std::path::Path;

use walkdir::{DirEntry, WalkDir};

use super::burn_sources::{slash_separated, unreadable};
use super::corpus::is_text;
use super::{Corpus, Document, TextError};

/// A user's text is read into memory; more than this is refused.
pub const MAX_TEXT_BYTES: u64 = 1 << 30;

/// Reads a file, or every text file of a folder and its subfolders in byte order of their paths.
///
/// In a folder, hidden files and folders are skipped, files that are not text are skipped, and symbolic links
/// are not followed (so no loop can be entered). A path that names one file must be text.
///
/// # Errors
/// [`TextError`] names the path: missing, unreadable, not a file, not text, empty, or too large.
pub fn load_user_text(path: &Path) -> Result<Corpus, TextError> {
    let metadata = fs::metadata(path).map_err(|source| match source.kind() {
        std::io::ErrorKind::NotFound => TextError::Missing {
            path: path.to_owned(),
        },
        _ => TextError::Unreadable {
            path: path.to_owned(),
            source,
        },
    })?;
    let (documents, skipped) = if metadata.is_file() {
        (vec![read_single(path)?], 0)
    } else if metadata.is_dir() {
        read_folder(path)?
    } else {
        return Err(TextError::NotAFile {
            path: path.to_owned(),
        });
    };
    let corpus = Corpus {
        name: path.display().to_string(),
        documents,
    };
    if corpus.bytes() == 0 {
        return Err(TextError::Empty {
            path: path.to_owned(),
            files: corpus.documents.len(),
            skipped,
        });
    }
    Ok(corpus)
}

fn read_single(path: &Path) -> Result<Document, TextError> {
    let bytes = read_at_most(path, MAX_TEXT_BYTES)?.ok_or_else(|| TextError::TooLarge {
        path: path.to_owned(),
        limit: MAX_TEXT_BYTES,
    })?;
    if !is_text(&bytes) {
        return Err(TextError::NotText {
            path: path.to_owned(),
        });
    }
    let name = path
        .file_name()
        .map_or_else(String::new, |name| name.to_string_lossy().into_owned());
    Ok(Document {
        group: String::new(),
        path: name,
        bytes,
    })
}

/// The text files of a folder and how many other files were skipped.
fn read_folder(folder: &Path) -> Result<(Vec<Document>, usize), TextError> {
    let mut documents = Vec::new();
    let mut skipped = 0;
    let mut left = MAX_TEXT_BYTES;
    for entry in WalkDir::new(folder)
        .into_iter()
        .filter_entry(|entry| !is_hidden(entry))
    {
        let entry = entry.map_err(|error| unreadable(folder, error))?;
        if !entry.file_type().is_file() {
            continue;
        }
        let bytes = read_at_most(entry.path(), left)?.ok_or_else(|| TextError::TooLarge {
            path: folder.to_owned(),
            limit: MAX_TEXT_BYTES,
        })?;
        if !is_text(&bytes) {
            skipped += 1;
            continue;
        }
        left -= bytes.len() as u64;
        let path = slash_separated(entry.path().strip_prefix(folder).unwrap_or(entry.path()));
        documents.push(Document {
            group: String::new(),
            path,
            bytes,
        });
    }
    documents.sort_by(|a, b| a.path.cmp(&b.path));
    Ok((documents, skipped))
}

/// The folder the user named may itself be hidden; only what lies inside is filtered.
fn is_hidden(entry: &DirEntry) -> bool {
    entry.depth() > 0 && entry.file_name().as_encoded_bytes().starts_with(b".")
}

/// `None` if the file holds more than `limit` bytes, whatever its metadata says.
fn read_at_most(path: &Path, limit: u64) -> Result<Option<Vec<u8>>, TextError> {
    let unreadable = |source| TextError::Unreadable {
        path: path.to_owned(),
        source,
    };
    let mut bytes = Vec::new();
    let file = File::open(path).map_err(unreadable)?;
    file.take(limit + 1)
        .read_to_end(&mut bytes)
        .map_err(unreadable)?;
    Ok((bytes.len() as u64 <= limit).then_some(bytes))
}
