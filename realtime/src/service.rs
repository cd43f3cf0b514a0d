//! A store with its threads: one that commits groups, one that folds what large ones brought, one that flushes, one that
//! keeps time; and at the start one that learns which keys are heavy.
//!
//! Nothing here decides what is counted: the threads only call [`Store`]. The queue is bounded in
//! batches and in bytes; when it is full a caller is told to come again.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use tallyring_records::{Accepted, Increment};
use tokio::sync::{mpsc, oneshot};

use crate::courtesy::Courtesy;
use crate::error::{Error, Refusal};
use crate::options::Durability;
use crate::priority;
use crate::store::{Batch, Store};

/// A running store. Dropping it stops the threads after what is queued is written.
pub struct Service {
    store: Arc<Store>,
    queue: Option<mpsc::Sender<Waiting>>,
    room: Arc<Room>,
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
    failed: Arc<AtomicBool>,
}

/// A batch on its way to the log, and who waits for it.
struct Waiting {
    batch: Batch,
    answer: oneshot::Sender<Result<Accepted, Refusal>>,
    _room: Held,
}

/// Bytes of what waits.
#[derive(Default)]
struct Room(AtomicUsize);

/// A batch's part of the room; given back when dropped.
struct Held {
    room: Arc<Room>,
    bytes: usize,
}

