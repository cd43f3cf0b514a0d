//! Progress of work on many files.

use std::sync::atomic::{AtomicU64, Ordering};

/// A function that gets the progress of a rebuild: bytes of runs that were exported and merged, and bytes in all. The
/// bytes to merge are known, and added, once everything is exported. Shared files are not counted.
pub type Progress<'p> = &'p (dyn Fn(u64, u64) + Sync);

/// Bytes that are done, of all bytes.
pub(crate) struct Bytes<'p> {
    done: AtomicU64,
    total: u64,
    progress: Progress<'p>,
}

impl<'p> Bytes<'p> {
    /// Begins with nothing of `total` done.
    pub(crate) fn of(total: u64, progress: Progress<'p>) -> Self {
        // With a total of 0, a progress bar would be full before anything is done.
        if total > 0 {
            progress(0, total);
        }
        Self {
            done: AtomicU64::new(0),
            total,
            progress,
        }
    }

    /// Adds bytes that are done.
    pub(crate) fn add(&self, bytes: u64) {
        let before = self.done.fetch_add(bytes, Ordering::Relaxed);
        (self.progress)(before + bytes, self.total);
    }
}
