//! Temporary directories.

use tallyring_archive::Blobs;

use crate::error::{Result, doing};
use crate::out::note;

/// Runs `work` with a new directory that no other process can have made, and removes the directory.
pub(crate) fn in_scratch<T>(work: impl FnOnce(&Blobs) -> Result<T>) -> Result<T> {
    let directory = tempfile::Builder::new()
        .prefix("tallyring-")
        .tempdir()
        .map_err(doing("make a temporary directory"))?;
    let blobs = Blobs::local(directory.path()).map_err(doing("open a temporary directory"))?;
    let done = work(&blobs);
    if let Err(error) = directory.close() {
        note!("warning: a temporary directory could not be removed: {error}");
    }
    done
}
