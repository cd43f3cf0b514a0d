//! The log as the store uses it, whatever keeps it: a local directory ([`super::FileLog`]) or a topic
//! ([`super::TopicLog`]). Either has local segments, which [`super::scan`] and its kin read.

use std::sync::Arc;

use tallyring_records::Offset;

use super::clock_watch::ClockWatch;
use super::error::Result;
use super::segments::Segments;
use super::spare::Spare;
use super::tail::Tail;
use super::writer::DurableEnd;

/// A log, open for appending. It has one owner.
pub trait Log: Send {
    /// Appends one frame with `count` records and returns the sequence number of the first. The frame may be
    /// acknowledged only after [`Self::commit`]. Several frames may be appended before it. Panics when `count` is 0.
    ///
    /// # Errors
    /// [`OplogError::TooLarge`](super::OplogError::TooLarge) above
    /// [`PAYLOAD_BYTES_MAX`](super::PAYLOAD_BYTES_MAX) or above the topic's limit, and
    /// [`OplogError::Full`](super::OplogError::Full) and [`OplogError::Limit`](super::OplogError::Limit) when there is
    /// no space: nothing was appended then, and the log goes on. [`OplogError::Poisoned`](super::OplogError::Poisoned)
    /// and [`OplogError::Deposed`](super::OplogError::Deposed) for ever.
    fn append(&mut self, payload: &[u8], count: u32, now_ms: i64) -> Result<u64>;

    /// Makes every appended frame durable and returns [`Self::durable`].
    ///
    /// # Errors
    /// [`OplogError::Poisoned`](super::OplogError::Poisoned) and [`OplogError::Deposed`](super::OplogError::Deposed)
    /// for ever; [`OplogError::Topic`](super::OplogError::Topic) where nothing was appended and the topic does not
    /// answer.
    fn commit(&mut self) -> Result<u64>;

    /// Commits, and makes sure that damage to earlier frames is never taken for a torn write. The caller seals an idle
    /// log and a log at shutdown. Fails as [`Self::append`] does.
    fn seal(&mut self, now_ms: i64) -> Result<()>;

    /// Begins a new segment, unless the newest one has no record yet, so that the records of before can be removed once
    /// they are old. Fails as [`Self::append`] does.
    fn begin_segment(&mut self, now_ms: i64) -> Result<()>;

    /// Removes the oldest segments whose records are all below `sequence` and were written before `older_than_ms` (Unix
    /// milliseconds), `at_most` so many, and never the newest. Under a clock that had been ahead, a segment also counts
    /// as that old when a later one does. Returns the number of removed segments. Fails as [`Self::commit`] does, and
    /// with [`OplogError::Io`](super::OplogError::Io).
    fn trim(&mut self, sequence: u64, older_than_ms: i64, at_most: usize) -> Result<usize>;

    /// The current epoch. No record of another open, or of another writer, has it or will have it.
    fn epoch(&self) -> u32;

    /// Sequence number after the last appended record.
    fn appended(&self) -> u64;

    /// Sequence number after the last record that a commit acknowledged.
    fn durable(&self) -> u64;

    /// The durable part of the local segments, for a copy of them.
    fn durable_end(&self) -> DurableEnd;

    /// The local segments.
    fn segments(&self) -> &Segments;

    /// The local segments, to pack them.
    fn segments_mut(&mut self) -> &mut Segments;

    /// The clock, as the frames of the log know it.
    fn clock(&self) -> &ClockWatch;

    /// The clock, to look at it.
    fn clock_mut(&mut self) -> &mut ClockWatch;

    /// The maker of spare segments, for a helper thread; none where segments are not made ahead.
    fn spare(&self) -> Option<Arc<Spare>>;

    /// True where several nodes follow the log: each record that changes what is counted where has to be in it.
    fn is_shared(&self) -> bool;

    /// True once the log takes no more writes, for ever.
    fn has_failed(&self) -> bool;

    /// Gives the log up, for another node or after [`OplogError::Deposed`](super::OplogError::Deposed). The tail first
    /// passes on what counts and was not acknowledged by a commit. None where the log has one writer for ever.
    fn step_down(self: Box<Self>) -> Option<Tail>;

    /// The offset behind all appended records.
    fn end(&self) -> Offset {
        Offset {
            epoch: self.epoch(),
            sequence: self.appended(),
        }
    }
}
