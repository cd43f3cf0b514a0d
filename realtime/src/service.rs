//! A store with its threads: commit, fold, flush, time and pack, a copier where the log has a second copy, and at the
//! start a thread that learns which keys are heavy. A node among others has two more: one follows the log, and one
//! hears the other nodes.
//!
//! The threads only call [`Store`]; they do not decide what is counted.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, RwLock};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use tallyring_records::Accepted;

use crate::error::{Error, Refusal};
use crate::follower::Follower;
use crate::intake::{Batch, Counted, DeclaredGrowth, Queue, QueueLimits, Taker};
use crate::membership::{Member, Membership};
use crate::node::{Node, no_node};
use crate::oplog::Owner;
use crate::options::Durability;
use crate::priority;
use crate::seldom::Seldom;
use crate::store::Store;

/// A running store. Dropping it writes the queued batches and then stops the threads.
pub struct Service {
    store: Arc<Store>,
    /// None where nothing can be written: the store is open for reading only, or stopped.
    queue: Option<Arc<Queue>>,
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
    failed: Arc<AtomicBool>,
    /// The place of this node, where several share the store.
    node: Option<Arc<Node>>,
    /// The thread that hears the other nodes, and what tells it to leave them.
    member: Option<(Arc<AtomicBool>, JoinHandle<()>)>,
}

/// Increments of one group commit, at most.
const GROUP_RECORDS_MAX: usize = 16_384;
/// Pause between attempts to fold layers that views still hold.
const SHARED_PAUSE: Duration = Duration::from_millis(2);
const DAY_MS: i64 = 86_400_000;
/// Pause between looks at the time and at the memory in use.
const TICK: Duration = Duration::from_millis(50);

impl Service {
    /// Starts the threads; a store that is open for reading only gets none.
    pub fn start(store: Arc<Store>) -> std::io::Result<Self> {
        let stop = Arc::new(AtomicBool::new(false));
        let failed = Arc::new(AtomicBool::new(false));
        if store.intake().is_read_only() {
            return Ok(Self {
                store,
                queue: None,
                stop,
                threads: Vec::new(),
                failed,
                node: None,
                member: None,
            });
        }
        Self::start_threads(store, None)
    }

    /// Starts the threads of a node that follows the log of a topic, and that may write the log
    /// ([`Service::take_over`]). While it follows, it takes no batches.
    pub fn follow(follower: Follower) -> std::io::Result<Self> {
        let node = Arc::new(Node::new(follower));
        Self::start_threads(Arc::clone(node.store()), Some(node))
    }

    /// Starts the threads of a node that takes its place among others: it follows the log, and writes it where that is
    /// its turn.
    pub fn join(follower: Follower, membership: Membership) -> std::io::Result<Self> {
        let mut service = Self::follow(follower)?;
        let node = service.node.as_ref().expect("BUG: it follows");
        let member = Member::new(Arc::clone(node), membership);
        let leave = Arc::new(AtomicBool::new(false));
        let left = Arc::clone(&leave);
        let thread = spawn("nodes", move || member.run(&left))?;
        service.member = Some((leave, thread));
        Ok(service)
    }

    fn start_threads(store: Arc<Store>, node: Option<Arc<Node>>) -> std::io::Result<Self> {
        let stop = Arc::new(AtomicBool::new(false));
        let failed = Arc::new(AtomicBool::new(false));
        let (arrived, arrivals) = sync_channel(1);
        let options = store.options();
        let bytes = |bytes: u64| usize::try_from(bytes).unwrap_or(usize::MAX);
        let queue = Arc::new(Queue::new(QueueLimits {
            bytes_max: bytes(options.queue_bytes_max),
            growth: RwLock::new(DeclaredGrowth::new(store.schema())),
            batch_growth_max: bytes(options.unflushed_bytes_max()),
        }));
        let group_growth_max = bytes(options.unflushed_bytes_max() / 4);
        let is_node = node.is_some();
        let taker = Taker::new(Arc::clone(&queue));
        let (committer, folder) = (Arc::clone(&store), Arc::clone(&store));
        let (learner, learn_stop) = (Arc::clone(&store), Arc::clone(&stop));
        let (flusher, flush_stop, flush_failed) =
            (Arc::clone(&store), Arc::clone(&stop), Arc::clone(&failed));
        let (packer, pack_stop) = (Arc::clone(&store), Arc::clone(&stop));
        let (keeper, keep_stop, keep_failed) =
            (Arc::clone(&store), Arc::clone(&stop), Arc::clone(&failed));
        let mut threads = vec![
            spawn("commit", move || {
                priority::run_soon();
                commit_groups(&committer, taker, (group_growth_max, is_node), &arrived);
            })?,
            spawn("fold", move || fold_arrivals(&folder, &arrivals))?,
            spawn("flush", move || {
                flush_when_due(&flusher, &flush_stop, &flush_failed);
            })?,
            spawn("learn", move || learn_heavy_keys(&learner, &learn_stop))?,
            spawn("time", move || {
                keep_time(&keeper, is_node, &keep_stop, &keep_failed);
            })?,
            spawn("pack", move || pack_log(&packer, &pack_stop))?,
        ];
        if let Some(node) = &node {
            let (node, follow_stop) = (Arc::clone(node), Arc::clone(&stop));
            threads.push(spawn("follow", move || node.run(&follow_stop))?);
        }
        if store.intake().has_log_copy() {
            let (copier, copy_stop) = (Arc::clone(&store), Arc::clone(&stop));
            threads.push(spawn("log copy", move || copy_log(&copier, &copy_stop))?);
        }
        Ok(Self {
            store,
            queue: Some(queue),
            stop,
            threads,
            failed,
            node,
            member: None,
        })
    }

