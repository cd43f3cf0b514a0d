//! Places for streams, which last: so many at once, each until the server stops.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};

/// The places of one server.
#[derive(Debug)]
pub(super) struct Streams {
    places: Arc<Semaphore>,
    closing: watch::Sender<bool>,
}

/// A place; given back when dropped.
#[derive(Debug)]
pub(crate) struct StreamPlace {
    _permit: OwnedSemaphorePermit,
    _own: Option<OwnedSemaphorePermit>,
    closing: watch::Receiver<bool>,
}

impl Streams {
    /// So many places.
    pub(super) fn new(places: usize) -> Self {
        Self {
            places: Arc::new(Semaphore::new(places)),
            closing: watch::Sender::new(false),
        }
    }

    /// A place, if one is free; it keeps its client's own with it.
    pub(super) fn enter(&self, own: Option<OwnedSemaphorePermit>) -> Option<StreamPlace> {
        let permit = Arc::clone(&self.places).try_acquire_owned().ok()?;
        Some(StreamPlace {
            _permit: permit,
            _own: own,
            closing: self.closing.subscribe(),
        })
    }

    /// Tells every stream, also those to come, to end.
    pub(super) fn close(&self) {
        self.closing.send_replace(true);
    }
}

impl StreamPlace {
    /// Resolves when the server stops.
    pub(crate) async fn closed(&self) {
        // The other half is never dropped before the server has stopped.
        let _ = self.closing.clone().wait_for(|closing| *closing).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn places_are_bounded_and_all_are_told_to_end() {
        let streams = Streams::new(1);
        let first = streams.enter(None).unwrap();
        assert!(streams.enter(None).is_none());
        streams.close();
        first.closed().await;
        drop(first);
        streams.enter(None).unwrap().closed().await;
    }
}
