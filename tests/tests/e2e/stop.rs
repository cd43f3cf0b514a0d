//! A guard ends the threads of a test, also when the test fails: else their scope would wait for ever.

use std::sync::atomic::{AtomicBool, Ordering};

/// Raises a flag when dropped.
pub(crate) struct StopOnDrop<'a>(pub &'a AtomicBool);

impl Drop for StopOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}
