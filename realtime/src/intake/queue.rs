//! The queue of batches that wait for the committing thread.
//!
//! Waking a thread costs more than counting an increment. So batches that the tasks of one thread submit go to the
//! queue together, once all ready tasks have run. The answers to a group go back together to the runtime of its
//! callers, which wakes its own tasks. The queue is bounded in batches and in bytes; a full queue refuses a batch with
//! [`Refusal::Busy`].
//!
//! A group is bounded in the memory that it may take once it is counted, too: a small batch of many keys and subtotals
//! may expand to hundreds of times its size.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::Duration;

use tallyring_records::{Event, Increment, Origin, Schema, Text};
use tokio::runtime::Handle;
use tokio::sync::oneshot;

use super::batch::{Batch, Counted};
use crate::delta::Growth;
use crate::error::Refusal;
use crate::holds::ShownAction;

/// Batches in the queue and in the group that is being committed, at most.
const BATCHES_MAX: usize = 16_384;

/// Outcome of a batch.
type Outcome = Result<Counted, Refusal>;

/// Bounded queue between the tasks that submit batches and the thread that commits them.
pub(crate) struct Queue {
    state: Mutex<State>,
    arrived: Condvar,
    limits: QueueLimits,
    batches: AtomicUsize,
    bytes: AtomicUsize,
}

/// Limits of the queue, bytes.
#[derive(Debug)]
pub(crate) struct QueueLimits {
    /// Memory of batches that wait or are being committed. One larger batch waits alone.
    pub bytes_max: usize,
    /// Memory that increments may take once they are counted.
    pub growth: RwLock<DeclaredGrowth>,
    /// Memory that one batch may take once it is counted; a larger one is refused.
    pub batch_growth_max: usize,
}

/// The growth by one schema.
#[derive(Debug)]
pub(crate) struct DeclaredGrowth {
    schema: Arc<Schema>,
    growth: Growth,
}

impl DeclaredGrowth {
    pub(crate) fn new(schema: Arc<Schema>) -> Self {
        Self {
            growth: Growth::new(&schema),
            schema,
        }
    }
}

/// A group of batches to commit.
pub(crate) struct Taken {
    pub batches: Vec<Batch>,
    pub callers: Callers,
    /// Memory that the group may take once it is counted, bytes.
    pub growth: usize,
}

/// Callers of a group, in the order of its batches.
pub(crate) struct Callers(Vec<Caller>);

/// The receiving end. Dropping it closes the queue and fails the waiting callers, however the committing thread ended.
pub(crate) struct Taker {
    queue: Arc<Queue>,
    /// Batches that left the queue and are in no group yet: taking many at once holds the lock for a moment only.
    taken: VecDeque<(Batch, Caller)>,
}

#[derive(Default)]
struct State {
    waiting: VecDeque<(Batch, Caller)>,
    /// The committing thread waits for so many batches; for one where this is 0.
    wanted: usize,
    is_closed: bool,
}

/// The task that waits for the outcome of a batch.
struct Caller {
    answer: oneshot::Sender<Outcome>,
    submissions: Arc<Submissions>,
    queued: QueuedBytes,
}

/// Batches that the tasks of one thread submitted and that are not in the queue yet.
struct Submissions {
    queue: Arc<Queue>,
    /// Runtime of the submitting tasks.
    runtime: Handle,
    submitted: Mutex<Vec<(Batch, Caller)>>,
}

/// Hands the submitted batches to the queue when dropped; a runtime that ends drops it, too.
struct HandOver(Arc<Submissions>);

/// The batch's share of the queue's bounds, given back when dropped.
struct QueuedBytes {
    queue: Arc<Queue>,
    bytes: usize,
    /// Memory that the batch may take once it is counted, bytes.
    growth: usize,
}

thread_local! {
    static SUBMISSIONS: RefCell<Option<Arc<Submissions>>> = const { RefCell::new(None) };
}

impl Queue {
    /// Creates an empty queue.
    pub(crate) fn new(limits: QueueLimits) -> Self {
        Self {
            state: Mutex::default(),
            arrived: Condvar::new(),
            limits,
            batches: AtomicUsize::new(0),
            bytes: AtomicUsize::new(0),
        }
    }

