//! One partition of a Kafka topic, as the log wants it.
//!
//! The client has threads of its own, so nothing here is asynchronous: a message is told of on a channel.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::future::Future;
use std::io;
use std::ops::Range;
use std::pin::pin;
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, SyncSender};
use std::task::{Context, Poll, Wake};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

use rdkafka::admin::{AdminClient, AdminOptions, NewTopic, ResourceSpecifier, TopicReplication};
use rdkafka::client::DefaultClientContext;
use rdkafka::config::ClientConfig;
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::error::{KafkaError, RDKafkaErrorCode as Code};
use rdkafka::message::{BorrowedMessage, Message as _};
use rdkafka::metadata::MetadataPartition;
use rdkafka::producer::{BaseRecord, DeliveryResult, ProducerContext, ThreadedProducer};
use rdkafka::{ClientContext, Offset, TopicPartitionList};
use tallyring_realtime::oplog::{Message, Owner, Topic, TopicError, TopicReader, TopicWriter};

use crate::check::{REPLICAS, TopicFacts};
use crate::connect::{Fault, client, explained, fault};
use crate::kafka_settings::KafkaSettings;
use crate::settings::MESSAGE_BYTES_MAX;

/// The only partition.
const PARTITION: i32 = 0;
/// How long a broker may take for one answer.
pub(crate) const ANSWER_WAIT: Duration = Duration::from_secs(5);
/// How long the topic is looked for: a broker that leads the partition may have died just now.
const OPEN_WAIT: Duration = Duration::from_secs(30);
/// How long a setting must seem to be at fault: a broker that starts or stops just now may look alike, once.
const FAULT_WAIT: Duration = Duration::from_secs(5);
const OPEN_PAUSE: Duration = Duration::from_millis(200);
/// The client gives up a message after this time.
const MESSAGE_WAIT: Duration = Duration::from_secs(8);
/// How long the client may take to tell of a message, its own time for it included.
const TOLD_WAIT: Duration = Duration::from_secs(10);
/// The topic's setting for that.
const LIMIT: &str = "max.message.bytes";
/// Bytes that Kafka puts around a message at most, its key included.
const AROUND_BYTES: usize = 4 << 10;

/// How long a topic keeps its messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kept {
    /// For ever: it has a log.
    ForEver,
    /// For an hour: it tells of now.
    AnHour,
    /// The newest message for ever, and those before it for some time.
    Newest,
}

/// The only partition of a topic.
pub struct KafkaTopic {
    client: ClientConfig,
    topic: String,
    message_bytes_max: usize,
    /// Asks for the range.
    consumer: BaseConsumer,
}

impl KafkaTopic {
    /// Makes a topic with a replica on each of that many brokers, up to three; false where there is one of that name,
    /// which stays as it is. No replica that lacks a message becomes the leader.
    ///
    /// # Errors
    /// When the brokers refuse, or do not answer: whether there is a topic is unknown then.
    pub fn create(
        settings: &KafkaSettings,
        (topic, kept): (&str, Kept),
        brokers: usize,
    ) -> io::Result<bool> {
        let replicas = i32::try_from(brokers.clamp(1, REPLICAS)).expect("BUG: it is small");
        let admin: AdminClient<DefaultClientContext> =
            client(settings)?.create().map_err(io::Error::other)?;
        let in_sync = (replicas / 2 + 1).to_string();
        let bytes_max = MESSAGE_BYTES_MAX.to_string();
        let (cleanup, retention_ms) = match kept {
            Kept::ForEver => ("delete", "-1"),
            Kept::AnHour => ("delete", "3600000"),
            Kept::Newest => ("compact", "-1"),
        };
        let wanted = NewTopic::new(topic, 1, TopicReplication::Fixed(replicas))
            .set("cleanup.policy", cleanup)
            .set("retention.ms", retention_ms)
            .set("retention.bytes", "-1")
            .set("unclean.leader.election.enable", "false")
            .set("min.insync.replicas", &in_sync)
            .set(LIMIT, &bytes_max);
        let made = wait(admin.create_topics([&wanted], &admin_options()));
        match made.map_err(io::Error::other)?.pop() {
            Some(Ok(_)) => Ok(true),
            Some(Err((_, Code::TopicAlreadyExists))) => Ok(false),
            Some(Err((_, code))) => Err(io::Error::other(format!(
                "the topic `{topic}` cannot be made: {code}"
            ))),
            None => Err(io::Error::other("the brokers told of no topic")),
        }
    }

