//! One partition of a Kafka topic, as the log of a strand wants it.
//!
//! The client has threads of its own, so nothing here is asynchronous: a message is told of on a channel.

mod admin;

use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::ops::Range;
use std::sync::mpsc::{self, Receiver, SyncSender};
use std::thread;
use std::time::{Duration, Instant};

use rdkafka::admin::AdminClient;
use rdkafka::client::DefaultClientContext;
use rdkafka::config::ClientConfig;
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::error::{KafkaError, RDKafkaErrorCode as Code};
use rdkafka::message::{BorrowedMessage, Message as _};
use rdkafka::metadata::MetadataPartition;
use rdkafka::producer::{BaseRecord, DeliveryResult, ProducerContext, ThreadedProducer};
use rdkafka::{ClientContext, Offset, TopicPartitionList};
use tallyring_realtime::oplog::{Message, Owner, Topic, TopicError, TopicReader, TopicWriter};

use crate::check::unfit_partitions;
use crate::connect::{Fault, client, explained, fault};
use crate::kafka_settings::KafkaSettings;
use crate::settings::MESSAGE_BYTES_MAX;

pub use admin::Kept;
use admin::{admin_options, limit, wait};

/// How long a broker may take for one answer.
pub(crate) const ANSWER_WAIT: Duration = Duration::from_secs(5);
/// How long the topic is looked for: a broker that leads the partition may have died just now.
const OPEN_WAIT: Duration = Duration::from_secs(30);
/// How long a setting must seem to be at fault: a broker that starts or stops just now may look alike, once.
const FAULT_WAIT: Duration = Duration::from_secs(5);
const OPEN_PAUSE: Duration = Duration::from_millis(200);
/// The client gives up a message after this time. Where a broker dies that leads the partition and the quorum of the
/// brokers, they choose others within some ten seconds (`broker.session.timeout.ms`, 6 to 9 s, and an election). A
/// message that is given up costs more: its fate is unknown, so the writer follows until it has read the log.
const MESSAGE_WAIT: Duration = Duration::from_secs(13);
/// How long the client may take to tell of a message, its own time for it included.
const TOLD_WAIT: Duration = Duration::from_secs(15);
/// Bytes that Kafka puts around a message at most, its key included.
const AROUND_BYTES: usize = 4 << 10;

/// A partition of a topic that has so many.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Partition {
    /// Its number, from 0.
    pub number: usize,
    /// The partitions of the topic.
    pub of: usize,
}

impl Partition {
    /// The partition of a topic that has one.
    pub const ONLY: Self = Self { number: 0, of: 1 };

    fn id(self) -> i32 {
        i32::try_from(self.number).unwrap_or(i32::MAX)
    }
}

/// One partition of a topic.
pub struct KafkaTopic {
    client: ClientConfig,
    topic: String,
    partition: Partition,
    message_bytes_max: usize,
    /// Asks for the range.
    consumer: BaseConsumer,
}

impl KafkaTopic {
    /// Looks for the topic for half a minute, and reads its limit.
    ///
    /// # Errors
    /// When no broker answers, or there is no such topic, or it has another number of partitions. Where brokers refuse
    /// a setting, that is told within seconds.
    pub fn open(settings: &KafkaSettings, topic: &str, partition: Partition) -> io::Result<Self> {
        let client = client(settings)?;
        let consumer = consumer(&client).map_err(|error| explained(settings, topic, error))?;
        find(&consumer, settings, (topic, partition))?;
        let message_bytes_max = limit(&client, topic)?.min(MESSAGE_BYTES_MAX);
        Ok(Self {
            client,
            topic: topic.to_owned(),
            partition,
            message_bytes_max: message_bytes_max.saturating_sub(AROUND_BYTES),
            consumer,
        })
    }
}

impl fmt::Debug for KafkaTopic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.partition.of > 1 {
            write!(f, "partition {} of ", self.partition.number)?;
        }
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
            partition: self.partition,
            owner,
            message_bytes_max: self.message_bytes_max,
            sent: VecDeque::new(),
        }))
    }

    fn reader(&self, offset: u64) -> Result<Box<dyn TopicReader>, TopicError> {
        let consumer = consumer(&self.client).map_err(unreachable)?;
        let mut from = TopicPartitionList::new();
        from.add_partition_offset(
            &self.topic,
            self.partition.id(),
            Offset::Offset(signed(offset)),
        )
        .and_then(|()| consumer.assign(&from))
        .map_err(unreachable)?;
        Ok(Box::new(KafkaReader {
            consumer,
            topic: self.topic.clone(),
            partition: self.partition,
            next: offset,
        }))
    }

    fn range(&self) -> Result<Range<u64>, TopicError> {
        range(&self.consumer, (&self.topic, self.partition))
    }

    fn remove_before(&self, offset: u64) -> Result<(), TopicError> {
        let admin: AdminClient<DefaultClientContext> = self.client.create().map_err(unreachable)?;
        let mut until = TopicPartitionList::new();
        until
            .add_partition_offset(
                &self.topic,
                self.partition.id(),
                Offset::Offset(signed(offset)),
            )
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
    partition: Partition,
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
            .partition(self.partition.id())
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
    partition: Partition,
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
        match range(&self.consumer, (&self.topic, self.partition)) {
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
fn find(
    consumer: &BaseConsumer,
    settings: &KafkaSettings,
    (topic, partition): (&str, Partition),
) -> io::Result<()> {
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
                Some(found) if found.error().is_none() => {
                    let partitions = found.partitions();
                    if let Some(unfit) = unfit_partitions(topic, partitions.len(), partition.of) {
                        return Err(io::Error::other(unfit));
                    }
                    let is_wanted = |known: &&MetadataPartition| known.id() == partition.id();
                    if let Some(wanted) = partitions.iter().find(is_wanted)
                        && wanted.error().is_none()
                    {
                        return Ok(());
                    }
                    (begun + OPEN_WAIT, "its partition has no leader".to_owned())
                }
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

fn range(
    consumer: &BaseConsumer,
    (topic, partition): (&str, Partition),
) -> Result<Range<u64>, TopicError> {
    let until = Instant::now() + ANSWER_WAIT;
    let (begin, end) = loop {
        match consumer.fetch_watermarks(topic, partition.id(), ANSWER_WAIT) {
            // The client has just learned which broker it spoke to, and what was asked by then has no answer.
            Err(KafkaError::MetadataFetch(Code::DestroyBroker)) if Instant::now() < until => {
                thread::sleep(OPEN_PAUSE);
            }
            told => break told.map_err(unreachable)?,
        }
    };
    match (u64::try_from(begin), u64::try_from(end)) {
        (Ok(begin), Ok(end)) => Ok(begin..end),
        _ => Err(TopicError::Unreachable(format!(
            "it was told to reach from {begin} to {end}"
        ))),
    }
}

fn unreachable(error: KafkaError) -> TopicError {
    TopicError::Unreachable(error.to_string())
}

/// An offset as Kafka has it. Those above 63 bits are none.
pub(crate) fn signed(offset: u64) -> i64 {
    i64::try_from(offset).unwrap_or(i64::MAX)
}
