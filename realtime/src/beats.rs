//! Beats of nodes in a topic of their own.
//!
//! Any reader of the topic hears all nodes. A beat that is lost or comes late costs time and nothing else, so a failure
//! is noted and the next beat is sent anew.

use std::sync::Arc;
use std::time::Duration;

use crate::oplog::{Owner, Topic, TopicError, TopicReader, TopicWriter};
use crate::role::Beat;

/// Size of the largest message that is taken for a beat, bytes.
const BEAT_BYTES_MAX: usize = 4 << 10;

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
            if message.bytes.len() <= BEAT_BYTES_MAX
                && let Ok(beat) = serde_json::from_slice(&message.bytes)
            {
                return Ok(Some(beat));
            }
        }
        Ok(None)
    }
}