    /// The number of brokers, and what they say of a topic; none where they know none of that name.
    ///
    /// # Errors
    /// When no broker answers, or the topic has no leader.
    pub fn describe(
        settings: &KafkaSettings,
        topic: &str,
    ) -> io::Result<(usize, Option<TopicFacts>)> {
        let client = client(settings)?;
        let explained = |error| explained(settings, topic, error);
        let consumer = consumer(&client).map_err(explained)?;
        let told = consumer.fetch_metadata(Some(topic), ANSWER_WAIT);
        let told = told.map_err(explained)?;
        let brokers = told.brokers().len();
        let found = told.topics().iter().find(|found| found.name() == topic);
        let Some(found) = found.filter(|found| found.error().is_none()) else {
            return Ok((brokers, None));
        };
        let partitions = found.partitions();
        let least = |of: &dyn Fn(&MetadataPartition) -> usize| {
            partitions.iter().map(of).min().unwrap_or_default()
        };
        let facts = TopicFacts {
            partitions: partitions.len(),
            replicas: least(&|partition| partition.replicas().len()),
            in_sync: least(&|partition| partition.isr().len()),
            settings: settings_of(&client, topic)?,
        };
        Ok((brokers, Some(facts)))
    }

    /// Looks for the topic for half a minute, and reads its limit.
    ///
    /// # Errors
    /// When no broker answers, or there is no such topic, or it has not one partition. Where brokers refuse a setting,
    /// that is told within seconds.
    pub fn open(settings: &KafkaSettings, topic: &str) -> io::Result<Self> {
        let client = client(settings)?;
        let consumer = consumer(&client).map_err(|error| explained(settings, topic, error))?;
        find(&consumer, settings, topic)?;
        let message_bytes_max = limit(&client, topic)?.min(MESSAGE_BYTES_MAX);
        Ok(Self {
            client,
            topic: topic.to_owned(),
            message_bytes_max: message_bytes_max.saturating_sub(AROUND_BYTES),
            consumer,
        })
    }
}

impl fmt::Debug for KafkaTopic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the topic {}", self.topic)
    }
}

impl Topic for KafkaTopic {
    fn writer(&self, owner: Owner) -> Result<Box<dyn TopicWriter>, TopicError> {
        // The log makes groups itself.
        let producer = producer(self.client.clone().set("linger.ms", "0")).map_err(unreachable)?;
        Ok(Box::new(KafkaWriter {
            producer,
            topic: self.topic.clone(),
            owner,
            message_bytes_max: self.message_bytes_max,
            sent: VecDeque::new(),
        }))
    }

    fn reader(&self, offset: u64) -> Result<Box<dyn TopicReader>, TopicError> {
        let consumer = consumer(&self.client).map_err(unreachable)?;
        let mut from = TopicPartitionList::new();
        from.add_partition_offset(&self.topic, PARTITION, Offset::Offset(signed(offset)))
            .and_then(|()| consumer.assign(&from))
            .map_err(unreachable)?;
        Ok(Box::new(KafkaReader {
            consumer,
            topic: self.topic.clone(),
            next: offset,
        }))
    }

    fn range(&self) -> Result<Range<u64>, TopicError> {
        range(&self.consumer, &self.topic)
    }

    fn remove_before(&self, offset: u64) -> Result<(), TopicError> {
        let admin: AdminClient<DefaultClientContext> = self.client.create().map_err(unreachable)?;
        let mut until = TopicPartitionList::new();
        until
            .add_partition_offset(&self.topic, PARTITION, Offset::Offset(signed(offset)))
            .map_err(unreachable)?;
        let removed = wait(admin.delete_records(&until, &admin_options())).map_err(unreachable)?;
        let mut partitions = removed.elements().into_iter();
        partitions
            .try_for_each(|partition| partition.error())
            .map_err(unreachable)
    }

    fn message_bytes_max(&self) -> usize {
        self.message_bytes_max
    }
}

/// Tells on a channel, for each message, the offset or the reason that there is none.
pub(crate) struct Telling;

/// Where the client tells of a message.
pub(crate) type Told = Receiver<Result<i64, String>>;

impl ClientContext for Telling {}

impl ProducerContext for Telling {
    type DeliveryOpaque = Box<SyncSender<Result<i64, String>>>;

    fn delivery(&self, delivered: &DeliveryResult<'_>, tell: Self::DeliveryOpaque) {
        // A writer that is gone asks for nothing.
        let _ = tell.try_send(match delivered {
            Ok(message) => Ok(message.offset()),
            Err((error, _)) => Err(error.to_string()),
        });
    }
}

struct KafkaWriter {
    producer: ThreadedProducer<Telling>,
    topic: String,
    owner: Owner,
    message_bytes_max: usize,
    /// For each message that was not told of yet, oldest first, where the client will tell.
    sent: VecDeque<Told>,
}

