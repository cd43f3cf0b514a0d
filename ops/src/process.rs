//! Settings of a whole server process: its log messages, its limit of open files, and the panics that end it.

/// Files that are open besides connections, at least: the log, runs, the catalog.
const OTHER_FILES: u64 = 1_024;
/// Runs that are asked room for. Each is open while a manifest names it: a store of many years and shards has
/// thousands.
const RUNS: u64 = 64 << 10;

/// Raises the limit of open files to what connections and runs need, as far as the system allows.
pub(crate) fn allow_open_files(connections_max: usize) {
    use rustix::process::{Resource, getrlimit, setrlimit};
    let needed = connections_max as u64 + OTHER_FILES;
    let wanted = needed + RUNS;
    let mut limit = getrlimit(Resource::Nofile);
    if limit.current.is_none_or(|current| current >= wanted) {
        return;
    }
    let allowed = limit.maximum.map_or(wanted, |maximum| maximum.min(wanted));
    limit.current = Some(allowed);
    if setrlimit(Resource::Nofile, limit).is_err() || allowed < needed {
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
        if matches!(
            std::thread::current().name(),
            Some("commit" | "fold" | "flush" | "learn" | "time" | "rebuild" | "recompress")
        ) {
            std::process::exit(70);
        }
    }));
}
