//! What waits for the thread that commits.
//!
//! To wake a thread costs more than to count an increment. So what tasks submit in one turn of their thread goes to the
//! queue together, once all tasks that were ready have had theirs; and the answers to a group go back together to the
//! runtime that asked, which wakes its tasks by itself. The queue is bounded in batches and in bytes; when it is full, a
//! caller is told to come again.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use tallyring_records::{Accepted, Event, Increment, Origin, Text};
use tokio::runtime::Handle;
use tokio::sync::oneshot;

use super::batch::Batch;
use crate::error::Refusal;

/// Batches that may wait, with those that are being committed.
const BATCHES_MAX: usize = 16_384;

/// What becomes of a batch.
type Outcome = Result<Accepted, Refusal>;

/// Between those who submit and the thread that commits.
pub struct Queue {
    state: Mutex<State>,
    came: Condvar,
    /// Memory of what waits or is being committed; one batch that is larger waits alone.
    bytes_max: usize,
    batches: AtomicUsize,
    bytes: AtomicUsize,
}

/// A group's callers, in the order of its batches.
pub struct Callers(Vec<Caller>);

/// The end that takes. Closes the queue when dropped: nobody waits for a thread that has ended, however it did.
pub struct Taker {
    queue: Arc<Queue>,
    /// What it brought along from the queue, so as to hold its lock for a moment only, and is in no group yet.
    brought: VecDeque<(Batch, Caller)>,
}

#[derive(Default)]
struct State {
    waiting: VecDeque<(Batch, Caller)>,
    is_closed: bool,
}

/// Who waits for what becomes of a batch.
struct Caller {
    answer: oneshot::Sender<Outcome>,
    desk: Arc<Desk>,
    queued: QueuedBytes,
}

/// Where what is submitted in a turn of a thread waits for its end.
struct Desk {
    queue: Arc<Queue>,
    /// Whose tasks submit here.
    runtime: Handle,
    submitted: Mutex<Vec<(Batch, Caller)>>,
}

/// Hands over what was submitted when dropped, which a runtime that ends does, too.
struct Turn(Arc<Desk>);

/// A batch's part of the bounds; given back when dropped.
struct QueuedBytes {
    queue: Arc<Queue>,
    bytes: usize,
}

thread_local! {
    static DESK: RefCell<Option<Arc<Desk>>> = const { RefCell::new(None) };
}

impl Queue {
    /// An empty one, of at most so many bytes.
    pub fn new(bytes_max: usize) -> Self {
        Self {
            state: Mutex::default(),
            came: Condvar::new(),
            bytes_max,
            batches: AtomicUsize::new(0),
            bytes: AtomicUsize::new(0),
        }
    }

    /// Hands a batch over from a task of a runtime; resolves when it is answered.
    ///
    /// # Errors
    /// Why nothing was counted.
    ///
    /// # Panics
    /// Outside of a Tokio runtime.
    pub async fn submit(self: &Arc<Self>, batch: Batch) -> Outcome {
        let queued = QueuedBytes::take(self, &batch).ok_or(Refusal::Busy)?;
        let (answer, answered) = oneshot::channel();
        Desk::of_this_thread(self).submit(batch, answer, queued);
        answered.await.unwrap_or_else(|_| {
            Err(Refusal::Unavailable(
                "the server is stopping; retry with the same id".into(),
            ))
        })
    }

    /// What waits is still taken, and nothing else comes.
    pub fn close(&self) {
        lock(&self.state).is_closed = true;
        self.came.notify_one();
    }

    fn push(&self, submitted: Vec<(Batch, Caller)>) {
        let mut state = lock(&self.state);
        if state.is_closed {
            // Whoever waits is told so by the end of its channel.
            return;
        }
        let is_first = state.waiting.is_empty();
        state.waiting.extend(submitted);
        drop(state);
        if is_first {
            self.came.notify_one();
        }
    }
}

impl Taker {
    /// Takes from this queue.
    pub fn new(queue: Arc<Queue>) -> Self {
        Self {
            queue,
            brought: VecDeque::new(),
        }
    }

