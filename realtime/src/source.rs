//! Topics of another system, whose messages are counted.

use std::collections::BTreeMap;
use std::ops::Range;
use std::time::Duration;

use tallyring_records::{Consumed, TopicPartition};
use thiserror::Error;

/// A reader of topics. It believes nobody but its caller about what was read before.
pub trait Source: Send {
    /// The partitions of a topic as it is now. Fails where there is no such topic.
    fn partitions(&mut self, topic: &str) -> Result<Vec<TopicPartition>, SourceError>;

    /// The offsets of a partition, from the oldest message that is kept up to the next one that comes.
    fn kept(&mut self, of: &TopicPartition) -> Result<Range<u64>, SourceError>;

    /// Goes on with these partitions alone, each from its next offset.
    fn seek(&mut self, to: &[Consumed]) -> Result<(), SourceError>;

    /// The next message of any of these partitions, in the order of each; none where none came for so long. Messages
    /// before the wanted offset may come, too.
    fn next(&mut self, wait: Duration) -> Result<Option<SourceMessage>, SourceError>;

    /// How far partitions were gone through, by topic and number: behind the last message that came, and behind what
    /// follows it and is no message. A partition of which nothing is known is left out. Asks nobody.
    fn passed(&mut self) -> Result<BTreeMap<(String, u32), u64>, SourceError>;
}

/// A message of a topic.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SourceMessage {
    /// The name of the topic.
    pub topic: String,
    /// The number of the partition.
    pub partition: u32,
    /// The offset in the partition.
    pub offset: u64,
    /// When it was sent or stored, Unix milliseconds; none where the topic does not tell.
    pub at_ms: Option<i64>,
    /// Names and values of its headers.
    pub headers: Vec<(String, Vec<u8>)>,
    /// Its content; empty where it has none.
    pub body: Vec<u8>,
}

impl SourceMessage {
    /// Size of the content and the headers, bytes.
    pub fn bytes(&self) -> usize {
        let headers = self.headers.iter();
        let headers = headers.map(|(name, value)| name.len() + value.len());
        headers.fold(self.body.len(), usize::saturating_add)
    }
}

/// The source gives nothing now. It is asked again.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{0}")]
pub struct SourceError(pub String);
