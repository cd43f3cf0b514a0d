//! Topics of Kafka that the server consumes, as the consumer wants them.
//!
//! No consumer group is joined and no offset is committed: the caller says where each partition is read.

mod describe;

use std::collections::BTreeMap;
use std::io;
use std::ops::Range;
use std::time::Duration;

use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::error::KafkaError;
use rdkafka::message::{BorrowedMessage, Headers, Message as _};
use rdkafka::{Offset, TopicPartitionList};
use tallyring_realtime::{Source, SourceError, SourceMessage};
use tallyring_records::{Consumed, TopicPartition};

use crate::connect::{client, explained, fault};
use crate::kafka::{ANSWER_WAIT, poll, signed};
use crate::kafka_settings::KafkaSettings;

/// Memory for messages that the client has fetched ahead, KiB; one larger message is fetched alone.
const AHEAD_KIB: &str = "16384";
/// Bytes of one answer of a broker, beyond which only one message may go.
const FETCH_BYTES: &str = "8388608";

/// Topics of one Kafka cluster.
pub struct KafkaSource {
    settings: KafkaSettings,
    consumer: BaseConsumer,
    /// The id of the cluster; none until brokers told it.
    cluster: Option<String>,
    /// Positions before partitions were sought, which the client may tell for moments after it. None of a partition of
    /// which a message came since.
    stale: BTreeMap<(String, u32), u64>,
}

impl KafkaSource {
    /// Makes a client of these brokers, which need not answer yet.
    ///
    /// # Errors
    /// When the client cannot be made. The text names the setting at fault.
    pub fn new(settings: &KafkaSettings) -> io::Result<Self> {
        let consumer = client(settings)?
            // The client wants a name; no group is ever joined and no offset committed.
            .set("group.id", "tallyring")
            .set("enable.auto.commit", "false")
            .set("auto.offset.reset", "error")
            // Messages of a transaction that was aborted count for nobody.
            .set("isolation.level", "read_committed")
            .set("check.crcs", "true")
            .set("fetch.max.bytes", FETCH_BYTES)
            .set("queued.max.messages.kbytes", AHEAD_KIB)
            .create();
        Ok(Self {
            settings: settings.clone(),
            consumer: consumer.map_err(|error| explained(settings, "", error))?,
            cluster: None,
            stale: BTreeMap::new(),
        })
    }

    fn positions(&self) -> Result<BTreeMap<(String, u32), u64>, SourceError> {
        let told = self.consumer.position().map_err(failed)?;
        let positions = told.elements().into_iter().filter_map(|of| {
            let Offset::Offset(next) = of.offset() else {
                return None;
            };
            let number = u32::try_from(of.partition()).ok()?;
            Some(((of.topic().to_owned(), number), u64::try_from(next).ok()?))
        });
        Ok(positions.collect())
    }
}

impl Source for KafkaSource {
    fn partitions(&mut self, topic: &str) -> Result<Vec<TopicPartition>, SourceError> {
        let described = describe::topic(self.consumer.client(), topic);
        let described = described.map_err(|error| match fault(&self.settings, topic) {
            Some(fault) => SourceError(fault.error.to_string()),
            None => error,
        })??;
        // Asked once: the wrapper of the client never frees an answer, and the client itself asks no second time.
        if self.cluster.is_none() {
            self.cluster = self.consumer.client().fetch_cluster_id(ANSWER_WAIT);
        }
        let cluster = (self.cluster.as_ref())
            .ok_or_else(|| SourceError("the brokers do not tell their cluster".into()))?;
        let partitions = described.partitions.into_iter();
        let partitions = partitions.map(|partition| TopicPartition {
            topic: topic.to_owned(),
            topic_id: described.id.clone(),
            cluster: cluster.clone(),
            partition,
        });
        Ok(partitions.collect())
    }

    fn kept(&mut self, of: &TopicPartition) -> Result<Range<u64>, SourceError> {
        let range = self
            .consumer
            .fetch_watermarks(&of.topic, number(of), ANSWER_WAIT);
        let (begin, end) = range.map_err(failed)?;
        match (u64::try_from(begin), u64::try_from(end)) {
            (Ok(begin), Ok(end)) => Ok(begin..end),
            _ => Err(SourceError(format!(
                "partition {} was told to reach from {begin} to {end}",
                of.partition
            ))),
        }
    }

    fn seek(&mut self, to: &[Consumed]) -> Result<(), SourceError> {
        let mut wanted = TopicPartitionList::new();
        for Consumed { of, next } in to {
            let offset = Offset::Offset(signed(*next));
            wanted
                .add_partition_offset(&of.topic, number(of), offset)
                .map_err(failed)?;
        }
        let before = self.positions()?;
        self.stale.extend(before);
        self.consumer.assign(&wanted).map_err(failed)
    }

    fn next(&mut self, wait: Duration) -> Result<Option<SourceMessage>, SourceError> {
        let read = poll(&self.consumer, wait).map_err(failed)?;
        let message = read.as_ref().map(message);
        if let Some(message) = message.as_ref().filter(|_| !self.stale.is_empty()) {
            self.stale
                .remove(&(message.topic.clone(), message.partition));
        }
        Ok(message)
    }

    fn passed(&mut self) -> Result<BTreeMap<(String, u32), u64>, SourceError> {
        let mut positions = self.positions()?;
        positions.retain(|of, next| self.stale.get(of) != Some(next));
        Ok(positions)
    }
}

fn message(read: &BorrowedMessage<'_>) -> SourceMessage {
    let headers = read.headers().into_iter().flat_map(|all| all.iter());
    let headers = headers.map(|header| {
        let value = header.value.unwrap_or_default().to_vec();
        (header.key.to_owned(), value)
    });
    SourceMessage {
        topic: read.topic().to_owned(),
        partition: u32::try_from(read.partition()).unwrap_or_default(),
        offset: u64::try_from(read.offset()).unwrap_or_default(),
        at_ms: read.timestamp().to_millis().filter(|ms| *ms >= 0),
        headers: headers.collect(),
        body: read.payload().unwrap_or_default().to_vec(),
    }
}

fn number(of: &TopicPartition) -> i32 {
    i32::try_from(of.partition).unwrap_or(i32::MAX)
}

fn failed(error: KafkaError) -> SourceError {
    SourceError(error.to_string())
}
