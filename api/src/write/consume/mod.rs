//! Topics of another system are consumed: each message counts once, whatever happens to this server or to the topic.
//!
//! The log says how far each partition was consumed, in the frame of what its messages counted. So all that is
//! remembered here may be lost: where anything is in doubt, the consumer reads the log's offsets and seeks to them.
//! Only the store that writes its log consumes. The first of several strands has the offsets, and the node that writes
//! its log consumes. A batch is divided as others are: increments with ids count in their strands, and then the offsets
//! and all else in the first one. Where that fails, messages are read again, and their ids are known.
//!
//! Memory is bounded: messages are taken up to a number of bytes, and no further ones before these are counted.

mod message;
mod places;
mod standing;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use tallyring_realtime::{
    Advance, Batch, Refusal, Seldom, Source, SourceError, SourceMessage, Submission, WrongItem,
};
use tallyring_records::{Schema, TopicPartition};
use tokio::runtime::Handle;

use super::refused::{leave_out, refused_by_store};
use crate::meter::Outcomes;
use crate::problem::Problem;
use crate::state::ApiState;
use message::{Bad, By, Good, MessagePlace};
use places::{LOST, Place};

pub(crate) use places::LAG;

pub use message::MessageFormat;
pub use standing::{Consuming, PartitionStanding, TopicStanding};

/// Messages that are taken before they are counted: their number, and the bytes at which no further one is taken.
const MESSAGES_MAX: usize = 1_000;
const BYTES_MAX: usize = 4 << 20;
/// Items at which a batch takes no further message.
const ITEMS_MAX: usize = 10_000;
/// How long a turn waits for a message.
const WAIT: Duration = Duration::from_millis(200);
/// Pause after a fault, and between offers to a store that counts nothing now.
const PAUSE: Duration = Duration::from_millis(500);
/// How often the topics are looked at, for new partitions and for the lag, milliseconds of the store's clock.
const LOOK_MS: i64 = 5_000;
/// Characters of a fault that the log and the status show.
const SHOWN_MAX: usize = 200;

/// A topic to consume.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConsumedTopic {
    /// Its name.
    pub name: String,
    /// How its messages are read.
    pub format: MessageFormat,
    /// True to consume a topic that was made again under this name, from its beginning.
    pub reset: bool,
}

/// Consumes topics, in the thread of its caller.
pub struct Consumer {
    state: ApiState,
    source: Box<dyn Source>,
    topics: Vec<ConsumedTopic>,
    /// Partitions that are read, by the name of the topic and their number.
    places: BTreeMap<(String, u32), Place>,
    /// Messages that were taken and are to be counted.
    waiting: VecDeque<SourceMessage>,
    /// How many of them are tried at once; 0 where even the first is too large.
    most: usize,
    /// The first of them where some strands have counted theirs and another one took nothing.
    begun: Option<Begun>,
    /// The epoch of the log in which the places were found.
    epoch: Option<u32>,
    /// The fault that ended the taking of messages in this turn.
    fault: Option<SourceError>,
    /// When the source failed last, milliseconds of the store's clock.
    failed_ms: Option<i64>,
    /// True where it failed after the last look: partitions may have stopped.
    seeks: bool,
    /// Topics whose error is none of a look, and ends when messages count.
    passing: BTreeSet<String>,
    /// When the topics were looked at, milliseconds of the store's clock; none to look now.
    looked_ms: Option<i64>,
    /// When partitions did not answer that have not answered since, milliseconds of that clock.
    silent_ms: BTreeMap<TopicPartition, i64>,
    runtime: Handle,
    stop: Arc<AtomicBool>,
}

impl Consumer {
    /// Consumes `topics` until `stop` is set. Batches are submitted in `runtime`, which other threads drive.
    pub fn new(
        state: ApiState,
        source: Box<dyn Source>,
        topics: Vec<ConsumedTopic>,
        (runtime, stop): (Handle, Arc<AtomicBool>),
    ) -> Self {
        for topic in &topics {
            state.admin.consuming.note(&topic.name, |_| {});
            // An alert on the first of what is counted needs a value before it.
            for name in [MESSAGES, LOST] {
                metrics::counter!(name, "topic" => topic.name.clone()).absolute(0);
            }
        }
        Self {
            state,
            source,
            topics,
            places: BTreeMap::new(),
            waiting: VecDeque::new(),
            most: MESSAGES_MAX,
            begun: None,
            epoch: None,
            fault: None,
            failed_ms: None,
            seeks: false,
            passing: BTreeSet::new(),
            looked_ms: None,
            silent_ms: BTreeMap::new(),
            runtime,
            stop,
        }
    }

