//! SIGTERM and SIGINT: the first drains a server or ends a `send` in good order; the second ends the process.

use std::sync::Arc;
use std::time::Duration;

use tallyring_realtime::Service;
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::error::{Result, doing};

/// How often the state of the log is read.
const LOOK: Duration = Duration::from_millis(100);

/// Takes SIGTERM and SIGINT from here on.
pub(crate) fn watch_signals() -> Result<(Signal, Signal)> {
    Ok((
        signal(SignalKind::terminate()).map_err(doing("watch for SIGTERM"))?,
        signal(SignalKind::interrupt()).map_err(doing("watch for SIGINT"))?,
    ))
}

/// Ends the process at the first signal. The first process of a container needs this: a signal without a handler does
/// nothing to it.
pub(crate) async fn exit_at((mut terminate, mut interrupt): (Signal, Signal)) {
    tokio::select! {
        _ = terminate.recv() => std::process::exit(143),
        _ = interrupt.recv() => std::process::exit(130),
    }
}

/// Resolves at the first SIGTERM or SIGINT, or when the log of a strand has failed. A second signal ends the process at
/// once.
pub(crate) async fn stopped(
    strands: Vec<Arc<Service>>,
    (mut terminate, mut interrupt): (Signal, Signal),
) {
    let mut look = tokio::time::interval(LOOK);
    loop {
        tokio::select! {
            _ = terminate.recv() => break,
            _ = interrupt.recv() => break,
            _ = look.tick() => if strands.iter().any(|service| service.has_failed()) { return },
        }
    }
    tokio::spawn(exit_at((terminate, interrupt)));
}
