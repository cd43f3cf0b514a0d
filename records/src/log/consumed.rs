//! How far topics of Kafka were consumed ([`crate::log`] describes the record).

use serde::{Deserialize, Serialize};

use crate::varint::{read_text, read_u64, write_bytes, write_u64};

/// Bytes of a name or an id, at most.
const NAME_BYTES_MAX: usize = 256;

/// One partition of one topic of one Kafka cluster. A topic that is deleted and made again has another id.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct TopicPartition {
    /// The name of the topic.
    pub topic: String,
    /// The id of the topic, as Kafka's tools show it.
    pub topic_id: String,
    /// The id of the Kafka cluster.
    pub cluster: String,
    /// The number of the partition.
    pub partition: u32,
}

impl TopicPartition {
    /// True when each name and id has 1 to 256 bytes, and no control character.
    pub fn is_valid(&self) -> bool {
        let names = [&self.topic, &self.topic_id, &self.cluster];
        let is_name = |name: &&String| {
            (1..=NAME_BYTES_MAX).contains(&name.len()) && !name.contains(char::is_control)
        };
        names.iter().all(is_name)
    }
}

/// A partition whose messages before an offset were counted or skipped.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Consumed {
    /// The partition.
    #[serde(flatten)]
    pub of: TopicPartition,
    /// The offset of the next message.
    pub next: u64,
}

impl Consumed {
    /// Writes the kind and the fields.
    pub(super) fn encode(&self, out: &mut Vec<u8>, kind: u8) {
        out.push(kind);
        for text in [&self.of.topic, &self.of.topic_id, &self.of.cluster] {
            write_bytes(out, text.as_bytes());
        }
        write_u64(out, self.of.partition.into());
        write_u64(out, self.next);
    }

    /// Reads the fields behind the kind.
    pub(super) fn decode(input: &mut &[u8]) -> Option<Self> {
        let of = TopicPartition {
            topic: read_text(input)?,
            topic_id: read_text(input)?,
            cluster: read_text(input)?,
            partition: u32::try_from(read_u64(input)?).ok()?,
        };
        let next = read_u64(input)?;
        of.is_valid().then_some(Self { of, next })
    }
}
