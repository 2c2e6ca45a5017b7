#[cfg(unix)]
use std::fs::File;
use std::fs::{self, DirEntry};
#[cfg(unix)]
use std::io::ErrorKind;
use std::io::Write;
use std::path::Path;

use super::TrainError;

/// How the names of temporary files begin.
const TEMPORARY_PREFIX: &str = ".tmp";

/// Writes `bytes` so that `path` holds either its old content or all of the new one, also if the program or the
/// machine stops half-way: into a temporary file beside it, which takes its name when it is on the disk. What
/// this has returned from lasts.
///
/// # Errors
/// [`TrainError::Io`] with the path.
pub fn write_atomically(path: &Path, bytes: &[u8]) -> Result<(), TrainError> {
    let folder = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    let write = || -> std::io::Result<()> {
        let mut file = tempfile::Builder::new()
            .prefix(TEMPORARY_PREFIX)
            .tempfile_in(folder)?;
        file.write_all(bytes)?;
        make_readable(file.as_file())?;
        file.as_file().sync_all()?;
        file.persist(path)?;
        sync_folder(folder)
    };
    write().map_err(|source| TrainError::io(path, source))
}

/// Whether `entry` is a file that a write left when the program was killed half-way.
pub(super) fn is_temporary(entry: &DirEntry) -> bool {
    entry.file_type().is_ok_and(|kind| kind.is_file())
        && entry
            .file_name()
            .to_string_lossy()
            .starts_with(TEMPORARY_PREFIX)
}

/// Removes what killed programs left in `folder`, a run's or a comparison's, that nobody else writes.
pub(crate) fn remove_temporary_files(folder: &Path) -> Result<(), TrainError> {
    let entries = fs::read_dir(folder).map_err(|e| TrainError::io(folder, e))?;
    for entry in entries.flatten().filter(is_temporary) {
        fs::remove_file(entry.path()).map_err(|e| TrainError::io(&entry.path(), e))?;
    }
    Ok(())
}

/// Temporary files are private to their user; results are meant to be read by others.
#[cfg(unix)]
fn make_readable(file: &std::fs::File) -> std::io::Result<()> {
    use std::os::unix::fs::PermissionsExt;
    file.set_permissions(std::fs::Permissions::from_mode(0o644))
}

#[cfg(not(unix))]
fn make_readable(_file: &std::fs::File) -> std::io::Result<()> {
    Ok(())
}

/// Waits until the names in `folder` are on the disk: a new or renamed file lasts only with its folder.
#[cfg(unix)]
pub(super) fn sync_folder(folder: &Path) -> std::io::Result<()> {
    match File::open(folder)?.sync_all() {
        // Some network file systems cannot, which is no reason to lose a run.
        Err(error)
            if matches!(
                error.kind(),
                ErrorKind::InvalidInput | ErrorKind::Unsupported
            ) =>
        {
            Ok(())
        }
        result => result,
    }
}

/// Elsewhere a folder cannot be opened as a file, and the system writes the names itself.
#[cfg(not(unix))]
pub(super) fn sync_folder(_folder: &Path) -> std::io::Result<()> {
    Ok(())
}