impl TopicWriter for KafkaWriter {
    fn send(&mut self, bytes: &[u8]) -> Result<(), TopicError> {
        let too_large = TopicError::TooLarge { bytes: bytes.len() };
        if bytes.len() > self.message_bytes_max {
            return Err(too_large);
        }
        let (tell, told) = mpsc::sync_channel(1);
        let key = self.owner.key();
        let record = BaseRecord::with_opaque_to(&self.topic, Box::new(tell))
            .partition(PARTITION)
            .key(&key[..])
            .payload(bytes);
        match self.producer.send(record) {
            Ok(()) => {
                self.sent.push_back(told);
                Ok(())
            }
            Err((KafkaError::MessageProduction(Code::MessageSizeTooLarge), _)) => Err(too_large),
            Err((error, _)) => Err(TopicError::Unknown(error.to_string())),
        }
    }

    fn told(&mut self) -> Result<Option<u64>, TopicError> {
        let told = self.sent.pop_front();
        let told = told.expect("BUG: a message was sent that was not told of");
        // An offset below zero comes for a message that the broker had already.
        let offset = told_of(&told).map_err(TopicError::Unknown)?;
        Ok(u64::try_from(offset).ok())
    }
}

/// The offset of a message, once the brokers have it.
pub(crate) fn told_of(told: &Told) -> Result<i64, String> {
    let told = told.recv_timeout(TOLD_WAIT);
    told.unwrap_or_else(|_| Err("the client does not tell".into()))
}

struct KafkaReader {
    consumer: BaseConsumer,
    topic: String,
    /// The offset that is wanted.
    next: u64,
}

impl TopicReader for KafkaReader {
    fn next(&mut self, wait: Duration) -> Result<Option<Message>, TopicError> {
        let read = match poll(&self.consumer, wait) {
            Ok(Some(read)) => read,
            Ok(None) => return Ok(None),
            Err(KafkaError::MessageConsumption(Code::OffsetOutOfRange | Code::AutoOffsetReset)) => {
                return Err(self.out_of_range());
            }
            Err(error) => return Err(unreachable(error)),
        };
        let offset = u64::try_from(read.offset()).unwrap_or(self.next);
        self.next = offset + 1;
        let key = read.key().and_then(|key| key.try_into().ok());
        Ok(Some(Message {
            offset,
            // A message of no owner counts for nobody.
            owner: Owner(u128::from_le_bytes(key.unwrap_or_default())),
            bytes: read.payload().unwrap_or_default().to_vec(),
        }))
    }
}

impl KafkaReader {
    fn out_of_range(&self) -> TopicError {
        match range(&self.consumer, &self.topic) {
            Ok(range) if self.next < range.start => TopicError::Gone {
                begins: range.start,
            },
            Ok(range) => TopicError::Unreachable(format!(
                "it ends at offset {} and was asked for {}",
                range.end, self.next
            )),
            Err(error) => error,
        }
    }
}

/// The next message of a client; none where none came for so long. The client goes on by itself when a broker comes
/// back.
pub(crate) fn poll(
    consumer: &BaseConsumer,
    wait: Duration,
) -> Result<Option<BorrowedMessage<'_>>, KafkaError> {
    let until = Instant::now() + wait;
    loop {
        let left = until.saturating_duration_since(Instant::now());
        match consumer.poll(left) {
            Some(Err(KafkaError::MessageConsumption(code))) if is_passing(code) => {}
            polled => return polled.transpose(),
        }
        if until <= Instant::now() {
            return Ok(None);
        }
    }
}

fn is_passing(code: Code) -> bool {
    matches!(
        code,
        Code::AllBrokersDown
            | Code::BrokerTransportFailure
            | Code::LeaderNotAvailable
            | Code::NotLeaderForPartition
            | Code::OperationTimedOut
            | Code::Resolve
    )
}

/// A producer whose messages are in all replicas that are in step, each once and in order, before it tells of them.
pub(crate) fn producer(client: &mut ClientConfig) -> Result<ThreadedProducer<Telling>, KafkaError> {
    client
        .set("acks", "all")
        .set("enable.idempotence", "true")
        .set("compression.type", "zstd")
        .set("message.timeout.ms", MESSAGE_WAIT.as_millis().to_string())
        .set("message.max.bytes", MESSAGE_BYTES_MAX.to_string())
        .create_with_context(Telling)
}

