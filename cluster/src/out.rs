//! Messages for other programs: a topic of what is told, and a topic of how far.

use std::fmt;
use std::io;
use std::ops::Range;
use std::sync::mpsc;
use std::time::Duration;

use rdkafka::message::{Header, OwnedHeaders};
use rdkafka::producer::{BaseRecord, ThreadedProducer};
use tallyring_realtime::oplog::{Topic as _, TopicError, TopicReader};

use crate::check::{Standing, check_progress};
use crate::connect::client;
use crate::kafka::{KafkaTopic, Kept, Partition, Telling, Told, producer, told_of};
use crate::kafka_settings::KafkaSettings;
use crate::settings::TopicName;

/// The name of the header with the id of a message.
const ID: &str = "id";
/// How long a message of progress may take to come.
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
///
/// Compaction keeps the newest progress of each teller, so that of one never takes away what another one kept.
pub struct OutTopic {
    producer: ThreadedProducer<Telling>,
    name: TopicName,
    /// The key of the progress that this teller keeps.
    teller: String,
    progress: KafkaTopic,
    reader: Box<dyn TopicReader>,
    /// The offset of the next progress to read, and that behind the last one which the brokers told of.
    unread: Range<u64>,
}

impl OutTopic {
    /// Opens the topic, and makes that of the progress where there is none. No other program has the name of `teller`.
    ///
    /// # Errors
    /// When the brokers do not answer, or do not know the topic: its partitions are a matter of its readers, so nothing
    /// here makes it. When the topic of the progress does not keep its newest message for ever.
    pub fn open(settings: &KafkaSettings, name: &TopicName, teller: &str) -> io::Result<Self> {
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
        let begins = opened.range().map_err(other)?.start;
        // As the client of Java spreads keys, so that readers may join topics.
        let mut client = client(settings)?;
        let client = client.set("partitioner", "murmur2_random");
        Ok(Self {
            producer: producer(client).map_err(io::Error::other)?,
            name: name.clone(),
            teller: teller.to_owned(),
            reader: opened.reader(begins).map_err(other)?,
            unread: begins..begins,
            progress: opened,
        })
    }

    /// The next progress that a teller kept, this one too, oldest first; none where all there is was read.
    ///
    /// # Errors
    /// When the brokers do not answer, or have removed all that was kept.
    pub fn next_kept(&mut self) -> io::Result<Option<Vec<u8>>> {
        let progress = self.name.of_progress();
        if self.unread.is_empty() {
            let range = self.progress.range().map_err(other)?;
            if range.is_empty() && range.start > 0 {
                return Err(io::Error::other(format!(
                    "all messages of the topic `{progress}` were removed, and nobody knows how far `{}` was told; delete \
                     `{progress}`, and set kafka_out.from to the time from which on buckets may be missing",
                    self.name.as_str()
                )));
            }
            self.unread.end = range.end;
        }
        if self.unread.is_empty() {
            return Ok(None);
        }
        match self.reader.next(READ_WAIT).map_err(other)? {
            Some(message) => {
                self.unread.start = message.offset.saturating_add(1);
                Ok(Some(message.bytes))
            }
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
            let id = Header {
                key: ID,
                value: Some(&message.id),
            };
            let headers = OwnedHeaders::new().insert(id);
            let (topic, content) = (self.name.as_str(), (&*message.key, &*message.value));
            sent.push(self.produce(topic, content, headers)?);
        }
        sent.iter()
            .try_for_each(|told| told_of(told).map(drop).map_err(io::Error::other))
    }

    /// Keeps the progress in place of the one that this teller kept before, and returns when all replicas that are in
    /// step have it.
    ///
    /// # Errors
    /// When the brokers do not take it, or do not answer: then it may be there. When the topic is not the one that was
    /// read before.
    pub fn keep(&mut self, progress: &[u8]) -> io::Result<()> {
        let topic = self.name.of_progress();
        let sent = self.produce(&topic, (&self.teller, progress), OwnedHeaders::new())?;
        let offset = told_of(&sent).map_err(io::Error::other)?;
        // Below 0 where the message was there already.
        let Ok(offset) = u64::try_from(offset) else {
            return Ok(());
        };
        if offset < self.unread.start {
            return Err(io::Error::other(format!(
                "the topic `{topic}` was deleted and made again meanwhile"
            )));
        }
        // This message is read at least, whatever a broker says later of the end.
        self.unread.end = self.unread.end.max(offset.saturating_add(1));
        Ok(())
    }

    /// Sends a message with a key. The client will tell whether it came.
    fn produce(
        &self,
        topic: &str,
        (key, value): (&str, &[u8]),
        headers: OwnedHeaders,
    ) -> io::Result<Told> {
        let (tell, told) = mpsc::sync_channel(1);
        let record = BaseRecord::with_opaque_to(topic, Box::new(tell));
        let taken = (self.producer).send(record.key(key).payload(value).headers(headers));
        taken.map_err(|(error, _)| io::Error::other(error))?;
        Ok(told)
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
