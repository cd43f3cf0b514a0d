//! Where large bodies are read: on threads of their own, behind all others.
//!
//! One processor is left to the threads that serve connections and to the one that counts, which takes longer than
//! reading. What waits here is bounded by the room for bodies (`body.rs`).

use std::num::NonZero;
use std::sync::LazyLock;
use std::thread;

use rayon::{ThreadPool, ThreadPoolBuilder};
use tallyring_realtime::priority;
use tokio::sync::oneshot;

use crate::problem::Problem;

/// Does work on one of these threads.
///
/// # Errors
/// Those of the work.
pub async fn run<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, Problem> + Send + 'static,
) -> Result<T, Problem> {
    let Some(threads) = THREADS.as_ref() else {
        return work();
    };
    let span = tracing::Span::current();
    let (done, outcome) = oneshot::channel();
    threads.spawn(move || {
        // Nobody waits for it where the connection ended.
        let _ = done.send(span.in_scope(work));
    });
    outcome
        .await
        .expect("BUG: a panic on these threads ends the process")
}

/// None where the system gives no thread.
static THREADS: LazyLock<Option<ThreadPool>> = LazyLock::new(|| {
    let processors = thread::available_parallelism().map_or(1, NonZero::get);
    ThreadPoolBuilder::new()
        .num_threads(processors.saturating_sub(1).max(1))
        .thread_name(|_| "bodies".to_owned())
        .start_handler(|_| priority::run_behind())
        .build()
        .ok()
});
