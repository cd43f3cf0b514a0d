//! Turns of reads: how many are worked on at once.
//!
//! A read takes a place when it comes (`gate.rs`) and a turn when its work begins. There are few turns: work that waits
//! for its turn holds no memory, and leaves the processors to those who count. Long reads, which look at many keys,
//! have a part of the turns only, so that a read of one key never waits for several of them.

use std::sync::Arc;
use std::time::Duration;

use tallyring_realtime::priority;
use tokio::sync::{AcquireError, OwnedSemaphorePermit, Semaphore};

use crate::problem::{Problem, Result};

/// How long a read waits for its turn.
const WAIT: Duration = Duration::from_millis(600);

/// How long a read may take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Length {
    /// It reads few keys.
    Short,
    /// It reads all keys of a namespace, many breakdowns, or many parts of the log.
    Long,
    /// It reads what everybody did.
    Longest,
}

/// The turns of one server.
#[derive(Debug)]
pub(crate) struct Turns {
    all: Arc<Semaphore>,
    long: Arc<Semaphore>,
    longest: Arc<Semaphore>,
}

/// A turn; given back when dropped.
#[derive(Debug)]
pub(crate) struct Turn {
    _permits: Vec<OwnedSemaphorePermit>,
}

impl Turns {
    /// Two for each processor, one of which may be a long read's. The longest reads have half of the turns of long
    /// ones: each takes seconds, and long reads of others would find no turn.
    pub(crate) fn new() -> Self {
        let processors = priority::processors();
        Self {
            all: Arc::new(Semaphore::new(2 * processors)),
            long: Arc::new(Semaphore::new(processors)),
            longest: Arc::new(Semaphore::new(processors.div_ceil(2))),
        }
    }

    /// A turn, at once or after a short wait. Fails with 503 when none is free for too long.
    pub(crate) async fn take(&self, length: Length) -> Result<Turn> {
        // The scarcer ones first: who waits for them holds none of the others.
        let wanted: &[&Arc<Semaphore>] = match length {
            Length::Short => &[&self.all],
            Length::Long => &[&self.long, &self.all],
            Length::Longest => &[&self.longest, &self.long, &self.all],
        };
        let take = async {
            let mut permits = Vec::with_capacity(wanted.len());
            for &turns in wanted {
                permits.push(Arc::clone(turns).acquire_owned().await?);
            }
            Ok::<_, AcquireError>(Turn { _permits: permits })
        };
        if let Ok(Ok(turn)) = tokio::time::timeout(WAIT, take).await {
            return Ok(turn);
        }
        let detail = "Other reads take all the time there is for reads; ask again in a moment.";
        Err(Problem::unavailable(detail))
    }
}