    /// Consumes until it is stopped.
    pub fn run(mut self) {
        while !self.is_stopped() {
            match self.turn(WAIT) {
                Ok(true) => {}
                Ok(false) if self.places.is_empty() || !self.waiting.is_empty() => self.pause(),
                Ok(false) => {}
                Err(_) => self.pause(),
            }
        }
    }

    /// Takes messages, counts them, and returns true; false where none came for so long, where the store counts none
    /// now, or where it does not write its log. Messages that were taken wait for a later turn. Fails where the source
    /// gives nothing, or no more than what was counted.
    pub fn turn(&mut self, wait: Duration) -> Result<bool, SourceError> {
        let turned = self.try_turn(wait);
        if let Err(error) = &turned {
            self.forget();
            self.fail(error);
        }
        self.fault.take().map_or(turned, Err)
    }

    fn try_turn(&mut self, wait: Duration) -> Result<bool, SourceError> {
        let epoch = self.state.store().intake().epoch();
        if epoch.is_none() {
            self.leave();
            return Ok(false);
        }
        if epoch != self.epoch {
            self.forget();
            self.epoch = epoch;
        }
        if self.waiting.is_empty() {
            if self.is_past(self.looked_ms) {
                self.look()?;
            }
            if self.places.is_empty() {
                return Ok(false);
            }
            self.gather(wait);
        }
        if self.waiting.is_empty() {
            return self.pass_marks().map(|()| false);
        }
        self.check_topics(self.waiting.iter().map(|of| of.topic.clone()).collect())?;
        match self.count() {
            Ok(()) => Ok(true),
            // Somebody else was faster.
            Err(Refusal::Consumed) => {
                self.forget();
                Ok(true)
            }
            Err(refusal) => {
                self.tell_of_wait(&refusal);
                Ok(false)
            }
        }
    }

    /// Takes messages until they are enough, none comes or the source fails. Messages that were counted before are
    /// passed over.
    fn gather(&mut self, wait: Duration) {
        let (mut bytes, mut wait) = (0_usize, wait);
        for _ in 0..MESSAGES_MAX {
            if bytes >= BYTES_MAX {
                break;
            }
            let message = match self.source.next(wait) {
                Ok(Some(message)) => message,
                Ok(None) => break,
                Err(error) => {
                    self.fail(&error);
                    self.fault = Some(error);
                    break;
                }
            };
            wait = Duration::ZERO;
            let place = (message.topic.clone(), message.partition);
            let Some(place) = self.places.get_mut(&place) else {
                continue;
            };
            if message.offset >= place.read {
                place.read = message.offset.saturating_add(1);
                bytes = bytes.saturating_add(message.bytes());
                self.waiting.push_back(message);
            }
        }
    }

    /// Goes behind what is at the end of partitions and no message, such as marks of transactions. Otherwise these
    /// would look as if they waited, and as lost once retention removes them.
    fn pass_marks(&mut self) -> Result<(), SourceError> {
        let mut read = ReadMessages::new(self.state.store().schema());
        for (key, next) in self.source.passed()? {
            if let Some(place) = self.places.get(&key).filter(|place| next > place.read) {
                read.steps.insert(key, (place.step(next), 0));
            }
        }
        if read.steps.is_empty() {
            return Ok(());
        }
        self.check_topics(read.steps.keys().map(|(topic, _)| topic.clone()).collect())?;
        match self.submit(&mut read, &mut Submission::default()) {
            Ok(()) => self.counted(&read),
            Err(Refusal::Consumed) => self.forget(),
            // Nothing is lost, and the next turn tries it again.
            Err(_) => {}
        }
        Ok(())
    }

