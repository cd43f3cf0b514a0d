//! Work on the store, off the threads that serve connections.

use std::pin::Pin;
use std::sync::Arc;

use axum::response::Response;
use tallyring_realtime::{Reading, Store, View};

use crate::access::{Length, off_thread};
use crate::problem::Result;
use crate::state::ApiState;

/// A read that has begun.
pub(crate) enum Begun<T = Response> {
    /// It took little work and nothing from the disk.
    Answered(T),
    /// It is answered off the threads that serve connections.
    Large(Pin<Box<dyn Future<Output = Result<T>> + Send>>),
}

impl<T> Begun<T> {
    /// The answer.
    pub(crate) async fn answer(self) -> Result<T> {
        match self {
            Self::Answered(response) => Ok(response),
            Self::Large(answering) => answering.await,
        }
    }
}

/// Runs blocking work on the store (files may be cold) off the threads that serve connections.
pub(crate) async fn blocking<T: Send + 'static>(
    state: &ApiState,
    work: impl FnOnce(&Store) -> Result<T> + Send + 'static,
) -> Result<T> {
    let store = Arc::clone(state.store());
    off_thread(move || work(&store)).await
}

/// Reads off the threads that serve connections, in turn with other reads, from the view that is the newest when the
/// turn comes. The work of a client that goes away ends soon. Fails as `work` does, and with 503 where no turn comes
/// soon.
pub(crate) async fn reading<T: Send + 'static>(
    state: &ApiState,
    length: Length,
    work: impl FnOnce(&View<'_>) -> Result<T> + Send + 'static,
) -> Result<T> {
    let reading = Reading::new(state.store().read_budget());
    let _abandoned = Abandoned(reading.clone());
    let turn = state.access.turns.take(length).await?;
    let stores = Arc::clone(state.stores());
    off_thread(move || {
        let _turn = turn;
        reading.check()?;
        work(&stores.view_for(reading))
    })
    .await
}

/// Tells the work of a request, when dropped, that nobody waits for it.
struct Abandoned(Reading);

impl Drop for Abandoned {
    fn drop(&mut self) {
        self.0.abandon();
    }
}
