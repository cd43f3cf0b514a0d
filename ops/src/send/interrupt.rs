//! Ctrl-C and SIGTERM: the first asks for an orderly end, the second ends the process at once.

use std::io::{self, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use tokio::signal::unix::{Signal, SignalKind, signal};

/// Set by the first signal, never cleared.
static INTERRUPTED: AtomicBool = AtomicBool::new(false);

/// What a shell reports for a process that Ctrl-C ended.
const EXIT_INTERRUPTED: i32 = 130;

/// Starts to watch for signals; the flag turns true on the first.
///
/// Where that is impossible, signals simply end the process, as they do without this.
pub fn watch() -> &'static AtomicBool {
    // The thread ends with the process.
    let _detached = thread::Builder::new().name("signals".to_owned()).spawn(|| {
        let Ok(runtime) = tokio::runtime::Builder::new_current_thread()
            .enable_io()
            .build()
        else {
            return;
        };
        runtime.block_on(async {
            let (Ok(mut interrupt), Ok(mut terminate)) = (
                signal(SignalKind::interrupt()),
                signal(SignalKind::terminate()),
            ) else {
                return;
            };
            either(&mut interrupt, &mut terminate).await;
            INTERRUPTED.store(true, Ordering::Relaxed);
            let _ = writeln!(io::stderr(), "ending in good order; again to end at once");
            either(&mut interrupt, &mut terminate).await;
            std::process::exit(EXIT_INTERRUPTED);
        });
    });
    &INTERRUPTED
}

async fn either(interrupt: &mut Signal, terminate: &mut Signal) {
    tokio::select! {
        _ = interrupt.recv() => {}
        _ = terminate.recv() => {}
    }
}
