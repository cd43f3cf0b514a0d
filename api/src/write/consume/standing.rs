//! The standing of the topics that a server consumes, as it tells people.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use serde::Serialize;

/// The standing of all topics, for people and metrics.
#[derive(Debug, Default)]
pub struct Consuming(Mutex<BTreeMap<String, TopicStanding>>);

/// The standing of one topic.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct TopicStanding {
    /// Why the topic is not consumed, or not all of it; none while it is.
    pub error: Option<String>,
    /// The newest item that was skipped; none since the start.
    pub last_skipped: Option<String>,
    /// Its partitions, ascending; none where another node consumes it.
    pub partitions: Vec<PartitionStanding>,
}

/// The standing of one partition.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct PartitionStanding {
    /// The number of the partition.
    pub partition: u32,
    /// The offset of the next message.
    pub next: u64,
    /// Messages behind it, as of the last look at the topic some seconds ago.
    pub lag: u64,
}

impl Consuming {
    /// All topics by name.
    pub fn topics(&self) -> BTreeMap<String, TopicStanding> {
        self.lock().clone()
    }

    /// Faults that need an operator, a sentence each.
    pub(crate) fn faults(&self) -> Vec<String> {
        let topics = self.lock();
        let faults = topics.iter().filter_map(|(name, topic)| {
            let error = topic.error.as_ref()?;
            Some(format!("the topic {name} is not consumed: {error}"))
        });
        faults.collect()
    }

    /// Changes the standing of a topic.
    pub(super) fn note(&self, topic: &str, change: impl FnOnce(&mut TopicStanding)) {
        change(self.lock().entry(topic.to_owned()).or_default());
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, TopicStanding>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