    /// Takes the log of several nodes over in the name of `owner`, which no take-over had before, and deposes the node
    /// that wrote it. Nothing happens where this node writes already. Blocks for some round trips to the brokers. Fails
    /// as [`Follower::take_over`] does, and where no other node follows the log.
    pub fn take_over(&self, owner: Owner) -> crate::error::Result<()> {
        let node = self.node.as_ref().ok_or_else(no_node)?;
        node.take_over(owner)
    }

    /// Gives the log of several nodes up, and follows it. Batches that wait are refused then.
    pub fn step_down(&self) {
        if let Some(node) = &self.node {
            node.step_down();
        }
    }

    /// The store.
    pub fn store(&self) -> &Arc<Store> {
        &self.store
    }

    /// True once the log has failed for good. The process must then end; a restart reads what is durable.
    pub fn has_failed(&self) -> bool {
        self.failed.load(Ordering::Relaxed)
    }

    /// Queues a batch. The future resolves when the batch is durable and visible, or refused. The batch is written even
    /// when the caller goes away. Panics outside of a Tokio runtime.
    pub async fn submit(&self, batch: Batch) -> Result<Accepted, Refusal> {
        let queue = self.queue.as_ref().ok_or(Refusal::Busy)?;
        Ok(queue.submit(batch).await?.accepted)
    }

    /// As [`Service::submit`]; ends the holds that the batch confirmed, too. The batch is in the queue, or refused,
    /// before the future is polled.
    pub fn count(&self, batch: Batch) -> impl Future<Output = Result<Counted, Refusal>> + use<'_> {
        let submitted = self.queue.as_ref().map(|queue| queue.submit(batch));
        async move {
            let counted = submitted.ok_or(Refusal::Busy)?.await?;
            let named = counted.shown.into_iter();
            let (confirmed, shown) = named.partition(|id| self.store.end_confirmed(*id));
            Ok(Counted {
                confirmed,
                shown,
                ..counted
            })
        }
    }

    /// Writes the queued batches, stops the threads, flushes the delta stores and seals the log. After an error nothing
    /// is lost: the log holds every increment.
    pub fn stop(mut self) -> crate::error::Result<()> {
        self.end_threads();
        if self.store.intake().is_read_only() {
            return Ok(());
        }
        // The log is sealed even if the flush failed: the next start then knows that no write was under way.
        let flushed = self.store.ledger().flush();
        let sealed = self.store.intake().seal();
        // The copy then holds the whole log, unless it lacks much; the next server brings up the rest.
        if let Err(error) = self.store.intake().copy_log() {
            tracing::warn!(%error, "the second copy of the log lacks the end");
        }
        sealed.and(flushed)
    }

    fn end_threads(&mut self) {
        if let Some(queue) = self.queue.take() {
            queue.close();
        }
        self.stop.store(true, Ordering::Relaxed);
        let mut threads: Vec<_> = self.threads.drain(..).collect();
        if let Some((leave, thread)) = self.member.take() {
            // It ends last: batches that wait are written before the log is given up.
            threads.drain(..).for_each(join_one);
            leave.store(true, Ordering::Relaxed);
            threads.push(thread);
        }
        threads.into_iter().for_each(join_one);
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        self.end_threads();
    }
}

