//! Beats of nodes in a topic of their own.
//!
//! Any reader of the topic hears all nodes. A beat that is lost or comes late costs time and nothing else, so a failure
//! is noted and the next beat is sent anew.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use crate::oplog::{Owner, Topic, TopicError, TopicReader, TopicWriter};
use crate::role::Beat;

/// Size of the largest message that is taken for a beat, bytes.
const BEAT_BYTES_MAX: usize = 4 << 10;
/// Messages in which addresses are looked for, at most.
const LOOKED_AT_MAX: u64 = 1_000;
/// How long one of them may take to come.
const LOOK_WAIT: Duration = Duration::from_secs(10);

/// One node's way to hear and to be heard.
pub(crate) struct Beats {
    topic: Arc<dyn Topic>,
    /// The key of the node's messages.
    owner: Owner,
    writer: Option<Box<dyn TopicWriter>>,
    reader: Option<Box<dyn TopicReader>>,
}

impl Beats {
    /// The beats in this topic, from now on.
    pub(crate) fn new(topic: Arc<dyn Topic>, owner: Owner) -> Self {
        Self {
            topic,
            owner,
            writer: None,
            reader: None,
        }
    }

    /// Sends a beat, and waits some seconds at most until the topic has it. After a failure it may have it or not.
    pub(crate) fn send(&mut self, beat: &Beat) -> Result<(), TopicError> {
        let sent = self.try_to_send(beat);
        if sent.is_err() {
            self.writer = None;
        }
        sent
    }

    /// The next beat of any node; none where there is none now. Messages that are no beats are passed over.
    pub(crate) fn next(&mut self) -> Result<Option<Beat>, TopicError> {
        let read = self.try_to_read();
        if read.is_err() {
            self.reader = None;
        }
        read
    }

    fn try_to_send(&mut self, beat: &Beat) -> Result<(), TopicError> {
        let writer = match &mut self.writer {
            Some(writer) => writer,
            None => self.writer.insert(self.topic.writer(self.owner)?),
        };
        let bytes = serde_json::to_vec(beat).expect("BUG: a beat is JSON");
        writer.send(&bytes)?;
        writer.told().map(drop)
    }

    fn try_to_read(&mut self) -> Result<Option<Beat>, TopicError> {
        let reader = match &mut self.reader {
            Some(reader) => reader,
            // Beats of before say nothing of now.
            None => self
                .reader
                .insert(self.topic.reader(self.topic.range()?.end)?),
        };
        while let Some(message) = reader.next(Duration::ZERO)? {
            if let Some(beat) = beat(&message.bytes) {
                return Ok(Some(beat));
            }
        }
        Ok(None)
    }
}

/// The address of each node by its name, as it told last, of those that told of themselves lately in the topic `nodes`.
/// Fails when the topic does.
pub fn addresses(nodes: &dyn Topic) -> Result<BTreeMap<String, String>, TopicError> {
    let range = nodes.range()?;
    let begin = range.end.saturating_sub(LOOKED_AT_MAX).max(range.start);
    let mut reader = nodes.reader(begin)?;
    let (mut addresses, mut next) = (BTreeMap::new(), begin);
    while next < range.end
        && let Some(message) = reader.next(LOOK_WAIT)?
    {
        next = message.offset.saturating_add(1);
        if let Some(beat) = beat(&message.bytes) {
            addresses.insert(beat.node, beat.address);
        }
    }
    Ok(addresses)
}

/// The beat in a message; none in any other one.
fn beat(bytes: &[u8]) -> Option<Beat> {
    let bytes = Some(bytes).filter(|bytes| bytes.len() <= BEAT_BYTES_MAX)?;
    serde_json::from_slice(bytes).ok()
}
