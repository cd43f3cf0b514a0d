//! Topics as their brokers make, describe and limit them.

use std::collections::BTreeMap;
use std::future::Future;
use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake};
use std::thread::{self, Thread};
use std::time::Instant;

use rdkafka::admin::{AdminClient, AdminOptions, NewTopic, ResourceSpecifier, TopicReplication};
use rdkafka::client::DefaultClientContext;
use rdkafka::config::ClientConfig;
use rdkafka::consumer::Consumer;
use rdkafka::error::RDKafkaErrorCode as Code;
use rdkafka::metadata::MetadataPartition;

use super::{ANSWER_WAIT, KafkaTopic, OPEN_PAUSE, OPEN_WAIT, consumer};
use crate::check::{REPLICAS, TopicFacts};
use crate::connect::{client, explained};
use crate::kafka_settings::KafkaSettings;
use crate::settings::MESSAGE_BYTES_MAX;

/// The topic's setting for the size of its largest message.
const LIMIT: &str = "max.message.bytes";

/// Bytes of a segment of a topic of newest messages, at which the next one begins.
const SEGMENT_BYTES: &str = "16777216";

/// How long a topic keeps its messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kept {
    /// For ever: it has a log.
    ForEver,
    /// For an hour: it tells of now.
    AnHour,
    /// The newest message of each key for ever, and those before it for some time.
    Newest,
}

impl KafkaTopic {
    /// Makes a topic of so many partitions, with a replica on each of that many brokers, up to three; false where there
    /// is one of that name, which stays as it is. No replica that lacks a message becomes the leader.
    ///
    /// # Errors
    /// When the brokers refuse, or do not answer: whether there is a topic is unknown then.
    pub fn create(
        settings: &KafkaSettings,
        (topic, kept): (&str, Kept),
        (partitions, brokers): (usize, usize),
    ) -> io::Result<bool> {
        let partitions = i32::try_from(partitions).map_err(io::Error::other)?;
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
        let wanted = NewTopic::new(topic, partitions, TopicReplication::Fixed(replicas))
            .set("cleanup.policy", cleanup)
            .set("retention.ms", retention_ms)
            .set("retention.bytes", "-1")
            .set("unclean.leader.election.enable", "false")
            .set("min.insync.replicas", &in_sync)
            .set(LIMIT, &bytes_max);
        let wanted = match kept {
            // Compaction takes closed segments only, and all that is left is read at a start.
            Kept::Newest => wanted.set("segment.bytes", SEGMENT_BYTES),
            Kept::ForEver | Kept::AnHour => wanted,
        };
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
}

/// The topic's settings by name. They are asked for until a broker answers, for half a minute. Each time a new client
/// asks: one asks the same broker again and again, which may be gone while the others still name it.
fn settings_of(client: &ClientConfig, topic: &str) -> io::Result<BTreeMap<String, String>> {
    let until = Instant::now() + OPEN_WAIT;
    let described = [ResourceSpecifier::Topic(topic)];
    let told = loop {
        let admin: AdminClient<DefaultClientContext> = client.create().map_err(io::Error::other)?;
        match wait(admin.describe_configs(&described, &admin_options())) {
            Ok(mut told) => break told.pop(),
            Err(_) if Instant::now() < until => thread::sleep(OPEN_PAUSE),
            Err(error) => return Err(io::Error::other(error)),
        }
    };
    let told = told.ok_or_else(|| io::Error::other("no settings were told"))?;
    let told = told.map_err(|code| io::Error::other(code.to_string()))?;
    let settings = told.entries.into_iter();
    let settings = settings.filter_map(|entry| Some((entry.name, entry.value?)));
    Ok(settings.collect())
}

/// The topic's limit for a message with all around it, bytes.
pub(super) fn limit(client: &ClientConfig, topic: &str) -> io::Result<usize> {
    let settings = settings_of(client, topic)?;
    let limit = settings.get(LIMIT).and_then(|limit| limit.parse().ok());
    limit
        .ok_or_else(|| io::Error::other(format!("the topic `{topic}` does not tell its `{LIMIT}`")))
}

pub(super) fn admin_options() -> AdminOptions {
    AdminOptions::new()
        .request_timeout(Some(ANSWER_WAIT))
        .operation_timeout(Some(ANSWER_WAIT))
}

/// Waits for an answer that a thread of the client gives; works on every thread.
pub(super) fn wait<T>(answer: impl Future<Output = T>) -> T {
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
