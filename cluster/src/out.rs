//! Messages for other programs: a topic of what is told, and a topic of how far.

use std::fmt;
use std::io;
use std::sync::mpsc;
use std::time::Duration;

use rdkafka::message::{Header, OwnedHeaders};
use rdkafka::producer::{BaseRecord, ThreadedProducer};
use tallyring_realtime::oplog::{Owner, Topic as _, TopicError, TopicWriter};

use crate::check::{Standing, check_progress};
use crate::connect::client;
use crate::kafka::{KafkaTopic, Kept, Partition, Telling, producer, told_of};
use crate::kafka_settings::KafkaSettings;
use crate::settings::TopicName;

/// The name of the header with the id of a message.
const ID: &str = "id";
/// Compaction keeps the newest message of one key, so all messages of progress have one.
const PROGRESS_KEY: Owner = Owner(0);
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

/// A topic for other programs. The topic `<name>.progress` beside it says how far it was told.
pub struct OutTopic {
    producer: ThreadedProducer<Telling>,
    name: TopicName,
    progress: KafkaTopic,
    progress_writer: Box<dyn TopicWriter>,
}

impl OutTopic {
    /// Opens the topic, and makes that of the progress where there is none.
    ///
    /// # Errors
    /// When the brokers do not answer, or do not know the topic: its partitions are a matter of its readers, so nothing
    /// here makes it. When the topic of the progress does not keep its newest message for ever.
    pub fn open(settings: &KafkaSettings, name: &TopicName) -> io::Result<Self> {
        let (brokers, found) = KafkaTopic::describe(settings, name.as_str())?;
        if found.is_none() {
            return Err(io::Error::other(format!(
                "the brokers do not know the topic `{}`: make it, with as many partitions as its readers want",
                name.as_str()
            )));
        }
        let progress = name.of_progress();
        KafkaTopic::create(settings, (&progress, Kept::Newest), (1, brokers))?;
        // A broker hears of a new topic within moments: this waits for them.
        let opened = KafkaTopic::open(settings, &progress, Partition::ONLY)?;
        check(settings, &progress)?;
        // As the client of Java spreads keys, so that readers may join topics.
        let mut client = client(settings)?;
        let client = client.set("partitioner", "murmur2_random");
        Ok(Self {
            producer: producer(client).map_err(io::Error::other)?,
            name: name.clone(),
            progress_writer: opened.writer(PROGRESS_KEY).map_err(other)?,
            progress: opened,
        })
    }

    /// The newest progress; none where nothing was ever kept.
    ///
    /// # Errors
    /// When the brokers do not answer, or have removed what was kept.
    pub fn progress(&self) -> io::Result<Option<Vec<u8>>> {
        let range = self.progress.range().map_err(other)?;
        let progress = self.name.of_progress();
        match range.is_empty() {
            true if range.start == 0 => return Ok(None),
            true => {
                return Err(io::Error::other(format!(
                    "all messages of the topic `{progress}` were removed, and nobody knows how far `{}` was told; delete \
                     `{progress}`, and set kafka_out.from to the time from which on buckets may be missing",
                    self.name.as_str()
                )));
            }
            false => {}
        }
        let mut reader = self.progress.reader(range.end - 1).map_err(other)?;
        match reader.next(READ_WAIT).map_err(other)? {
            Some(message) => Ok(Some(message.bytes)),
            None => Err(io::Error::new(
                io::ErrorKind::TimedOut,
                format!("the newest message of `{progress}` does not come"),
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
            let record = BaseRecord::with_opaque_to(self.name.as_str(), Box::new(tell))
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
        write!(f, "the topic {}", self.name.as_str())
    }
}

/// Refuses a topic of progress whose messages time removes.
fn check(settings: &KafkaSettings, progress: &str) -> io::Result<()> {
    let (_, facts) = KafkaTopic::describe(settings, progress)?;
    let unknown = || io::Error::other(format!("the brokers do not know the topic `{progress}`"));
    let found = check_progress(progress, &facts.ok_or_else(unknown)?);
    match found.standing {
        Standing::Wrong => Err(io::Error::other(found.text)),
        Standing::Ok | Standing::Risk => Ok(()),
    }
}

fn other(error: TopicError) -> io::Error {
    io::Error::other(error.to_string())
}
