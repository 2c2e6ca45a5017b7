//! Finding the cases in a folder of folders.

use std::path::{Path, PathBuf};

use walkdir::{DirEntry, WalkDir};

use super::case::{CASE_FILE, TENSOR_FILE};
use super::error::CaseError;

/// Every case folder at or below `root`, in path order, and what went wrong on the way.
///
/// A folder counts as a case if it holds `case.json`, or the tensors of one: a lost `case.json` is
/// then reported when the case is opened, not passed over.
pub(super) fn case_folders(root: &Path) -> Vec<Result<PathBuf, CaseError>> {
    let path = root.to_path_buf();
    if !root.is_dir() {
        return vec![Err(CaseError::NoFolder { path })];
    }
    let found: Vec<_> = WalkDir::new(root)
        .follow_links(true)
        .sort_by_file_name()
        .into_iter()
        .filter_map(|entry| match entry {
            Ok(entry) => is_case(&entry).then(|| Ok(entry.into_path())),
            Err(error) => Some(Err(error.into())),
        })
        .collect();
    if found.is_empty() {
        return vec![Err(CaseError::NoCase { path })];
    }
    found
}

fn is_case(entry: &DirEntry) -> bool {
    let holds = |file| entry.path().join(file).is_file();
    entry.file_type().is_dir() && (holds(CASE_FILE) || holds(TENSOR_FILE))
}
