//! How far work on many files is, told as it goes on.

use std::sync::atomic::{AtomicU64, Ordering};

/// How far a rebuild is: bytes of runs exported and merged, of how many; what is to be merged is known, and added,
/// once all is exported. Shared files are not counted.
pub type Progress<'p> = &'p (dyn Fn(u64, u64) + Sync);

/// Bytes that are done, of all that there are to do.
pub struct Bytes<'p> {
    done: AtomicU64,
    total: u64,
    progress: Progress<'p>,
}

impl<'p> Bytes<'p> {
    /// Nothing of `total` is done yet.
    pub fn of(total: u64, progress: Progress<'p>) -> Self {
        // Of nothing a bar would be full before anything is done.
        if total > 0 {
            progress(0, total);
        }
        Self {
            done: AtomicU64::new(0),
            total,
            progress,
        }
    }

    /// So many more are done.
    pub fn add(&self, bytes: u64) {
        let before = self.done.fetch_add(bytes, Ordering::Relaxed);
        (self.progress)(before + bytes, self.total);
    }
}