    /// Counts the messages that wait. Fails where the store takes none now; the rest waits on.
    fn count(&mut self) -> Result<(), Refusal> {
        while !self.waiting.is_empty() {
            let Begun {
                mut read,
                mut submission,
                tries,
            } = self.begun.take().unwrap_or_else(|| Begun::new(self.read()));
            match self.submit(&mut read, &mut submission) {
                Ok(()) => {
                    drop(self.waiting.drain(..read.messages));
                    self.most = MESSAGES_MAX;
                    self.counted(&read);
                }
                Err(Refusal::TooLarge { .. } | Refusal::TooLargeForLog { .. }) if self.most > 0 => {
                    self.most = read.messages / 2;
                }
                // Another strand may declare something else, and lack what the messages name, for as long as it likes.
                Err(Refusal::Redeclared) if !self.is_declared_so(&read) => {}
                // Parts that count are not sent again: another strand would log all of it once more as duplicates.
                Err(refusal)
                    if takes_later(&refusal) && submission.has_begun() && tries < TRIES =>
                {
                    self.begun = Some(Begun {
                        read,
                        submission,
                        tries: tries + 1,
                    });
                    return Err(refusal);
                }
                Err(refusal) => {
                    // They may have been too large for the log together with what others sent.
                    self.most = (read.messages / 2).max(1);
                    return Err(refusal);
                }
            }
        }
        Ok(())
    }

    /// True where messages would be read as they were.
    fn is_declared_so(&self, read: &ReadMessages) -> bool {
        Arc::ptr_eq(&read.declared, &self.state.store().schema())
    }

    /// Reads the first messages that wait. Where even one was too large for the store, that one is skipped.
    fn read(&self) -> ReadMessages {
        let (schema, rules) = (self.state.store().schema(), self.state.writes());
        let by = By {
            rules: &rules,
            schema: &schema,
            now: self.state.now(),
        };
        let mut read = ReadMessages::new(Arc::clone(&schema));
        let messages = self.waiting.iter().take(self.most.max(1));
        for (index, message) in messages.enumerate() {
            read.messages = index + 1;
            let key = (message.topic.clone(), message.partition);
            let topic = self.topics.iter().find(|of| of.name == message.topic);
            let (Some(topic), Some(place)) = (topic, self.places.get(&key)) else {
                continue;
            };
            let (good, bad) = match self.most {
                0 => (Vec::new(), vec![Bad::of_memory(message)]),
                _ => message::read(message, topic.format, &by),
            };
            read.good.extend(good);
            read.bad.extend(bad);
            let next = message.offset.saturating_add(1);
            let step = read.steps.entry(key);
            let (step, messages) = step.or_insert_with(|| (place.step(next), 0));
            step.to.next = next;
            *messages += 1;
            if read.good.len() + read.bad.len() >= ITEMS_MAX {
                break;
            }
        }
        read
    }

    /// Has what was read counted, without what the store refuses of it.
    fn submit(&self, read: &mut ReadMessages, submission: &mut Submission) -> Result<(), Refusal> {
        loop {
            let refused = read.bad.iter().filter_map(|bad| bad.refused.clone());
            let confirming = read.good.iter().enumerate();
            let batch = Batch {
                identity: self.state.access.identity_without_key(),
                increments: read.good.iter().map(|of| of.increment.clone()).collect(),
                confirming: confirming
                    .filter_map(|(index, of)| Some((index, of.reservation?)))
                    .collect(),
                declared: Some(Arc::clone(&read.declared)),
                refused: refused.collect(),
                consumed: read.steps.values().map(|(step, _)| step.clone()).collect(),
                ..Batch::default()
            };
            let submitted = self.state.submit(submission, batch);
            match self.runtime.block_on(submitted) {
                Ok(counted) => {
                    Outcomes::new().count(&counted.accepted);
                    return Ok(());
                }
                Err(Refusal::Items(wrong)) => read.refuse(&wrong),
                Err(refusal) => return Err(refusal),
            }
        }
    }