    /// Submits a batch from a task of a runtime, at once, and resolves with the outcome. Panics outside of a Tokio
    /// runtime.
    pub(crate) fn submit(self: &Arc<Self>, batch: Batch) -> impl Future<Output = Outcome> + use<> {
        let submitted = QueuedBytes::take(self, &batch).map(|queued| {
            let (answer, answered) = oneshot::channel();
            Submissions::of_this_thread(self).submit(batch, answer, queued);
            answered
        });
        async move {
            submitted?.await.unwrap_or_else(|_| {
                Err(Refusal::Unavailable(
                    "the server is stopping; retry with the same id".into(),
                ))
            })
        }
    }

    /// Closes the queue: waiting batches are still taken, and new ones are refused.
    pub(crate) fn close(&self) {
        lock(&self.state).is_closed = true;
        self.arrived.notify_one();
    }

    fn push(&self, submitted: Vec<(Batch, Caller)>) {
        let mut state = lock(&self.state);
        if state.is_closed {
            // Dropping the senders fails the waiting callers with [`Refusal::Unavailable`].
            return;
        }
        let wanted = state.wanted.max(1);
        let were_few = state.waiting.len() < wanted;
        state.waiting.extend(submitted);
        let are_enough = state.waiting.len() >= wanted;
        drop(state);
        if were_few && are_enough {
            self.arrived.notify_one();
        }
    }
}

impl QueueLimits {
    /// A batch is weighed by the schema by which it was checked. A small one is not looked at key by key.
    fn growth_of(&self, batch: &Batch) -> usize {
        let keys = batch.increments.iter().map(|of| of.keys.len()).sum();
        let known = || self.growth.read().unwrap_or_else(PoisonError::into_inner);
        let is_other = |schema: &&Arc<Schema>| !Arc::ptr_eq(schema, &known().schema);
        if let Some(schema) = batch.declared.as_ref().filter(is_other) {
            let declared = DeclaredGrowth::new(Arc::clone(schema));
            let mut known = self.growth.write().unwrap_or_else(PoisonError::into_inner);
            *known = declared;
        }
        let growth = &known().growth;
        let of_any = growth.of_any(keys);
        match of_any <= self.batch_growth_max / 64 {
            true => of_any,
            false => batch.increments.iter().map(|of| growth.of(of)).sum(),
        }
    }
}

impl Taker {
    /// Takes batches from `queue`.
    pub(crate) fn new(queue: Arc<Queue>) -> Self {
        Self {
            queue,
            taken: VecDeque::new(),
        }
    }