/// Starts a thread whose log lines are in the span of the caller, which may name a strand.
fn spawn(name: &str, run: impl FnOnce() + Send + 'static) -> std::io::Result<JoinHandle<()>> {
    let span = tracing::Span::current();
    let thread = thread::Builder::new().name(name.into());
    thread.spawn(move || span.in_scope(run))
}

fn join_one(thread: JoinHandle<()>) {
    if thread.join().is_err() {
        tracing::error!("a thread of the store panicked");
    }
}

/// The longest that a group of a node waits for more. A message takes some milliseconds where brokers are near.
const GATHER_MAX: Duration = Duration::from_millis(5);

/// The line about a flush that failed, which each waiting group tries again.
static UNFLUSHED: Seldom = Seldom::untold();

/// Commits waiting batches until the queue is closed and empty. Sends to `arrived` when there are layers to fold.
///
/// A node's group is a message to brokers, which costs them as much as many increments do. The callers of a group ask
/// again once they are answered, so the next group waits for as many, for half of the time that the last one took at
/// most. After a group of one, nobody waits.
fn commit_groups(
    store: &Store,
    mut queue: Taker,
    (growth_max, is_node): (usize, bool),
    arrived: &SyncSender<()>,
) {
    while let Some(group) = queue.take(GROUP_RECORDS_MAX, growth_max) {
        let (batches, callers) = (group.batches, group.callers);
        // Memory would come to twice its limit: commits wait, the queue fills, and further batches get 503.
        if store.intake().must_flush(group.growth)
            && let Err(error) = store.ledger().flush()
        {
            if let Some(times) = UNFLUSHED.due() {
                tracing::error!(%error, times, "cannot flush the delta stores, so no increments are accepted");
            }
            let refusal = unflushed(&error);
            store.intake().note_refused(&refusal);
            callers.answer(batches.iter().map(|_| Err(refusal.clone())).collect());
            continue;
        }
        let (count, began) = (batches.len(), Instant::now());
        let outcomes = store.intake().count(batches);
        let took = began.elapsed();
        callers.answer(outcomes);
        if store.live().has_arrived() {
            // A fold that was requested and has not begun yet covers these layers, too.
            let _ = arrived.try_send(());
        }
        if is_node && count > 1 {
            queue.gather(count, GATHER_MAX.min(took / 2));
        }
    }
}

/// Pause between attempts to bring up a second copy of the log that cannot be written.
const COPY_PAUSE: Duration = Duration::from_secs(1);

/// Brings the second copy up once a tick. Where the copy is on the disk of the log, a sync for each group would slow
/// the log.
fn copy_log(store: &Store, stop: &AtomicBool) {
    while !stop.load(Ordering::Relaxed) {
        match store.intake().copy_log() {
            Ok(true) => thread::sleep(TICK),
            Ok(false) => {}
            Err(_) => thread::sleep(COPY_PAUSE),
        }
    }
}

fn fold_arrivals(store: &Store, arrivals: &Receiver<()>) {
    // The thread that commits waits for this one at times.
    priority::run_soon();
    for () in arrivals {
        if !store.live().fold() {
            thread::sleep(SHARED_PAUSE);
        }
    }
}

/// Pause before heavy keys are learned again that could not be.
const LEARN_AGAIN: Duration = Duration::from_secs(3_600);

/// Learns heavy keys at a start, and again after each turn of the ring.
fn learn_heavy_keys(store: &Store, stop: &AtomicBool) {
    // It reads all totals of the ring at the moment when a day is exported.
    priority::run_behind();
    let mut again_at = Instant::now();
    while !stop.load(Ordering::Relaxed) {
        if again_at <= Instant::now()
            && let Err(error) = store.live().learn_heavy_keys(stop)
        {
            tracing::warn!(%error, "cannot learn the heavy keys, so rankings of recent hours will read all totals");
            again_at = Instant::now() + LEARN_AGAIN;
        }
        thread::sleep(TICK);
    }
}

fn unflushed(error: &Error) -> Refusal {
    match error {
        full if full.is_disk_full() => Refusal::DiskFull,
        error => Refusal::Unavailable(format!("memory is full and cannot be flushed: {error}")),
    }
}

/// First and longest pause between attempts to prepare a log segment when the disk has no room for one.
const NO_ROOM_PAUSES: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(30)];