fn consumer(client: &ClientConfig) -> Result<BaseConsumer, KafkaError> {
    client
        .clone()
        // The client wants a name; no group is ever joined and no offset committed.
        .set("group.id", "tallyring")
        .set("enable.auto.commit", "false")
        .set("auto.offset.reset", "error")
        .set("isolation.level", "read_uncommitted")
        // A message that rotted is an error here, where it would be one that does not count for this reader alone.
        .set("check.crcs", "true")
        .set("fetch.wait.max.ms", "100")
        .set("fetch.error.backoff.ms", "50")
        .set("queued.max.messages.kbytes", "65536")
        .create()
}

/// Looks for the topic until it has a leader, or a setting is at fault.
fn find(consumer: &BaseConsumer, settings: &KafkaSettings, topic: &str) -> io::Result<()> {
    let begun = Instant::now();
    // Since when each look has found a setting at fault.
    let mut faulty = None;
    loop {
        let before = faulty.take();
        let (until, why) = match consumer.fetch_metadata(Some(topic), ANSWER_WAIT) {
            Err(error) => match fault(settings, topic) {
                Some(Fault {
                    error,
                    may_pass: false,
                }) => {
                    let since = *faulty.insert(before.unwrap_or_else(Instant::now));
                    (since + FAULT_WAIT, error.to_string())
                }
                Some(Fault { error, .. }) => (begun + OPEN_WAIT, error.to_string()),
                None => (begun + OPEN_WAIT, error.to_string()),
            },
            Ok(found) => match found.topics().iter().find(|found| found.name() == topic) {
                Some(found) if found.error().is_none() => match found.partitions() {
                    [one] if one.error().is_none() => return Ok(()),
                    [_] => (begun + OPEN_WAIT, "its partition has no leader".to_owned()),
                    partitions => {
                        let partitions = partitions.len();
                        return Err(io::Error::other(format!(
                            "the topic `{topic}` has {partitions} partitions; make one that has 1"
                        )));
                    }
                },
                // A broker hears of a new topic within moments.
                _ => (begun + ANSWER_WAIT, "the brokers do not know it".to_owned()),
            },
        };
        if until <= Instant::now() {
            return Err(io::Error::new(
                io::ErrorKind::TimedOut,
                format!("the topic `{topic}` cannot be opened: {why}"),
            ));
        }
        thread::sleep(OPEN_PAUSE);
    }
}

/// The topic's settings by name.
fn settings_of(client: &ClientConfig, topic: &str) -> io::Result<BTreeMap<String, String>> {
    let admin: AdminClient<DefaultClientContext> = client.create().map_err(io::Error::other)?;
    let described = [ResourceSpecifier::Topic(topic)];
    let described = wait(admin.describe_configs(&described, &admin_options()));
    let told = described.map_err(io::Error::other)?.pop();
    let told = told.ok_or_else(|| io::Error::other("no settings were told"))?;
    let told = told.map_err(|code| io::Error::other(code.to_string()))?;
    let settings = told.entries.into_iter();
    let settings = settings.filter_map(|entry| Some((entry.name, entry.value?)));
    Ok(settings.collect())
}

/// The topic's limit for a message with all around it, bytes.
fn limit(client: &ClientConfig, topic: &str) -> io::Result<usize> {
    let settings = settings_of(client, topic)?;
    let limit = settings.get(LIMIT).and_then(|limit| limit.parse().ok());
    limit
        .ok_or_else(|| io::Error::other(format!("the topic `{topic}` does not tell its `{LIMIT}`")))
}

fn range(consumer: &BaseConsumer, topic: &str) -> Result<Range<u64>, TopicError> {
    let range = consumer.fetch_watermarks(topic, PARTITION, ANSWER_WAIT);
    let (begin, end) = range.map_err(unreachable)?;
    match (u64::try_from(begin), u64::try_from(end)) {
        (Ok(begin), Ok(end)) => Ok(begin..end),
        _ => Err(TopicError::Unreachable(format!(
            "it was told to reach from {begin} to {end}"
        ))),
    }
}

fn admin_options() -> AdminOptions {
    AdminOptions::new()
        .request_timeout(Some(ANSWER_WAIT))
        .operation_timeout(Some(ANSWER_WAIT))
}

fn unreachable(error: KafkaError) -> TopicError {
    TopicError::Unreachable(error.to_string())
}

/// An offset as Kafka has it. Those above 63 bits are none.
pub(crate) fn signed(offset: u64) -> i64 {
    i64::try_from(offset).unwrap_or(i64::MAX)
}

/// Waits for an answer that a thread of the client gives; works on every thread.
fn wait<T>(answer: impl Future<Output = T>) -> T {
    struct Unpark(Thread);
    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    let waker = Arc::new(Unpark(thread::current())).into();
    let mut answer = pin!(answer);
    loop {
        match answer.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(answer) => return answer,
            Poll::Pending => thread::park(),
        }
    }
}
