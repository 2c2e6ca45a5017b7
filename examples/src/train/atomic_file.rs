use std::io::Write;
use std::path::Path;

use tempfile::NamedTempFile;

use super::TrainError;

/// Writes `bytes` so that `path` holds either its old content or all of the new one, also if the program or the
/// machine stops half-way: into a temporary file beside it, which then takes its name.
///
/// # Errors
/// [`TrainError::Io`] with the path.
pub fn write_atomically(path: &Path, bytes: &[u8]) -> Result<(), TrainError> {
    let folder = path.parent().unwrap_or(Path::new("."));
    let write = || -> std::io::Result<()> {
        let mut file = NamedTempFile::new_in(folder)?;
        file.write_all(bytes)?;
        file.as_file().sync_all()?;
        make_readable(file.as_file())?;
        file.persist(path)?;
        Ok(())
    };
    write().map_err(|source| TrainError::io(path, source))
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
