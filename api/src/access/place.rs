//! The place of a read goes where its work goes.
//!
//! Work on files runs on threads that cannot be interrupted: it holds the place until it ends, also when nobody waits
//! for it any more.

use std::cell::Cell;

use tokio::sync::OwnedSemaphorePermit;
use tokio::task_local;

use crate::problem::Problem;

task_local! {
    static PLACE: Cell<Option<OwnedSemaphorePermit>>;
}

/// Answers in this place, which is given back afterwards, or after the work that took it along.
pub async fn held<T>(place: OwnedSemaphorePermit, answering: impl Future<Output = T>) -> T {
    PLACE.scope(Cell::new(Some(place)), answering).await
}

/// Runs blocking work off the threads that serve connections, in the request's place; what it logs is the request's.
///
/// # Errors
/// What the work answers.
pub async fn off_thread<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, Problem> + Send + 'static,
) -> Result<T, Problem> {
    let span = tracing::Span::current();
    let place = PLACE.try_with(Cell::take).ok().flatten();
    let work = move || (span.in_scope(work), place);
    match tokio::task::spawn_blocking(work).await {
        Ok((answer, place)) => {
            // Outside of a read there is none to give back.
            let _ = PLACE.try_with(|held| held.set(place));
            answer
        }
        Err(error) => std::panic::resume_unwind(error.into_panic()),
    }
}
