//! Settings of a whole server process: its log messages, its limit of open files, and the panics that end it.

use rustix::process::{Resource, getrlimit, setrlimit};

use crate::{alerts, inflow, read_only};

/// Files that are open besides connections and runs, at least: the log, the catalog, new runs.
const OTHER_FILES: u64 = 1_024;

/// Raises the limit of open files as far as the system allows. Each run is open while a manifest names it: a store of
/// many years and shards has thousands.
pub(crate) fn raise_open_files() {
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    // An error of a file says it where the limit is too low.
    let _ = setrlimit(Resource::Nofile, limit);
}

/// Warns where fewer files may be open than connections and runs need.
pub(crate) fn warn_of_few_open_files(connections_max: usize, runs: usize) {
    let needed = connections_max as u64 + runs as u64 + OTHER_FILES;
    if let Some(allowed) = getrlimit(Resource::Nofile).current
        && allowed < needed
    {
        tracing::warn!(
            allowed,
            needed,
            "few files may be open: raise `ulimit -n`, or set limits.connections lower"
        );
    }
}

/// Writes messages to standard error, as `TALLYRING_LOG` filters them.
pub(crate) fn start_logging() {
    use tracing_subscriber::EnvFilter;
    let filter =
        EnvFilter::try_from_env("TALLYRING_LOG").unwrap_or_else(|_| EnvFilter::new("info"));
    let ansi = std::env::var_os("NO_COLOR").is_none()
        && std::io::IsTerminal::is_terminal(&std::io::stderr());
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(ansi)
        // A server must not end because nobody reads its messages.
        .log_internal_errors(false)
        .init();
}

/// Ends the process when a thread of the store panics, because a server without it would only look alive. A thread that
/// reads files again ("scrub") may panic: nothing waits for it.
pub(crate) fn exit_on_panic_of_store_threads() {
    let before = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        before(info);
        if is_needed(std::thread::current().name()) {
            std::process::exit(70);
        }
    }));
}

fn is_needed(thread: Option<&str>) -> bool {
    matches!(
        thread,
        Some(
            "commit"
                | "fold"
                | "flush"
                | "learn"
                | "time"
                | "follow"
                | "nodes"
                | "rebuild"
                | "recompress"
                | "reconcile"
                | alerts::THREAD
                | read_only::THREAD
                | inflow::KAFKA_THREAD
        )
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_that_would_see_no_newer_manifest_or_message_ends() {
        assert!(is_needed(Some(read_only::THREAD)));
        assert!(is_needed(Some(inflow::KAFKA_THREAD)));
        assert!(!is_needed(Some("scrub")) && !is_needed(None));
    }
}
