//! Topics in memory, as a consumer of Kafka sees them: brokers that answer or not, messages that come again, topics
//! that lose their oldest messages or are made again.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tallyring_realtime::{Source, SourceError, SourceMessage};
use tallyring_records::{Consumed, TopicPartition};

use crate::model::Chance;

/// The brokers. A clone is the same ones.
#[derive(Clone, Default)]
pub struct SimBrokers(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    topics: BTreeMap<String, Topic>,
    /// Topics that were made so far; the next one's id.
    made: u64,
    is_down: bool,
    /// Partitions whose brokers do not answer, and how often they were asked.
    silent: BTreeSet<(String, u32)>,
    unanswered: usize,
    is_faulty: bool,
    seeks: usize,
}

struct Topic {
    id: String,
    partitions: Vec<Partition>,
}

#[derive(Default)]
struct Partition {
    begin: u64,
    /// None for a mark of a transaction, which has an offset and is no message.
    messages: Vec<Option<SourceMessage>>,
}

impl SimBrokers {
    /// Makes a topic, in the place of the one of that name.
    pub fn make(&self, topic: &str, partitions: usize) {
        let mut state = self.lock();
        state.made += 1;
        let id = format!("id-{}", state.made);
        let partitions = (0..partitions).map(|_| Partition::default()).collect();
        let made = Topic { id, partitions };
        state.topics.insert(topic.to_owned(), made);
    }

    /// Adds a message, whose topic and partition are there. Returns its offset.
    pub fn send(&self, message: SourceMessage) -> u64 {
        let mut state = self.lock();
        let topic = state.topics.get_mut(&message.topic).expect("a topic");
        let partition = &mut topic.partitions[message.partition as usize];
        let offset = partition.end();
        let message = SourceMessage { offset, ..message };
        partition.messages.push(Some(message));
        offset
    }

    /// Adds a mark of a transaction to a partition.
    pub fn mark(&self, (topic, partition): (&str, u32)) {
        let mut state = self.lock();
        let topic = state.topics.get_mut(topic).expect("a topic");
        topic.partitions[partition as usize].messages.push(None);
    }

    /// Removes the messages of a partition before an offset.
    pub fn remove_before(&self, (topic, partition): (&str, u32), offset: u64) {
        let mut state = self.lock();
        let topic = state.topics.get_mut(topic).expect("a topic");
        let partition = &mut topic.partitions[partition as usize];
        let gone = offset.min(partition.end()).saturating_sub(partition.begin);
        partition.messages.drain(..gone as usize);
        partition.begin += gone;
    }

    /// Lets no broker answer, or all of them again.
    pub fn set_down(&self, is_down: bool) {
        self.lock().is_down = is_down;
    }

    /// Lets the brokers of a partition not answer, and give no message, or answer again.
    pub fn set_silent(&self, (topic, partition): (&str, u32), is_silent: bool) {
        let (mut state, place) = (self.lock(), (topic.to_owned(), partition));
        match is_silent {
            true => state.silent.insert(place),
            false => state.silent.remove(&place),
        };
    }

    /// How often brokers of a partition were asked that did not answer.
    pub fn unanswered(&self) -> usize {
        self.lock().unanswered
    }

    /// Lets each second message be an error instead, as a partition that cannot be read makes it; or no more.
    pub fn set_faulty(&self, is_faulty: bool) {
        self.lock().is_faulty = is_faulty;
    }

    /// How often clients were told where to read.
    pub fn seeks(&self) -> usize {
        self.lock().seeks
    }

    /// A client, to which messages come again where the chance says so.
    pub fn source(&self, chance: Option<Chance>) -> SimSource {
        SimSource {
            brokers: self.clone(),
            cursors: BTreeMap::new(),
            gave: false,
            chance,
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn up(&self) -> Result<MutexGuard<'_, State>, SourceError> {
        let state = self.lock();
        match state.is_down {
            true => Err(SourceError("the brokers are down".into())),
            false => Ok(state),
        }
    }
}

impl Partition {
    fn end(&self) -> u64 {
        self.begin + self.messages.len() as u64
    }
}

/// A client of the brokers.
pub struct SimSource {
    brokers: SimBrokers,
    /// The offsets that are read next.
    cursors: BTreeMap<(String, u32), u64>,
    /// True where the last answer of faulty brokers was no error.
    gave: bool,
    chance: Option<Chance>,
}

impl Source for SimSource {
    fn partitions(&mut self, topic: &str) -> Result<Vec<TopicPartition>, SourceError> {
        let state = self.brokers.up()?;
        let found = state.topics.get(topic);
        let found = found.ok_or_else(|| SourceError("the brokers do not know it".into()))?;
        let partitions = (0..)
            .zip(&found.partitions)
            .map(|(partition, _)| TopicPartition {
                topic: topic.to_owned(),
                topic_id: found.id.clone(),
                cluster: "cluster".to_owned(),
                partition,
            });
        Ok(partitions.collect())
    }

    fn kept(&mut self, of: &TopicPartition) -> Result<Range<u64>, SourceError> {
        let mut state = self.brokers.up()?;
        if state.silent.contains(&(of.topic.clone(), of.partition)) {
            state.unanswered += 1;
            return Err(SourceError("no answer".into()));
        }
        let found = state.topics.get(&of.topic);
        let found = found.and_then(|topic| topic.partitions.get(of.partition as usize));
        let found = found.ok_or_else(|| SourceError("it is gone".into()))?;
        Ok(found.begin..found.end())
    }

    fn seek(&mut self, to: &[Consumed]) -> Result<(), SourceError> {
        self.brokers.up()?.seeks += 1;
        let places = to
            .iter()
            .map(|to| ((to.of.topic.clone(), to.of.partition), to.next));
        self.cursors = places.collect();
        Ok(())
    }

    fn next(&mut self, _: Duration) -> Result<Option<SourceMessage>, SourceError> {
        let state = self.brokers.up()?;
        if state.is_faulty {
            self.gave = !self.gave;
            if !self.gave {
                return Err(SourceError("a message is damaged".into()));
            }
        }
        let mut ready = Vec::new();
        let answering = self.cursors.iter_mut();
        for (place, cursor) in answering.filter(|(place, _)| !state.silent.contains(*place)) {
            let Some(topic) = state.topics.get(&place.0) else {
                continue;
            };
            let Some(partition) = topic.partitions.get(place.1 as usize) else {
                continue;
            };
            if let Some(chance) = self.chance.as_mut().filter(|_| *cursor > partition.begin)
                && chance.percent(5)
            {
                let back = match chance.percent(5) {
                    true => *cursor,
                    false => chance.below(8),
                };
                *cursor = cursor.saturating_sub(back).max(partition.begin);
            }
            let Some(at) = cursor.checked_sub(partition.begin) else {
                return Err(SourceError("an offset is out of range".into()));
            };
            let left = partition.messages.iter().skip(at as usize);
            *cursor += left.clone().take_while(|of| of.is_none()).count() as u64;
            if let Some(message) = left.flatten().next() {
                ready.push((cursor, message));
            }
        }
        let one = match &mut self.chance {
            Some(chance) if !ready.is_empty() => chance.below(ready.len() as u64) as usize,
            _ => 0,
        };
        if ready.is_empty() {
            return Ok(None);
        }
        let (cursor, message) = ready.swap_remove(one);
        *cursor += 1;
        Ok(Some(message.clone()))
    }

    fn passed(&mut self) -> Result<BTreeMap<(String, u32), u64>, SourceError> {
        Ok(self.cursors.clone())
    }
}
