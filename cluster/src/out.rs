//! Messages for other programs: a topic of what is told, and a topic of how far.

use std::fmt;
use std::io;
use std::sync::mpsc;
use std::time::Duration;

use rdkafka::message::{Header, OwnedHeaders};
use rdkafka::producer::{BaseRecord, ThreadedProducer};
use tallyring_realtime::oplog::{Owner, Topic as _, TopicError, TopicWriter};

use crate::kafka::{KafkaTopic, Kept, Telling, client, producer, told_of};
use crate::settings::{KafkaSettings, TopicName};

/// The name of the header with the id of a message.
const ID: &str = "id";
/// Compaction keeps the newest message of one key, so all messages of progress have one.
const PROGRESS_KEY: Owner = Owner(0);
/// Replicas of the topic of progress, where there are as many brokers.
const REPLICAS: usize = 3;
/// How long the message of progress may take to come.
const READ_WAIT: Duration = Duration::from_secs(10);

/// A message for other programs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OutMessage {
    /// Messages of one key are in one partition, in order.
    pub key: String,
    /// Messages with the same id say the same.
    pub id: String,
    /// The text.
    pub value: Vec<u8>,
}

/// A topic for other programs. The topic `<name>.progress` beside it says how far its messages reach.
pub struct OutTopic {
    producer: ThreadedProducer<Telling>,
    name: String,
    progress: KafkaTopic,
    progress_writer: Box<dyn TopicWriter>,
}

impl OutTopic {
    /// Opens the topic, and makes that of the progress where there is none.
    ///
    /// # Errors
    /// When the brokers do not answer, or do not know the topic: its partitions are a matter of its readers, so nothing
    /// here makes it.
    pub fn open(settings: &KafkaSettings, name: &TopicName) -> io::Result<Self> {
        let name = name.as_str().to_owned();
        let (brokers, found) = KafkaTopic::describe(settings, &name)?;
        if found.is_none() {
            return Err(io::Error::other(format!(
                "the brokers do not know the topic `{name}`: make it, with as many partitions as its readers want"
            )));
        }
        let progress = format!("{name}.progress");
        let replicas = i32::try_from(brokers.clamp(1, REPLICAS)).unwrap_or(1);
        KafkaTopic::create(settings, (&progress, Kept::Newest), replicas)?;
        let progress = KafkaTopic::open(settings, &progress)?;
        // As the client of Java spreads keys, so that readers may join topics.
        let mut client = client(settings);
        let client = client.set("partitioner", "murmur2_random");
        Ok(Self {
            producer: producer(client).map_err(io::Error::other)?,
            name,
            progress_writer: progress.writer(PROGRESS_KEY).map_err(other)?,
            progress,
        })
    }

    /// The newest progress; none where nothing was kept.
    ///
    /// # Errors
    /// When the brokers do not answer.
    pub fn progress(&self) -> io::Result<Option<Vec<u8>>> {
        let range = self.progress.range().map_err(other)?;
        if range.is_empty() {
            return Ok(None);
        }
        let mut reader = self.progress.reader(range.end - 1).map_err(other)?;
        match reader.next(READ_WAIT).map_err(other)? {
            Some(message) => Ok(Some(message.bytes)),
            None => Err(io::Error::new(
                io::ErrorKind::TimedOut,
                format!(
                    "the newest message of `{}.progress` does not come",
                    self.name
                ),
            )),
        }
    }

    /// Sends messages, and returns when all replicas that are in step have them.
    ///
    /// # Errors
    /// When the brokers refuse one, or do not answer: then some may be there.
    pub fn send(&mut self, messages: &[OutMessage]) -> io::Result<()> {
        let mut sent = Vec::with_capacity(messages.len());
        for message in messages {
            let (tell, told) = mpsc::sync_channel(1);
            let id = Header {
                key: ID,
                value: Some(&message.id),
            };
            let record = BaseRecord::with_opaque_to(&self.name, Box::new(tell))
                .key(&message.key)
                .payload(&message.value)
                .headers(OwnedHeaders::new().insert(id));
            let taken = self.producer.send(record);
            taken.map_err(|(error, _)| io::Error::other(error))?;
            sent.push(told);
        }
        for told in &sent {
            told_of(told).map_err(io::Error::other)?;
        }
        Ok(())
    }

    /// Keeps the progress in place of the one before.
    ///
    /// # Errors
    /// When the brokers do not take it.
    pub fn keep(&mut self, progress: &[u8]) -> io::Result<()> {
        self.progress_writer.send(progress).map_err(other)?;
        self.progress_writer.told().map(drop).map_err(other)
    }
}

impl fmt::Debug for OutTopic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the topic {}", self.name)
    }
}

fn other(error: TopicError) -> io::Error {
    io::Error::other(error.to_string())
}