impl Room {
    fn take(self: &Arc<Self>, bytes: usize) -> Option<Held> {
        let bytes = bytes.min(QUEUE_BYTES_MAX);
        let before = self.0.fetch_add(bytes, Ordering::Relaxed);
        // Made before the check, so that what is refused is given back.
        let held = Held {
            room: Arc::clone(self),
            bytes,
        };
        (before + bytes <= QUEUE_BYTES_MAX).then_some(held)
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.room.0.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

/// Batches that may wait.
const QUEUE_BATCHES_MAX: usize = 16_384;
/// Memory of what waits; one batch that is larger waits alone.
const QUEUE_BYTES_MAX: usize = 128 << 20;
/// Increments of one group commit.
const GROUP_RECORDS_MAX: usize = 16_384;
/// How often time is kept and memory looked at.
const TICK: Duration = Duration::from_millis(50);

impl Service {
    /// Starts the threads; none for a store that is open for reading only.
    ///
    /// # Errors
    /// When a thread cannot be started.
    pub fn start(store: Arc<Store>) -> std::io::Result<Self> {
        let (queue, waiting) = mpsc::channel(QUEUE_BATCHES_MAX);
        let stop = Arc::new(AtomicBool::new(false));
        let failed = Arc::new(AtomicBool::new(false));
        let room = Arc::new(Room::default());
        if store.is_read_only() {
            return Ok(Self {
                store,
                queue: None,
                room,
                stop,
                threads: Vec::new(),
                failed,
            });
        }
        let spawn = |name: &str, run: Box<dyn FnOnce() + Send>| {
            thread::Builder::new().name(name.into()).spawn(run)
        };
        let (arrived, arrivals) = std::sync::mpsc::sync_channel(1);
        let (committer, folder) = (Arc::clone(&store), Arc::clone(&store));
        let learner = Arc::clone(&store);
        let (flusher, flush_stop, flush_failed) =
            (Arc::clone(&store), Arc::clone(&stop), Arc::clone(&failed));
        let (keeper, keep_stop, keep_failed) =
            (Arc::clone(&store), Arc::clone(&stop), Arc::clone(&failed));
        let threads = vec![
            spawn(
                "commit",
                Box::new(move || {
                    priority::run_soon();
                    commit_groups(&committer, waiting, &arrived);
                }),
            )?,
            spawn(
                "fold",
                Box::new(move || {
                    // Who commits waits for it at times.
                    priority::run_soon();
                    arrivals.iter().for_each(|()| folder.fold());
                }),
            )?,
            spawn(
                "flush",
                Box::new(move || flush_when_due(&flusher, &flush_stop, &flush_failed)),
            )?,
            spawn("learn", Box::new(move || learn_heavy_keys(&learner)))?,
            spawn(
                "time",
                Box::new(move || keep_time(&keeper, &keep_stop, &keep_failed)),
            )?,
        ];
        Ok(Self {
            store,
            queue: Some(queue),
            room,
            stop,
            threads,
            failed,
        })
    }

    /// The store.
    pub fn store(&self) -> &Arc<Store> {
        &self.store
    }

    /// True once the log has failed for good: the process must end, a restart reads what is durable.
    pub fn has_failed(&self) -> bool {
        self.failed.load(Ordering::Relaxed)
    }

    /// Queues a batch; resolves when it is durable and visible, or refused. The batch is written
    /// even when the caller goes away.
    ///
    /// # Errors
    /// Why nothing was counted.
    pub async fn submit(&self, batch: Batch) -> Result<Accepted, Refusal> {
        let bytes = batch.increments.iter().map(weight).sum();
        let room = Room::take(&self.room, bytes).ok_or(Refusal::Busy)?;
        let (answer, answered) = oneshot::channel();
        let waiting = Waiting {
            batch,
            answer,
            _room: room,
        };
        let queue = self.queue.as_ref().ok_or(Refusal::Busy)?;
        queue.try_send(waiting).map_err(|_| Refusal::Busy)?;
        answered.await.unwrap_or_else(|_| {
            Err(Refusal::Unavailable(
                "the server is stopping; retry with the same id".into(),
            ))
        })
    }

    /// Writes what is queued, stops the threads, flushes and seals the log.
    ///
    /// # Errors
    /// When the last flush fails; nothing is lost then: the log has it.
    pub fn stop(mut self) -> crate::error::Result<()> {
        self.join();
        self.store.flush()?;
        self.store.seal()
    }

    fn join(&mut self) {
        self.queue = None;
        self.stop.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            if thread.join().is_err() {
                tracing::error!("a thread of the store panicked");
            }
        }
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        self.join();
    }
}

/// Commits what waits until nobody sends any more; `arrived` hears when there is something to fold.
fn commit_groups(
    store: &Store,
    mut waiting: mpsc::Receiver<Waiting>,
    arrived: &std::sync::mpsc::SyncSender<()>,
) {
    let mut courtesy = Courtesy::new(store.options().durability);
    while let Some(first) = waiting.blocking_recv() {
        let mut records = first.batch.increments.len();
        let mut group = vec![first];
        while records < GROUP_RECORDS_MAX {
            let Ok(next) = waiting.try_recv() else { break };
            records += next.batch.increments.len();
            group.push(next);
        }
        // Memory is at twice its limit: writing waits, the queue fills, callers are told 503.
        if store.must_flush()
            && let Err(error) = store.flush()
        {
            tracing::error!(%error, "cannot flush, so no increments are accepted");
            let refusal = unflushed(&error);
            for waiting in group {
                let _ = waiting.answer.send(Err(refusal.clone()));
            }
            continue;
        }
        let (began, batches_of_group) = (Instant::now(), group.len());
        let (batches, answers): (Vec<_>, Vec<_>) = group
            .into_iter()
            .map(|waiting| (waiting.batch, (waiting.answer, waiting._room)))
            .unzip();
        for (outcome, (answer, _room)) in store.commit(batches).into_iter().zip(answers) {
            // Nobody waits any more when the client has gone: the batch counts all the same.
            let _ = answer.send(outcome);
        }
        courtesy.note_group(batches_of_group, began);
        if store.has_arrived() {
            // One that was told and did not begin yet finds this, too.
            let _ = arrived.try_send(());
        }
    }
}

fn learn_heavy_keys(store: &Store) {
    if let Err(error) = store.learn_heavy_keys() {
        tracing::warn!(%error, "rankings of recent hours will be read from all totals");
    }
}

fn unflushed(error: &Error) -> Refusal {
    match error {
        Error::Archive(error) if error.is_disk_full() => Refusal::DiskFull,
        error => Refusal::Unavailable(format!("memory is full and cannot be flushed: {error}")),
    }
}

fn flush_when_due(store: &Store, stop: &AtomicBool, failed: &AtomicBool) {
    while !stop.load(Ordering::Relaxed) {
        if store.wants_flush()
            && let Err(error) = store.flush()
        {
            tracing::error!(%error, "cannot flush the deltas; they stay in memory and in the log");
            if store.must_restart().is_some() {
                failed.store(true, Ordering::Relaxed);
            }
            thread::sleep(Duration::from_secs(1));
        }
        if let Err(error) = store.prepare_segment() {
            tracing::debug!(%error, "cannot prepare the next log segment");
        }
        thread::sleep(TICK);
    }
}

fn keep_time(store: &Store, stop: &AtomicBool, failed: &AtomicBool) {
    let tick = match store.options().durability {
        Durability::Interval(milliseconds) => TICK.min(Duration::from_millis(milliseconds.into())),
        Durability::Fsync => TICK,
    };
    while !stop.load(Ordering::Relaxed) {
        let failure = match store.tick() {
            Err(error @ Refusal::Unavailable(_)) => Some(error.to_string()),
            Err(error) => {
                tracing::warn!(%error, "the log takes no writes now");
                None
            }
            Ok(()) => None,
        };
        if let Some(error) = failure
            && !failed.swap(true, Ordering::Relaxed)
        {
            tracing::error!(error, "the store has failed");
        }
        thread::sleep(tick);
    }
}

/// Bytes that an increment holds while it waits, about.
fn weight(increment: &Increment) -> usize {
    let texts = |pairs: &[(String, String)]| {
        pairs
            .iter()
            .map(|(name, text)| name.len() + text.len() + 64)
            .sum::<usize>()
    };
    128 + texts(&increment.keys)
        + texts(&increment.by)
        + increment.id.as_ref().map_or(0, String::len)
}
