//! One partition of a Kafka topic, and no more than it gives: messages in order, each with a key that names its sender.
//!
//! The simulation implements these traits, too. So the code that decides which messages count, [`super::Chain`] and all
//! above it, is the same for both. Nothing here knows of frames.

use std::fmt;
use std::ops::Range;
use std::time::Duration;

/// Size of the key of a message, bytes.
const OWNER_BYTES: usize = size_of::<u128>();

/// One take-over of a log: random bytes, anew for each. They are the key of all messages that follow from it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Owner(pub u128);

impl Owner {
    /// A new owner of these random bytes.
    pub fn draw(random: fn(&mut [u8])) -> Self {
        let mut bytes = [0; OWNER_BYTES];
        random(&mut bytes);
        Self(u128::from_le_bytes(bytes))
    }

    /// The key of the messages.
    pub fn key(self) -> [u8; OWNER_BYTES] {
        self.0.to_le_bytes()
    }
}

impl fmt::Display for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

/// A message of the topic.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Message {
    /// Position in the topic. It rises from message to message, not always by one.
    pub offset: u64,
    /// The sender, which the message's key names.
    pub owner: Owner,
    /// The content.
    pub bytes: Vec<u8>,
}

/// One partition of a topic. Below the end of its range nothing ever changes.
pub trait Topic: Send + Sync + fmt::Debug {
    /// A new writer of messages. Dropping it gives up what is not sent yet.
    ///
    /// # Errors
    /// [`TopicError::Unreachable`].
    fn writer(&self, owner: Owner) -> Result<Box<dyn TopicWriter>, TopicError>;

    /// A reader of the messages from `offset` on.
    ///
    /// # Errors
    /// [`TopicError::Gone`], which the first read may say instead, and [`TopicError::Unreachable`].
    fn reader(&self, offset: u64) -> Result<Box<dyn TopicReader>, TopicError>;

    /// The offsets that the topic has: from its oldest message to behind its newest. Everything that was acknowledged
    /// before the call is below the end.
    ///
    /// # Errors
    /// [`TopicError::Unreachable`].
    fn range(&self) -> Result<Range<u64>, TopicError>;

    /// Removes the messages before `offset`; none where they are gone already.
    ///
    /// # Errors
    /// [`TopicError::Unreachable`]; the messages are gone or not then.
    fn remove_before(&self, offset: u64) -> Result<(), TopicError>;

    /// Size of the largest message that the topic takes, without its key, bytes.
    fn message_bytes_max(&self) -> usize;
}

/// Sends messages, in order, under one key.
pub trait TopicWriter: Send {
    /// Hands over a message and does not wait. The message is in the topic, once and for ever, when [`Self::told`] says
    /// so.
    ///
    /// # Errors
    /// [`TopicError::TooLarge`], which changes nothing. After any other error the message may be in the topic, or come
    /// to it later.
    fn send(&mut self, bytes: &[u8]) -> Result<(), TopicError>;

    /// Waits some seconds at most until the oldest message that was not told of yet is in the topic. Returns its
    /// offset; none where the message is in the topic, and the offset is not known. Panics where nothing was sent.
    ///
    /// # Errors
    /// [`TopicError::Unknown`]: this message, and those sent after it, may be in the topic, or come to it later. The
    /// writer is of no use any more.
    fn told(&mut self) -> Result<Option<u64>, TopicError>;
}

/// Reads messages in order.
pub trait TopicReader: Send {
    /// The next message. Waits for one for `wait` at most; none where there is none until then.
    ///
    /// # Errors
    /// [`TopicError::Gone`] and [`TopicError::Unreachable`]. The caller asks for a new reader then.
    fn next(&mut self, wait: Duration) -> Result<Option<Message>, TopicError>;
}

/// A failure of the topic.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TopicError {
    /// The message is above the topic's limit, and is not in the topic.
    #[error(
        "a message of {bytes} bytes is above the topic's limit; raise `max.message.bytes` of the topic"
    )]
    TooLarge {
        /// Size of the message, bytes.
        bytes: usize,
    },

    /// Nobody knows whether the message is in the topic.
    #[error("it is unknown whether the message is in the topic: {0}")]
    Unknown(String),

    /// The wanted messages were removed.
    #[error("the topic begins at offset {begins}, behind the wanted messages")]
    Gone {
        /// Offset of the oldest message that there is.
        begins: u64,
    },

    /// The brokers do not answer.
    #[error("the topic is out of reach: {0}")]
    Unreachable(String),
}
