//! The share of one key in the places of all clients: half of the places for reads, for batches, and for streams.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::denial::Denial;
use super::limits::AccessLimits;

/// How long a client should wait for its own requests to end.
const WAIT: Duration = Duration::from_secs(1);

/// The places of one key.
#[derive(Debug, Clone)]
pub(super) struct Share {
    reads: Arc<Semaphore>,
    batches: Arc<Semaphore>,
    streams: Arc<Semaphore>,
}

impl Share {
    /// Half of these.
    pub(super) fn of(limits: &AccessLimits) -> Self {
        let half = |places: usize| Arc::new(Semaphore::new(places.div_ceil(2)));
        Self {
            reads: half(limits.queries),
            batches: half(limits.batches),
            streams: half(limits.streams),
        }
    }

    /// A place for a read.
    ///
    /// # Errors
    /// 429 where the key's other reads have them all.
    pub(super) fn read(&self) -> Result<OwnedSemaphorePermit, Denial> {
        take(
            &self.reads,
            "This key has as many reads on their way as one key may have",
        )
    }

    /// A place for a batch.
    ///
    /// # Errors
    /// 429 where the key's other batches have them all.
    pub(super) fn batch(&self) -> Result<OwnedSemaphorePermit, Denial> {
        take(
            &self.batches,
            "This key has as many batches on their way as one key may have",
        )
    }

    /// A place for a stream.
    ///
    /// # Errors
    /// 429 where the key's other streams have them all.
    pub(super) fn stream(&self) -> Result<OwnedSemaphorePermit, Denial> {
        take(
            &self.streams,
            "This key has as many streams open as one key may have",
        )
    }
}

fn take(places: &Arc<Semaphore>, what: &'static str) -> Result<OwnedSemaphorePermit, Denial> {
    let place = Arc::clone(places).try_acquire_owned();
    place.map_err(|_| Denial::TooMany { what, wait: WAIT })
}
