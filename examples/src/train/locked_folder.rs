use std::fs::{DirEntry, File, TryLockError};
use std::io::ErrorKind;
use std::ops::Deref;

use super::atomic_file::remove_temporary_files;
use super::{RunFolder, TrainError};

const LOCK_FILE: &str = ".lock";

/// The folder of a run that this process alone may write, for as long as the value lives.
///
/// The lock is the operating system's, on the file `.lock`, so it ends with the process however that ends. The
/// file itself stays: whoever removed it could remove the lock of the next process.
#[derive(Debug)]
pub struct LockedFolder {
    folder: RunFolder,
    _lock: File,
}

impl LockedFolder {
    /// Locks `folder`, which must exist, and removes what a killed process left half-written in it.
    ///
    /// # Errors
    /// [`TrainError::FolderBusy`] if it is locked already, [`TrainError::Io`].
    pub fn lock(folder: RunFolder) -> Result<Self, TrainError> {
        let path = folder.path().join(LOCK_FILE);
        let file = File::options()
            .create(true)
            .truncate(false)
            .write(true)
            .open(&path)
            .map_err(|e| TrainError::io(&path, e))?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                return Err(TrainError::FolderBusy {
                    path: folder.path().to_owned(),
                });
            }
            // Some network file systems know no locks, which is no reason to refuse a run.
            Err(TryLockError::Error(error)) if error.kind() == ErrorKind::Unsupported => {}
            Err(TryLockError::Error(error)) => return Err(TrainError::io(&path, error)),
        }
        remove_temporary_files(folder.path())?;
        Ok(Self {
            folder,
            _lock: file,
        })
    }

    /// Whether `entry` is the file that is locked.
    pub(super) fn is_lock(entry: &DirEntry) -> bool {
        entry.file_name() == LOCK_FILE
    }
}

impl Deref for LockedFolder {
    type Target = RunFolder;

    fn deref(&self) -> &RunFolder {
        &self.folder
    }
}
