//! The place of a read moves into its blocking work.
//!
//! Work on files runs on threads that cannot be interrupted: the work holds the place until it ends, also when nobody
//! waits for it any more.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::LazyLock;
use std::thread;

use rayon::{ThreadPool, ThreadPoolBuilder};
use tallyring_realtime::priority;
use tokio::sync::{OwnedSemaphorePermit, oneshot};
use tokio::task::JoinError;
use tokio::task_local;

use crate::problem::Result;
use crate::request_id;

/// A place for a read, and one of its client's own.
pub(super) struct ReadPlace {
    _of_all: OwnedSemaphorePermit,
    _own: Option<OwnedSemaphorePermit>,
}

impl ReadPlace {
    /// A place among those of all clients, and one among those of the client.
    pub(super) fn new(of_all: OwnedSemaphorePermit, own: Option<OwnedSemaphorePermit>) -> Self {
        Self {
            _of_all: of_all,
            _own: own,
        }
    }
}

task_local! {
    static PLACE: Cell<Option<ReadPlace>>;
}

/// Answers in this place, which is given back afterwards, or after the work that took it along.
pub(super) async fn held<T>(place: ReadPlace, answering: impl Future<Output = T>) -> T {
    PLACE.scope(Cell::new(Some(place)), answering).await
}

/// Runs blocking work off the threads that serve connections, in the request's place; what it logs is the request's.
pub(crate) async fn off_thread<T: Send + 'static>(
    work: impl FnOnce() -> Result<T> + Send + 'static,
) -> Result<T> {
    let done = tokio::task::spawn_blocking(taken_along(work)).await;
    given_back(done.map_err(JoinError::into_panic))
}

/// Runs work that keeps a processor busy, such as reading a large body, behind all other threads. Work that nobody
/// waits for when its turn comes is left undone.
pub(crate) async fn behind<T: Send + 'static>(
    work: impl FnOnce() -> Result<T> + Send + 'static,
) -> Result<T> {
    let Some(threads) = BEHIND.as_ref() else {
        return off_thread(work).await;
    };
    given_back(done_by(threads, taken_along(work)).await)
}

/// Runs work on these threads and returns its outcome, or its panic. Work that nobody waits for when its turn comes is
/// left undone.
pub(crate) async fn done_by<T: Send + 'static>(
    threads: &ThreadPool,
    work: impl FnOnce() -> T + Send + 'static,
) -> thread::Result<T> {
    let (done, outcome) = oneshot::channel();
    threads.spawn(move || {
        if !done.is_closed() {
            let _ = done.send(catch_unwind(AssertUnwindSafe(work)));
        }
    });
    outcome.await.expect("BUG: done, as somebody waits")
}

/// Starts threads that run behind all others; none where the system gives none.
pub(crate) fn threads_behind(name: &'static str, threads: usize) -> Option<ThreadPool> {
    ThreadPoolBuilder::new()
        .num_threads(threads)
        .thread_name(move |_| name.to_owned())
        .start_handler(|_| priority::run_behind())
        .build()
        .ok()
}

/// One processor is left to the threads that serve connections and to the one that counts, which takes longer than
/// reading.
static BEHIND: LazyLock<Option<ThreadPool>> =
    LazyLock::new(|| threads_behind("behind", priority::processors().saturating_sub(1).max(1)));

/// The outcome of work, and the place that the work held.
type Done<T> = (Result<T>, Option<ReadPlace>);

fn taken_along<T>(
    work: impl FnOnce() -> Result<T> + Send + 'static,
) -> impl FnOnce() -> Done<T> + Send + 'static {
    let span = request_id::span();
    // Outside of a read there is none.
    let place = PLACE.try_with(Cell::take).ok().flatten();
    move || (span.in_scope(work), place)
}

fn given_back<T>(done: thread::Result<Done<T>>) -> Result<T> {
    match done {
        Ok((answer, place)) => {
            let _ = PLACE.try_with(|held| held.set(place));
            answer
        }
        Err(panic) => resume_unwind(panic),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    #[tokio::test]
    async fn work_behind_others_answers_or_panics_as_work_beside_them() {
        assert_eq!(behind(|| Ok(7)).await.ok(), Some(7));
        let panics = || -> Result<()> { panic!("as asked for") };
        let panicked = tokio::spawn(behind(panics)).await;
        assert!(panicked.is_err_and(|error| error.is_panic()));
        assert_eq!(behind(|| Ok(8)).await.ok(), Some(8));
    }

    #[tokio::test]
    async fn what_nobody_waits_for_when_its_turn_comes_is_left_undone() {
        let (go_on, held) = mpsc::channel::<()>();
        let (done, seen) = mpsc::channel();
        let threads = BEHIND.as_ref().expect("threads").current_num_threads();
        let held = std::sync::Arc::new(std::sync::Mutex::new(held));
        let mut busy = Vec::new();
        for _ in 0..threads {
            let held = std::sync::Arc::clone(&held);
            let wait = move || Ok(held.lock().map(|held| held.recv().is_ok()).is_ok());
            busy.push(tokio::spawn(behind(wait)));
        }
        let forgotten = tokio::spawn(behind(move || Ok(done.send(()).is_ok())));
        tokio::task::yield_now().await;
        forgotten.abort();
        assert!(forgotten.await.is_err_and(|error| error.is_cancelled()));
        drop(go_on);
        for work in busy {
            assert!(work.await.is_ok());
        }
        assert!(seen.recv().is_err(), "it was done for nobody");
    }
}