fn flush_when_due(store: &Store, stop: &AtomicBool, failed: &AtomicBool) {
    let mut prepare_again: Option<(Instant, Duration)> = None;
    while !stop.load(Ordering::Relaxed) {
        if !store.intake().is_read_only()
            && store.intake().wants_flush()
            && let Err(error) = store.ledger().flush()
            // A node that lost the log meanwhile has nothing to flush.
            && !store.intake().is_read_only()
        {
            if let Some(times) = UNFLUSHED.due() {
                tracing::error!(%error, times, "cannot flush the delta stores; their counts stay in memory and in the log");
            }
            if store.ledger().must_restart().is_some() {
                failed.store(true, Ordering::Relaxed);
            }
            thread::sleep(Duration::from_secs(1));
        }
        if !store.intake().is_read_only()
            && prepare_again.is_none_or(|(at, _)| at <= Instant::now())
        {
            let [first, longest] = NO_ROOM_PAUSES;
            prepare_again = store.intake().prepare_segment().err().map(|error| {
                tracing::debug!(%error, "cannot prepare the next log segment");
                let pause = prepare_again.map_or(first, |(_, pause)| longest.min(2 * pause));
                (Instant::now() + pause, pause)
            });
        }
        thread::sleep(TICK);
    }
}

/// Pause between looks for segments to pack, which take the locks of root and intake.
const PACK_PAUSE: Duration = Duration::from_secs(1);
/// Pause between two turns at old objects.
const SWEEP_PAUSE: Duration = Duration::from_millis(200);

/// Packs old segments of the log, one at a time. A damaged one is tried once: it stays plain, so that it can be healed.
fn pack_log(store: &Store, stop: &AtomicBool) {
    priority::run_behind();
    let mut from = 0;
    let mut pause = TICK;
    let mut waited = Duration::ZERO;
    while !stop.load(Ordering::Relaxed) {
        if waited < pause {
            thread::sleep(TICK);
            waited += TICK;
            continue;
        }
        (pause, waited) = (TICK, Duration::ZERO);
        let Ok(Some(first)) = store.ledger().to_pack(from) else {
            pause = redact_log(store, stop).min(sweep_objects(store));
            continue;
        };
        match store.ledger().pack(first, stop) {
            Ok(_) => pause = Duration::ZERO,
            Err(_) if stop.load(Ordering::Relaxed) => {}
            Err(full) if full.is_disk_full() => pause = NO_ROOM_PAUSES[1],
            Err(error) => {
                tracing::warn!(%error, "a segment of the log could not be packed and stays plain");
                from = first + 1;
            }
        }
    }
}

/// Takes erased users out of one segment of the log, where any are to be looked for. Returns the pause until the next
/// one.
fn redact_log(store: &Store, stop: &AtomicBool) -> Duration {
    let day = store.intake().believed_ms().div_euclid(DAY_MS);
    let Ok(Some(first)) = store.ledger().to_redact(day) else {
        return PACK_PAUSE;
    };
    match store.ledger().redact(first, day, stop) {
        Err(full) if full.is_disk_full() => NO_ROOM_PAUSES[1],
        Err(error) if !stop.load(Ordering::Relaxed) => {
            tracing::warn!(%error, "a segment of the log or its copy may still name erased users; they are looked for again tomorrow");
            PACK_PAUSE
        }
        _ => PACK_PAUSE,
    }
}

/// Takes a turn in the removal of old objects. Returns the pause until the next look.
fn sweep_objects(store: &Store) -> Duration {
    match store.ledger().sweep() {
        Ok(true) => SWEEP_PAUSE,
        Ok(false) => PACK_PAUSE,
        Err(error) => {
            tracing::warn!(%error, "cannot look after old objects, which are only space; the next try is in an hour");
            PACK_PAUSE
        }
    }
}

fn keep_time(store: &Store, is_node: bool, stop: &AtomicBool, failed: &AtomicBool) {
    let tick = match store.options().durability {
        Durability::Interval(milliseconds) => TICK.min(Duration::from_millis(milliseconds.into())),
        Durability::Fsync => TICK,
    };
    let mut is_refused = false;
    let mut forgotten_to = i64::MIN;
    while !stop.load(Ordering::Relaxed) {
        let now = store.intake().believed_ms().div_euclid(1_000);
        let from = store.options().breakdowns_from(now);
        if from > forgotten_to && store.live().forget_breakdowns(now) {
            forgotten_to = from;
        }
        let was_refused = is_refused;
        is_refused = false;
        // A node that follows has no clock to keep.
        let ticked = match store.intake().is_read_only() {
            true => Ok(()),
            false => store.intake().tick(),
        };
        let failure = match ticked {
            // It follows the log soon.
            Err(Refusal::Unavailable(_)) if is_node => None,
            Err(error @ Refusal::Unavailable(_)) => Some(error.to_string()),
            Err(error) => {
                is_refused = true;
                if !was_refused {
                    tracing::warn!(%error, "the log takes no writes now");
                }
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
