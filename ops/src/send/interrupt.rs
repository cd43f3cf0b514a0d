//! Ctrl-C and SIGTERM: the first asks for an orderly end, the second ends the process at once.

use std::io::{self, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use crate::signals::{exit_at, watch_signals};

/// Set by the first signal, never cleared.
static INTERRUPTED: AtomicBool = AtomicBool::new(false);

/// Starts to watch for signals; the flag turns true on the first.
///
/// Where signals cannot be watched, they end the process as if this function had not been called.
pub(super) fn watch() -> &'static AtomicBool {
    // The thread ends with the process.
    let _detached = thread::Builder::new().name("signals".to_owned()).spawn(|| {
        let Ok(runtime) = tokio::runtime::Builder::new_current_thread()
            .enable_io()
            .build()
        else {
            return;
        };
        runtime.block_on(async {
            let Ok((mut terminate, mut interrupt)) = watch_signals() else {
                return;
            };
            tokio::select! {
                _ = terminate.recv() => {}
                _ = interrupt.recv() => {}
            }
            INTERRUPTED.store(true, Ordering::Relaxed);
            let _ = writeln!(io::stderr(), "ending in good order; again to end at once");
            exit_at((terminate, interrupt)).await;
        });
    });
    &INTERRUPTED
}