    /// Notes that messages are counted.
    fn counted(&mut self, read: &ReadMessages) {
        for (key, (step, messages)) in &read.steps {
            self.pass_by(&key.0);
            metrics::counter!(MESSAGES, "topic" => key.0.clone()).increment(*messages);
            if let Some(place) = self.places.get_mut(key) {
                place.from = Some(step.to.next);
                place.read = place.read.max(step.to.next);
            }
        }
        for bad in &read.bad {
            let MessagePlace {
                topic,
                partition,
                offset,
            } = &*bad.place;
            metrics::counter!(SKIPPED, "topic" => topic.clone(), "reason" => bad.reason)
                .increment(1);
            let detail: String = bad.detail.chars().take(SHOWN_MAX).collect();
            self.state.admin.consuming.note(topic, |standing| {
                standing.last_skipped =
                    Some(format!("partition {partition}, offset {offset}: {detail}"));
            });
            if let Some(items) = SKIPS.due() {
                tracing::warn!(
                    items,
                    ?topic,
                    partition,
                    offset,
                    reason = bad.reason,
                    ?detail,
                    "items of a topic were not counted (told once a minute at most, with one of them)"
                );
            }
        }
        let topics: BTreeSet<&str> = read.steps.keys().map(|(topic, _)| &**topic).collect();
        topics.into_iter().for_each(|topic| self.tell(topic));
    }

    fn tell_of_wait(&mut self, refusal: &Refusal) {
        let topics: BTreeSet<String> = self.waiting.iter().map(|of| of.topic.clone()).collect();
        for topic in topics {
            self.note_passing(&topic, refusal.to_string());
        }
    }

    /// True where a time is as long past as there is between two looks, or there is none.
    fn is_past(&self, at_ms: Option<i64>) -> bool {
        at_ms.is_none_or(|at_ms| self.elapsed_ms().saturating_sub(at_ms) >= LOOK_MS)
    }

    fn elapsed_ms(&self) -> i64 {
        self.state.store().world().clock.elapsed_ms()
    }

    fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    fn pause(&self) {
        let until = Instant::now() + PAUSE;
        while !self.is_stopped() && Instant::now() < until {
            thread::sleep(PAUSE / 10);
        }
    }
}

/// Messages that were consumed, skipped ones too, by topic.
pub(crate) const MESSAGES: &str = "tallyring_kafka_in_messages_total";
/// Items that were not counted, by topic and reason.
pub(crate) const SKIPPED: &str = "tallyring_kafka_in_skipped_total";

static SKIPS: Seldom = Seldom::untold();
static FAULTS: Seldom = Seldom::untold();

/// Tries of the same messages after which they are read again, and fewer of them.
const TRIES: u32 = 100;

/// Messages of which some strands have counted their part.
struct Begun {
    read: ReadMessages,
    submission: Submission,
    /// How often they were tried.
    tries: u32,
}

impl Begun {
    fn new(read: ReadMessages) -> Self {
        Self {
            read,
            submission: Submission::default(),
            tries: 0,
        }
    }
}

/// True where a strand took nothing and may take the same later.
fn takes_later(refusal: &Refusal) -> bool {
    use Refusal::{Busy, DiskFull, LogFull, Unavailable};
    matches!(refusal, Busy | DiskFull | LogFull { .. } | Unavailable(_))
}

/// Messages that were read.
struct ReadMessages {
    messages: usize,
    good: Vec<Good>,
    bad: Vec<Bad>,
    /// How far they take each partition, and how many messages of it they are.
    steps: BTreeMap<(String, u32), (Advance, u64)>,
    /// The schema by which they were read.
    declared: Arc<Schema>,
}

impl ReadMessages {
    fn new(declared: Arc<Schema>) -> Self {
        Self {
            messages: 0,
            good: Vec::new(),
            bad: Vec::new(),
            steps: BTreeMap::new(),
            declared,
        }
    }

    /// Leaves out what the store refused.
    fn refuse(&mut self, wrong: &[WrongItem]) {
        for item in wrong {
            let Some(good) = self.good.get(item.index) else {
                continue;
            };
            let problem = Problem::from(item);
            let bad = Bad {
                refused: refused_by_store(item, &problem),
                ..Bad::new(&good.place, "refused", problem.sentence())
            };
            self.bad.push(bad);
        }
        leave_out(&mut self.good, wrong);
    }
}