    /// Waits until so many batches wait, the queue is closed, or the time is over.
    pub(crate) fn gather(&self, batches: usize, longest: Duration) {
        let batches = batches.saturating_sub(self.taken.len());
        let mut state = lock(&self.queue.state);
        state.wanted = batches;
        let few = |state: &mut State| state.waiting.len() < batches && !state.is_closed;
        let waited = self.queue.arrived.wait_timeout_while(state, longest, few);
        let (mut state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        state.wanted = 0;
    }

    /// Waits for batches, then takes batches until they have `records_max` increments, the next one may make memory
    /// grow beyond `growth_max` bytes, or the queue is empty. The first batch is always taken. Returns none once the
    /// queue is closed and empty.
    pub(crate) fn take(&mut self, records_max: usize, growth_max: usize) -> Option<Taken> {
        if self.taken.is_empty() {
            let state = lock(&self.queue.state);
            let none = |state: &mut State| state.waiting.is_empty() && !state.is_closed;
            let waited = self.queue.arrived.wait_while(state, none);
            let mut state = waited.unwrap_or_else(PoisonError::into_inner);
            std::mem::swap(&mut self.taken, &mut state.waiting);
        }
        let (mut batches, mut callers) = (Vec::new(), Vec::new());
        let (mut records, mut growth) = (0, 0_usize);
        while records < records_max {
            if self.taken.is_empty() {
                std::mem::swap(&mut self.taken, &mut lock(&self.queue.state).waiting);
            }
            let fits = |(_, caller): &(Batch, Caller)| {
                growth == 0 || growth.saturating_add(caller.queued.growth) <= growth_max
            };
            let Some((batch, caller)) = self
                .taken
                .front()
                .is_some_and(fits)
                .then(|| self.taken.pop_front())
                .flatten()
            else {
                break;
            };
            records += batch.increments.len();
            growth = growth.saturating_add(caller.queued.growth);
            batches.push(batch);
            callers.push(caller);
        }
        (!batches.is_empty()).then_some(Taken {
            batches,
            callers: Callers(callers),
            growth,
        })
    }
}

impl Drop for Taker {
    fn drop(&mut self) {
        let mut state = lock(&self.queue.state);
        state.is_closed = true;
        let untaken = std::mem::take(&mut state.waiting);
        drop(state);
        drop(untaken);
    }
}

impl Callers {
    /// Sends each caller its outcome. A caller may be gone: its batch counts all the same.
    pub(crate) fn answer(self, outcomes: Vec<Outcome>) {
        let mut answers_by_runtime: Vec<(Arc<Submissions>, Vec<_>)> = Vec::new();
        for (caller, outcome) in self.0.into_iter().zip(outcomes) {
            drop(caller.queued);
            let mut known = answers_by_runtime.iter_mut();
            match known.find(|(known, _)| Arc::ptr_eq(known, &caller.submissions)) {
                Some((_, answers)) => answers.push((caller.answer, outcome)),
                None => {
                    answers_by_runtime.push((caller.submissions, vec![(caller.answer, outcome)]))
                }
            }
        }
        for (submissions, answers) in answers_by_runtime {
            submissions.runtime.spawn(async move {
                for (answer, outcome) in answers {
                    let _ = answer.send(outcome);
                }
            });
        }
    }
}

impl Submissions {
    /// The submissions of the calling thread for its current runtime.
    fn of_this_thread(queue: &Arc<Queue>) -> Arc<Self> {
        let runtime = Handle::current();
        SUBMISSIONS.with_borrow_mut(|submissions| {
            submissions.take_if(|submissions| {
                !Arc::ptr_eq(&submissions.queue, queue) || submissions.runtime.id() != runtime.id()
            });
            let submissions = submissions.get_or_insert_with(|| {
                Arc::new(Self {
                    queue: Arc::clone(queue),
                    runtime,
                    submitted: Mutex::default(),
                })
            });
            Arc::clone(submissions)
        })
    }

