//! Reads the messages of a topic on, from any offset and after any failure.

use std::sync::Arc;
use std::time::Duration;

use super::error::{OplogError, Result};
use super::topic::{Message, Topic, TopicError, TopicReader};

/// Waits for a message that is known to be there: so many, each so long.
const WAITS: u32 = 20;
const WAIT: Duration = Duration::from_millis(500);

/// The messages of a topic, in order.
pub(super) struct Messages {
    topic: Arc<dyn Topic>,
    /// The reader that goes on; none after a failure, or where another offset is wanted next.
    reader: Option<Box<dyn TopicReader>>,
}

impl Messages {
    pub(super) fn new(topic: Arc<dyn Topic>) -> Self {
        Self {
            topic,
            reader: None,
        }
    }

    pub(super) fn topic(&self) -> &Arc<dyn Topic> {
        &self.topic
    }

    /// The first message at or behind `from`, where the last read ended unless it was forgotten. Waits for `wait` at
    /// most; none where there is none until then.
    pub(super) fn next(&mut self, from: u64, wait: Duration) -> Result<Option<Message>> {
        let mut reader = match self.reader.take() {
            Some(reader) => reader,
            None => self.topic.reader(from).map_err(failed("read"))?,
        };
        loop {
            let message = reader.next(wait).map_err(failed("read"))?;
            if message.as_ref().is_some_and(|one| one.offset < from) {
                continue;
            }
            self.reader = Some(reader);
            return Ok(message);
        }
    }

    /// As [`Self::next`], of a message that is known to be there. Fails with [`OplogError::Topic`] where it does not
    /// come for some seconds.
    pub(super) fn next_there(&mut self, from: u64) -> Result<Message> {
        for _ in 0..WAITS {
            if let Some(message) = self.next(from, WAIT)? {
                return Ok(message);
            }
        }
        self.forget();
        let problem = format!("no message at or behind offset {from} came");
        Err(failed("read")(TopicError::Unreachable(problem)))
    }

    /// Lets the next read begin at the offset that it names.
    pub(super) fn forget(&mut self) {
        self.reader = None;
    }
}

/// For `map_err`: what could not be done with the topic.
pub(super) fn failed(action: &'static str) -> impl FnOnce(TopicError) -> OplogError {
    move |source| OplogError::Topic { action, source }
}