    /// Waits for batches, then takes so many that they have about so many records; none once the queue is closed and
    /// empty.
    pub fn take(&mut self, records_max: usize) -> Option<(Vec<Batch>, Callers)> {
        if self.brought.is_empty() {
            let state = lock(&self.queue.state);
            let none = |state: &mut State| state.waiting.is_empty() && !state.is_closed;
            let waited = self.queue.came.wait_while(state, none);
            let mut state = waited.unwrap_or_else(PoisonError::into_inner);
            std::mem::swap(&mut self.brought, &mut state.waiting);
        }
        let (mut batches, mut callers, mut records) = (Vec::new(), Vec::new(), 0);
        while records < records_max {
            if self.brought.is_empty() {
                std::mem::swap(&mut self.brought, &mut lock(&self.queue.state).waiting);
            }
            let Some((batch, caller)) = self.brought.pop_front() else {
                break;
            };
            records += batch.increments.len();
            batches.push(batch);
            callers.push(caller);
        }
        (!batches.is_empty()).then_some((batches, Callers(callers)))
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
    /// Tells each its outcome. Nobody waits any more where a client has gone: its batch counts all the same.
    pub fn answer(self, outcomes: Vec<Outcome>) {
        let mut desks: Vec<(Arc<Desk>, Vec<_>)> = Vec::new();
        for (caller, outcome) in self.0.into_iter().zip(outcomes) {
            let Caller {
                answer,
                desk,
                queued,
            } = caller;
            drop(queued);
            match desks
                .iter_mut()
                .find(|(known, _)| Arc::ptr_eq(known, &desk))
            {
                Some((_, answers)) => answers.push((answer, outcome)),
                None => desks.push((desk, vec![(answer, outcome)])),
            }
        }
        for (desk, answers) in desks {
            desk.runtime.spawn(async move {
                for (answer, outcome) in answers {
                    let _ = answer.send(outcome);
                }
            });
        }
    }
}

impl Desk {
    /// That of the calling thread, for the runtime whose task it runs.
    fn of_this_thread(queue: &Arc<Queue>) -> Arc<Self> {
        let runtime = Handle::current();
        DESK.with_borrow_mut(|desk| {
            desk.take_if(|desk| {
                !Arc::ptr_eq(&desk.queue, queue) || desk.runtime.id() != runtime.id()
            });
            let desk = desk.get_or_insert_with(|| {
                Arc::new(Self {
                    queue: Arc::clone(queue),
                    runtime,
                    submitted: Mutex::default(),
                })
            });
            Arc::clone(desk)
        })
    }