    fn submit(
        self: Arc<Self>,
        batch: Batch,
        answer: oneshot::Sender<Outcome>,
        queued: QueuedBytes,
    ) {
        let submissions = Arc::clone(&self);
        let caller = Caller {
            answer,
            submissions,
            queued,
        };
        let mut submitted = lock(&self.submitted);
        let is_first = submitted.is_empty();
        submitted.push((batch, caller));
        drop(submitted);
        if is_first {
            let hand_over = HandOver(self);
            tokio::spawn(async move {
                // The hand-over runs after the tasks that are ready now, and after those that the next poll of the
                // sockets wakes.
                tokio::task::yield_now().await;
                drop(hand_over);
            });
        }
    }
}

impl Drop for HandOver {
    fn drop(&mut self) {
        let submitted = std::mem::take(&mut *lock(&self.0.submitted));
        self.0.queue.push(submitted);
    }
}

impl QueuedBytes {
    fn take(queue: &Arc<Queue>, batch: &Batch) -> Result<Self, Refusal> {
        let limits = &queue.limits;
        let shown = batch.beside.iter().flat_map(|(_, shown)| shown);
        let shown: usize = shown
            .map(|shown| size_of::<ShownAction>() + shown.what.len())
            .sum();
        let weight = batch.increments.iter().map(weight).sum::<usize>() + shown;
        let growth = limits.growth_of(batch).saturating_add(weight);
        let bytes_max = limits.batch_growth_max;
        if growth > bytes_max && batch.increments.len() > 1 {
            return Err(Refusal::TooLarge {
                bytes: growth,
                bytes_max,
            });
        }
        // Created before the check, so that a refused batch gives its share back.
        let queued = Self {
            queue: Arc::clone(queue),
            bytes: weight.min(limits.bytes_max),
            growth,
        };
        let batches = queue.batches.fetch_add(1, Ordering::Relaxed) + 1;
        let bytes = queue.bytes.fetch_add(queued.bytes, Ordering::Relaxed) + queued.bytes;
        match batches <= BATCHES_MAX && bytes <= limits.bytes_max {
            true => Ok(queued),
            false => Err(Refusal::Busy),
        }
    }
}

impl Drop for QueuedBytes {
    fn drop(&mut self) {
        self.queue.batches.fetch_sub(1, Ordering::Relaxed);
        self.queue.bytes.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Memory of a waiting increment, bytes, about.
fn weight(increment: &Increment) -> usize {
    let texts = |pairs: &[(Text, Text)]| {
        pairs
            .iter()
            .map(|(name, text)| name.len() + text.len() + 64)
            .sum::<usize>()
    };
    let more = [&increment.id, &increment.user].into_iter().flatten();
    let event = increment.event.as_ref().map_or(0, |event| {
        size_of::<Event>() + event.kind.len() + event.view.as_ref().map_or(0, String::len)
    });
    let origin = increment.origin.as_ref();
    let origin = origin.map_or(0, |origin| size_of::<Origin>() + origin.producer.len());
    size_of::<Increment>()
        + texts(&increment.keys)
        + texts(&increment.by)
        + more.map(String::len).sum::<usize>()
        + event
        + origin
        + increment
            .details
            .as_ref()
            .map_or(0, |details| details.weight())
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::thread;

    use tallyring_records::Accepted;
    use tokio::runtime::{Builder, Runtime};

    use super::*;

    const BYTES_MAX: usize = 1 << 20;

    fn limits() -> QueueLimits {
        QueueLimits {
            bytes_max: BYTES_MAX,
            growth: RwLock::new(DeclaredGrowth::new(Arc::new(Schema::default_clicks()))),
            batch_growth_max: usize::MAX,
        }
    }

    #[test]
    fn batches_that_tasks_submit_together_are_taken_in_order_and_answered() {
        let queue = Arc::new(Queue::new(limits()));
        let (mut taker, runtime) = (Taker::new(Arc::clone(&queue)), runtime());
        let answers: Vec<_> = (1..=5)
            .map(|n| submit_by_task(runtime.handle(), &queue, batch(n)))
            .collect();
        let running = run(runtime);
        let Taken {
            batches, callers, ..
        } = taker.take(16, usize::MAX).expect("a group");
        let counts: Vec<u64> = batches.iter().map(|batch| batch.increments[0].n).collect();
        assert_eq!(counts, [1, 2, 3, 4, 5]);
        callers.answer(batches.iter().map(accepted).collect());
        let answers = answers
            .iter()
            .map(|answer| answer.recv().expect("an answer"));
        assert_eq!(
            answers
                .map(|answer| answer.expect("accepted").accepted.accepted)
                .collect::<Vec<_>>(),
            counts
        );
        drop(running);
    }

    #[test]
    fn a_group_ends_with_the_batch_that_fills_it() {
        let queue = Arc::new(Queue::new(limits()));
        let (mut taker, runtime) = (Taker::new(Arc::clone(&queue)), runtime());
        let _answers: Vec<_> = (1..=5)
            .map(|n| submit_by_task(runtime.handle(), &queue, batch(n)))
            .collect();
        let _running = run(runtime);
        let sizes = [2, 2, 1].map(|_| taker.take(2, usize::MAX).expect("a group").batches.len());
        assert_eq!(sizes, [2, 2, 1]);
    }

    #[test]
    fn a_group_that_is_gathered_has_as_many_batches_as_are_wanted() {
        let queue = Arc::new(Queue::new(limits()));
        let mut taker = Taker::new(Arc::clone(&queue));
        let gathering = thread::spawn(move || {
            taker.gather(3, Duration::from_secs(3_600));
            taker.take(16, usize::MAX).expect("a group").batches.len()
        });
        let running = [1, 2].map(|batches| {
            let runtime = runtime();
            for _ in 0..batches {
                submit_by_task(runtime.handle(), &queue, batch(1));
            }
            run(runtime)
        });
        assert_eq!(gathering.join().expect("no panic"), 3);
        drop(running);
    }

    #[test]
    fn a_group_that_is_gathered_goes_without_batches_that_do_not_come() {
        let queue = Arc::new(Queue::new(limits()));
        let (mut taker, runtime) = (Taker::new(Arc::clone(&queue)), runtime());
        let _answer = submit_by_task(runtime.handle(), &queue, batch(1));
        let _running = run(runtime);
        taker.gather(2, Duration::ZERO);
        assert_eq!(
            taker.take(16, usize::MAX).expect("a group").batches.len(),
            1
        );
    }

    #[test]
    fn batches_of_several_runtimes_are_all_answered() {
        let queue = Arc::new(Queue::new(limits()));
        let mut taker = Taker::new(Arc::clone(&queue));
        let committing = thread::spawn(move || {
            let mut taken = 0;
            while let Some(Taken {
                batches, callers, ..
            }) = taker.take(16, usize::MAX)
            {
                taken += batches.len();
                callers.answer(batches.iter().map(accepted).collect());
            }
            taken
        });
        let runtimes: Vec<_> = (0..3)
            .map(|at| {
                let runtime = runtime();
                let answers: Vec<_> = (1..=20)
                    .map(|n| submit_by_task(runtime.handle(), &queue, batch(at * 20 + n)))
                    .collect();
                (answers, run(runtime))
            })
            .collect();
        for (at, (answers, _)) in (0..).zip(&runtimes) {
            for (n, answer) in (1..).zip(answers) {
                let answer = answer.recv().expect("an answer").expect("accepted");
                assert_eq!(answer.accepted.accepted, at * 20 + n);
            }
        }
        queue.close();
        assert_eq!(committing.join().expect("no panic"), 60);
    }

    #[test]
    fn a_batch_goes_on_without_its_caller_or_its_runtime() {
        let queue = Arc::new(Queue::new(limits()));
        let (mut taker, runtime) = (Taker::new(Arc::clone(&queue)), runtime());
        runtime.block_on(async {
            tokio::select! {
                biased;
                _ = queue.submit(batch(1)) => unreachable!("nobody answers"),
                () = std::future::ready(()) => {}
            }
        });
        drop(runtime);
        let Taken {
            batches, callers, ..
        } = taker.take(16, usize::MAX).expect("a group");
        assert_eq!(batches.len(), 1);
        callers.answer(batches.iter().map(accepted).collect());
    }

    #[test]
    fn a_dropped_taker_fails_all_waiting_batches() {
        let queue = Arc::new(Queue::new(limits()));
        let (taker, runtime) = (Taker::new(Arc::clone(&queue)), runtime());
        let before = submit_by_task(runtime.handle(), &queue, batch(1));
        runtime.block_on(async {
            for _ in 0..3 {
                tokio::task::yield_now().await;
            }
        });
        assert_eq!(
            lock(&queue.state).waiting.len(),
            1,
            "the batch was handed over"
        );
        drop(taker);
        let after = submit_by_task(runtime.handle(), &queue, batch(2));
        let _running = run(runtime);
        for answer in [before, after] {
            let answer = answer.recv().expect("an answer");
            assert!(matches!(answer, Err(Refusal::Unavailable(_))), "{answer:?}");
        }
    }

    #[test]
    fn a_full_queue_is_busy_until_it_has_room() {
        let queue = Arc::new(Queue::new(limits()));
        let (mut taker, runtime) = (Taker::new(Arc::clone(&queue)), runtime());
        let large = || {
            let mut batch = batch(1);
            batch.increments[0].id = Some("x".repeat(BYTES_MAX * 2 / 3));
            batch
        };
        let first = submit_by_task(runtime.handle(), &queue, large());
        runtime.block_on(async {
            tokio::task::yield_now().await;
            let full = queue.submit(large()).await;
            assert!(matches!(full, Err(Refusal::Busy)), "{full:?}");
        });
        let handle = runtime.handle().clone();
        let _running = run(runtime);
        let Taken {
            batches, callers, ..
        } = taker.take(16, usize::MAX).expect("a group");
        callers.answer(batches.iter().map(accepted).collect());
        assert!(first.recv().expect("an answer").is_ok());
        let second = submit_by_task(&handle, &queue, large());
        let Taken {
            batches, callers, ..
        } = taker.take(16, usize::MAX).expect("there is room again");
        callers.answer(batches.iter().map(accepted).collect());
        assert!(second.recv().expect("an answer").is_ok());
    }

    #[test]
    fn a_group_takes_no_more_memory_than_it_may_and_a_batch_that_would_is_refused() {
        let of_two = Growth::new(&Schema::default_clicks()).of_any(2);
        let limits = QueueLimits {
            batch_growth_max: 8 * of_two,
            ..limits()
        };
        let queue = Arc::new(Queue::new(limits));
        let (mut taker, runtime) = (Taker::new(Arc::clone(&queue)), runtime());
        let batch = |increments: usize| Batch {
            increments: vec![Increment::new(0, 1, [("l", "a"), ("u", "b")]); increments],
            ..Batch::default()
        };
        for _ in 0..3 {
            submit_by_task(runtime.handle(), &queue, batch(2));
        }
        runtime.block_on(async {
            let refused = queue.submit(batch(9)).await;
            assert!(
                matches!(refused, Err(Refusal::TooLarge { bytes, .. }) if bytes > 9 * of_two / 2),
                "{refused:?}"
            );
            for _ in 0..3 {
                tokio::task::yield_now().await;
            }
        });
        let sizes = [5 * of_two, 5 * of_two].map(|growth_max| {
            let taken = taker.take(16, growth_max).expect("a group");
            assert!(taken.growth <= growth_max);
            taken.batches.len()
        });
        assert_eq!(sizes, [2, 1]);
        // One increment is always taken.
        let many = (0..64).map(|n| (format!("n{n}"), "a".to_owned()));
        submit_by_task(
            runtime.handle(),
            &queue,
            Batch {
                increments: vec![Increment::new(0, 1, many)],
                ..Batch::default()
            },
        );
        runtime.block_on(async {
            for _ in 0..3 {
                tokio::task::yield_now().await;
            }
        });
        assert_eq!(taker.take(16, 1).expect("a group").batches.len(), 1);
    }

    #[test]
    fn all_texts_of_an_increment_count_for_the_bound() {
        let long = || "x".repeat(200);
        let plain = Increment::new(0, 1, [("l", "a")]);
        let event = Event {
            kind: long(),
            view: Some(long()),
            correction: false,
        };
        let origin = Origin {
            producer: long(),
            epoch: 0,
            sequence: 1,
        };
        let full = Increment {
            by: vec![("c".into(), long().into())],
            id: Some(long()),
            user: Some(long()),
            event: Some(event.into()),
            origin: Some(origin.into()),
            ..Increment::new(0, 1, [("l", long())])
        };
        assert!(weight(&full) >= weight(&plain) + 7 * 200 - 1);
    }

    fn runtime() -> Runtime {
        Builder::new_current_thread().build().expect("a runtime")
    }

    /// Runs the tasks on a thread until the returned sender is dropped.
    fn run(runtime: Runtime) -> oneshot::Sender<()> {
        let (running, dropped) = oneshot::channel();
        thread::spawn(move || runtime.block_on(dropped));
        running
    }

    /// Submits a batch from a task.
    fn submit_by_task(
        runtime: &Handle,
        queue: &Arc<Queue>,
        batch: Batch,
    ) -> mpsc::Receiver<Outcome> {
        let (send, received) = mpsc::channel();
        let queue = Arc::clone(queue);
        runtime.spawn(async move { send.send(queue.submit(batch).await) });
        received
    }

    fn accepted(batch: &Batch) -> Outcome {
        let accepted = Accepted {
            accepted: batch.increments[0].n,
            ..Accepted::default()
        };
        Ok(accepted.into())
    }

    fn batch(n: u64) -> Batch {
        Batch {
            increments: vec![Increment::new(0, n, [("l", "a")])],
            ..Batch::default()
        }
    }
}