    fn submit(
        self: Arc<Self>,
        batch: Batch,
        answer: oneshot::Sender<Outcome>,
        queued: QueuedBytes,
    ) {
        let desk = Arc::clone(&self);
        let caller = Caller {
            answer,
            desk,
            queued,
        };
        let mut submitted = lock(&self.submitted);
        let is_first = submitted.is_empty();
        submitted.push((batch, caller));
        drop(submitted);
        if is_first {
            let turn = Turn(self);
            tokio::spawn(async move {
                // It goes behind the tasks that are ready now, and those that the next look at the sockets wakes.
                tokio::task::yield_now().await;
                drop(turn);
            });
        }
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        let submitted = std::mem::take(&mut *lock(&self.0.submitted));
        self.0.queue.push(submitted);
    }
}

impl QueuedBytes {
    fn take(queue: &Arc<Queue>, batch: &Batch) -> Option<Self> {
        let weight: usize = batch.increments.iter().map(weight).sum();
        // Made before the check, so that what is refused is given back.
        let queued = Self {
            queue: Arc::clone(queue),
            bytes: weight.min(queue.bytes_max),
        };
        let batches = queue.batches.fetch_add(1, Ordering::Relaxed) + 1;
        let bytes = queue.bytes.fetch_add(queued.bytes, Ordering::Relaxed) + queued.bytes;
        (batches <= BATCHES_MAX && bytes <= queue.bytes_max).then_some(queued)
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

/// Bytes that an increment holds while it waits, about.
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
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::thread;

    use tokio::runtime::{Builder, Runtime};

    use super::*;

    const BYTES_MAX: usize = 1 << 20;

    #[test]
    fn what_tasks_submit_in_a_turn_is_taken_together_in_its_order_and_answered() {
        let queue = Arc::new(Queue::new(BYTES_MAX));
        let (mut taker, runtime) = (Taker::new(Arc::clone(&queue)), runtime());
        let asked: Vec<_> = (1..=5)
            .map(|n| ask(runtime.handle(), &queue, batch(n)))
            .collect();
        let running = run(runtime);
        let (batches, callers) = taker.take(16).expect("a group");
        let counts: Vec<u64> = batches.iter().map(|batch| batch.increments[0].n).collect();
        assert_eq!(counts, [1, 2, 3, 4, 5]);
        callers.answer(batches.iter().map(accepted).collect());
        let answers = asked.iter().map(|answer| answer.recv().expect("an answer"));
        assert_eq!(
            answers
                .map(|answer| answer.expect("accepted").accepted)
                .collect::<Vec<_>>(),
            counts
        );
        drop(running);
    }

    #[test]
    fn a_group_ends_with_the_batch_that_fills_it() {
        let queue = Arc::new(Queue::new(BYTES_MAX));
        let (mut taker, runtime) = (Taker::new(Arc::clone(&queue)), runtime());
        let _asked: Vec<_> = (1..=5)
            .map(|n| ask(runtime.handle(), &queue, batch(n)))
            .collect();
        let _running = run(runtime);
        let sizes = [2, 2, 1].map(|_| taker.take(2).expect("a group").0.len());
        assert_eq!(sizes, [2, 2, 1]);
    }

    #[test]
    fn those_of_several_runtimes_are_all_answered() {
        let queue = Arc::new(Queue::new(BYTES_MAX));
        let mut taker = Taker::new(Arc::clone(&queue));
        let committing = thread::spawn(move || {
            let mut taken = 0;
            while let Some((batches, callers)) = taker.take(16) {
                taken += batches.len();
                callers.answer(batches.iter().map(accepted).collect());
            }
            taken
        });
        let runtimes: Vec<_> = (0..3)
            .map(|at| {
                let runtime = runtime();
                let asked: Vec<_> = (1..=20)
                    .map(|n| ask(runtime.handle(), &queue, batch(at * 20 + n)))
                    .collect();
                (asked, run(runtime))
            })
            .collect();
        for (at, (asked, _)) in (0..).zip(&runtimes) {
            for (n, answer) in (1..).zip(asked) {
                let answer = answer.recv().expect("an answer").expect("accepted");
                assert_eq!(answer.accepted, at * 20 + n);
            }
        }
        queue.close();
        assert_eq!(committing.join().expect("no panic"), 60);
    }

    #[test]
    fn a_batch_goes_on_without_its_caller_or_its_runtime() {
        let queue = Arc::new(Queue::new(BYTES_MAX));
        let (mut taker, runtime) = (Taker::new(Arc::clone(&queue)), runtime());
        runtime.block_on(async {
            tokio::select! {
                biased;
                _ = queue.submit(batch(1)) => unreachable!("nobody answers"),
                () = std::future::ready(()) => {}
            }
        });
        drop(runtime);
        let (batches, callers) = taker.take(16).expect("a group");
        assert_eq!(batches.len(), 1);
        callers.answer(batches.iter().map(accepted).collect());
    }

    #[test]
    fn nobody_waits_for_a_thread_that_has_ended() {
        let queue = Arc::new(Queue::new(BYTES_MAX));
        let (taker, runtime) = (Taker::new(Arc::clone(&queue)), runtime());
        let before = ask(runtime.handle(), &queue, batch(1));
        runtime.block_on(async {
            for _ in 0..3 {
                tokio::task::yield_now().await;
            }
        });
        assert_eq!(lock(&queue.state).waiting.len(), 1, "its turn is over");
        drop(taker);
        let after = ask(runtime.handle(), &queue, batch(2));
        let _running = run(runtime);
        for answer in [before, after] {
            let answer = answer.recv().expect("an answer");
            assert!(matches!(answer, Err(Refusal::Unavailable(_))), "{answer:?}");
        }
    }

    #[test]
    fn who_finds_the_queue_full_is_told_so_until_there_is_room() {
        let queue = Arc::new(Queue::new(BYTES_MAX));
        let (mut taker, runtime) = (Taker::new(Arc::clone(&queue)), runtime());
        let large = || {
            let mut batch = batch(1);
            batch.increments[0].id = Some("x".repeat(BYTES_MAX * 2 / 3));
            batch
        };
        let first = ask(runtime.handle(), &queue, large());
        runtime.block_on(async {
            tokio::task::yield_now().await;
            let full = queue.submit(large()).await;
            assert!(matches!(full, Err(Refusal::Busy)), "{full:?}");
        });
        let handle = runtime.handle().clone();
        let _running = run(runtime);
        let (batches, callers) = taker.take(16).expect("a group");
        callers.answer(batches.iter().map(accepted).collect());
        assert!(first.recv().expect("an answer").is_ok());
        let second = ask(&handle, &queue, large());
        let (batches, callers) = taker.take(16).expect("there is room again");
        callers.answer(batches.iter().map(accepted).collect());
        assert!(second.recv().expect("an answer").is_ok());
    }

    #[test]
    fn all_texts_of_an_increment_weigh() {
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

    /// Runs its tasks on a thread until what is answered is dropped.
    fn run(runtime: Runtime) -> oneshot::Sender<()> {
        let (running, dropped) = oneshot::channel();
        thread::spawn(move || runtime.block_on(dropped));
        running
    }

    /// Submits a batch by a task.
    fn ask(runtime: &Handle, queue: &Arc<Queue>, batch: Batch) -> mpsc::Receiver<Outcome> {
        let (tell, told) = mpsc::channel();
        let queue = Arc::clone(queue);
        runtime.spawn(async move { tell.send(queue.submit(batch).await) });
        told
    }

    fn accepted(batch: &Batch) -> Outcome {
        Ok(Accepted {
            accepted: batch.increments[0].n,
            ..Accepted::default()
        })
    }

    fn batch(n: u64) -> Batch {
        Batch {
            increments: vec![Increment::new(0, n, [("l", "a")])],
            ..Batch::default()
        }
    }
}
