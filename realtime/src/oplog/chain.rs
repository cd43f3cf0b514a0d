//! Which messages of a topic count: one rule, by which every reader judges, and the writer what it sent itself.
//!
//! A message is one frame, or one header of a segment; its key names the owner of the log. A message counts only where
//! it follows the last one that counts: by its number, its checksum and its owner. A seal of the next epoch that names
//! its own owner takes the log over, so nothing counts any more that the owner of before sends. All else is void, and
//! every reader skips it. So of two writers that both believe to own the log, all readers follow one, and the other
//! learns it, because it looks at what came between before it acknowledges.

use std::time::Duration;

use tallyring_records::Offset;

use super::cursor::{ChainPoint, Cursor, Step};
use super::error::{OplogError, Result};
use super::frame::{self, Frame, FrameHeader, frame_bytes, starts_frame};
use super::segment::{
    Form, HeaderFault, SEGMENT_HEADER_BYTES, SegmentHeader, header_crc, starts_segment,
};
use super::topic::{Message, Owner, Topic, TopicError};

/// How long a topic's first message may take to come.
const FIRST_WAIT: Duration = Duration::from_secs(5);

/// Begins a log in an empty topic, with the header of record 0. `owner` is new, as for a take-over. A topic with that
/// header of the store and no more stays as it is: an earlier call began the log. Fails with
/// [`OplogError::TopicInUse`] where the topic has had another message, and with [`OplogError::Topic`].
pub fn begin_log(topic: &dyn Topic, store_id: [u8; 16], owner: Owner, now_ms: i64) -> Result<()> {
    let failed = |source| OplogError::Topic {
        action: "begin a log in it",
        source,
    };
    let range = topic.range().map_err(failed)?;
    if range.end > 0 {
        let mut reader = topic.reader(range.start).map_err(failed)?;
        let first = reader.next(FIRST_WAIT).map_err(failed)?;
        let chain = first.and_then(|first| Chain::begin(&first, store_id).ok());
        let is_begun = chain.is_some_and(|chain| chain.at.first == 0 && chain.next == range.end);
        return match is_begun {
            true => Ok(()),
            false => Err(OplogError::TopicInUse { end: range.end }),
        };
    }
    let header = SegmentHeader {
        epoch: 1,
        first_sequence: 0,
        previous_first: 0,
        created_ms: now_ms,
        store_id,
        previous_crc: 0,
    };
    let mut writer = topic.writer(owner).map_err(failed)?;
    let sent = writer.send(&header.encode(Form::Plain));
    sent.and_then(|()| writer.told()).map(drop).map_err(failed)
}

/// Checks that the topic begins with a segment of this store's log. Fails with [`OplogError::NoLog`] where it does not
/// or has no message, as [`Chain::begin`], and with [`OplogError::Topic`].
pub fn check_begin(topic: &dyn Topic, store_id: [u8; 16]) -> Result<()> {
    let failed = |source| OplogError::Topic {
        action: "read the begin of it",
        source,
    };
    let range = topic.range().map_err(failed)?;
    if range.is_empty() {
        return Err(OplogError::NoLog {
            offset: range.start,
        });
    }
    let mut reader = topic.reader(range.start).map_err(failed)?;
    let first = reader.next(FIRST_WAIT).map_err(failed)?;
    let late = || TopicError::Unreachable("its first message does not come".into());
    let first = first.ok_or_else(|| failed(late()))?;
    Chain::begin(&first, store_id).map(drop)
}

/// A position in the topic, up to which all messages were judged.
#[derive(Debug, Clone)]
pub struct Chain {
    /// Offset of the next message.
    next: u64,
    at: Place,
}

/// The verdict on a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict<'m> {
    /// A frame of the owner counts. A seal has no records.
    Frame(Frame<'m>),
    /// A header of the owner counts: the frames that follow are in this segment.
    Segment {
        /// Sequence number of the first record, by which the segment is named.
        first_sequence: u64,
        /// Time at which the segment was begun, Unix milliseconds.
        created_ms: i64,
    },
    /// The log has another owner from this seal on.
    TakenOver(Frame<'m>),
    /// The message does not count, for this reason.
    Void(&'static str),
}

impl Chain {
    /// Begins with the header of a segment, for which the caller vouches: it is the first message of the topic, or one
    /// that counted before. `store_id` is checked. Fails with [`OplogError::NoLog`] where the message is no header,
    /// [`OplogError::Version`] and [`OplogError::ForeignStore`].
    pub fn begin(message: &Message, store_id: [u8; 16]) -> Result<Self> {
        let place = || format!("the topic's message {}", message.offset);
        let (header, crc) = match SegmentHeader::decode(&message.bytes) {
            Ok((header, crc, Form::Plain)) if message.bytes.len() == SEGMENT_HEADER_BYTES => {
                (header, crc)
            }
            Err(HeaderFault::Version(found)) => {
                return Err(OplogError::Version {
                    file: place(),
                    found,
                    supported: Form::Plain as u16,
                });
            }
            Ok(_) | Err(HeaderFault::Damaged(_)) => {
                return Err(OplogError::NoLog {
                    offset: message.offset,
                });
            }
        };
        if header.store_id != store_id {
            return Err(OplogError::foreign(place(), header.store_id, store_id));
        }
        Ok(Self {
            next: message.offset.saturating_add(1),
            at: Place {
                owner: message.owner,
                store_id,
                first: header.first_sequence,
                seed: crc,
                cursor: Cursor::new(&header, crc),
            },
        })
    }

    /// Judges the next message. [`Self::next`] moves behind it; all else moves only if it counts. A message that was
    /// judged already is void.
    pub fn judge<'m>(&mut self, message: &'m Message) -> Verdict<'m> {
        if message.offset < self.next {
            return Verdict::Void("judged before");
        }
        self.next = message.offset.saturating_add(1);
        match starts_segment(&message.bytes) {
            true => self.judge_header(message),
            false => self.judge_frame(message),
        }
    }

    fn judge_header<'m>(&mut self, message: &Message) -> Verdict<'m> {
        let (header, crc) = match SegmentHeader::decode(&message.bytes) {
            Ok((header, crc, Form::Plain)) if message.bytes.len() == SEGMENT_HEADER_BYTES => {
                (header, crc)
            }
            _ => return Verdict::Void("damaged"),
        };
        let at = &mut self.at;
        if message.owner != at.owner {
            return Verdict::Void("another owner");
        }
        let follows = header.store_id == at.store_id
            && header.epoch >= at.cursor.epoch
            && header.first_sequence == at.cursor.sequence
            && header.first_sequence > at.first
            && header.previous_first == at.first
            && header.previous_crc == at.cursor.crc;
        if !follows {
            return Verdict::Void("out of place");
        }
        at.enter(&header, crc);
        Verdict::Segment {
            first_sequence: header.first_sequence,
            created_ms: header.created_ms,
        }
    }

    fn judge_frame<'m>(&mut self, message: &'m Message) -> Verdict<'m> {
        let at = &mut self.at;
        if !starts_frame(&message.bytes) {
            return Verdict::Void("neither frame nor header");
        }
        let mut cursor = at.cursor;
        let frame = match cursor.step(&message.bytes, at.seed) {
            Step::Frame(frame) => frame,
            // The checksums begin with that of the segment, so a frame of another one looks like this, too.
            Step::End | Step::Broken(_) => return Verdict::Void("damaged or of another segment"),
            Step::Misplaced(_) => return Verdict::Void("out of place"),
        };
        if cursor.offset - at.cursor.offset != message.bytes.len() {
            return Verdict::Void("bytes behind the frame");
        }
        if message.owner == at.owner {
            at.cursor = cursor;
            return Verdict::Frame(frame);
        }
        // The key stands beside the frame, so the seal says it, too.
        let takes_over = frame.count == 0
            && Some(frame.epoch) == at.cursor.epoch.checked_add(1)
            && frame.payload == message.owner.key();
        match takes_over {
            true => {
                (at.cursor, at.owner) = (cursor, message.owner);
                Verdict::TakenOver(frame)
            }
            false => Verdict::Void("another owner"),
        }
    }

    /// The offset behind the last record that counts, in the last epoch that counts.
    pub fn end(&self) -> Offset {
        Offset {
            epoch: self.at.cursor.epoch,
            sequence: self.at.cursor.sequence,
        }
    }

    /// Offset in the topic of the next message to judge.
    pub fn next(&self) -> u64 {
        self.next
    }

    /// The owner of the log at this position.
    pub fn owner(&self) -> Owner {
        self.at.owner
    }

    /// First record of the newest segment.
    pub(super) fn first(&self) -> u64 {
        self.at.first
    }

    /// The point behind what counts.
    pub(super) fn point(&self) -> ChainPoint {
        self.at.cursor.point()
    }

    /// The writer that goes on here, before the topic tells it anything.
    pub fn ahead(&self) -> Ahead {
        Ahead {
            acknowledged: self.segment_bytes(),
            at: self.at.clone(),
        }
    }

    /// Bytes of the newest segment that count.
    fn segment_bytes(&self) -> u32 {
        u32::try_from(self.at.cursor.offset).unwrap_or(u32::MAX)
    }
}

/// A writer's expectation: it encodes the next message as if all it sent before counts, and moves behind it.
#[derive(Debug, Clone)]
pub struct Ahead {
    at: Place,
    /// Bytes of the newest segment that are acknowledged.
    acknowledged: u32,
}

impl Ahead {
    /// The next frame, of `count` records; `count` is at least 1. Panics above
    /// [`PAYLOAD_BYTES_MAX`](super::PAYLOAD_BYTES_MAX).
    pub fn frame(
        &mut self,
        payload: &[u8],
        count: u32,
        now_ms: i64,
        is_plausible: bool,
    ) -> Vec<u8> {
        assert!(count > 0, "BUG: a frame without records");
        self.encode(payload, count, now_ms, is_plausible)
    }

    /// The seal by which `owner` takes the log over, in the next epoch.
    pub fn take_over(&mut self, owner: Owner, now_ms: i64, is_plausible: bool) -> Vec<u8> {
        let epoch = self.at.cursor.epoch.checked_add(1);
        self.at.cursor.epoch = epoch.expect("BUG: four billion take-overs");
        self.at.owner = owner;
        self.encode(&owner.key(), 0, now_ms, is_plausible)
    }

    /// The header of the next segment. Panics where the newest segment has no record.
    pub fn header(&mut self, now_ms: i64) -> [u8; SEGMENT_HEADER_BYTES] {
        assert!(self.has_record(), "BUG: a segment without a record");
        let at = &mut self.at;
        let header = SegmentHeader {
            epoch: at.cursor.epoch,
            first_sequence: at.cursor.sequence,
            previous_first: at.first,
            created_ms: now_ms,
            store_id: at.store_id,
            previous_crc: at.cursor.crc,
        };
        let bytes = header.encode(Form::Plain);
        at.enter(&header, header_crc(&bytes));
        self.acknowledged = SEGMENT_HEADER_BYTES as u32;
        bytes
    }

    /// Notes that everything counts that `chain` judged.
    pub fn acknowledge(&mut self, chain: &Chain) {
        if chain.at.first == self.at.first {
            self.acknowledged = chain.segment_bytes();
        }
    }

    /// The offset behind the last record that was encoded.
    pub fn end(&self) -> Offset {
        Offset {
            epoch: self.at.cursor.epoch,
            sequence: self.at.cursor.sequence,
        }
    }

    /// The owner in whose name the messages are.
    pub fn owner(&self) -> Owner {
        self.at.owner
    }

    /// Whether the newest segment has a record.
    pub fn has_record(&self) -> bool {
        self.at.cursor.sequence > self.at.first
    }

    /// Size of the newest segment with one more frame, bytes.
    pub fn segment_bytes_with(&self, payload_bytes: usize) -> u64 {
        (self.at.cursor.offset + frame_bytes(payload_bytes)) as u64
    }

    fn encode(
        &mut self,
        payload: &[u8],
        count: u32,
        written_ms: i64,
        is_plausible: bool,
    ) -> Vec<u8> {
        let cursor = &mut self.at.cursor;
        let header = FrameHeader {
            epoch: cursor.epoch,
            count,
            first_sequence: cursor.sequence,
            written_ms,
            is_plausible,
            synced_bytes: self.acknowledged,
            previous_crc: cursor.crc,
            replaced: None,
        };
        let mut bytes = Vec::new();
        cursor.crc = frame::encode(&mut bytes, self.at.seed, &header, payload);
        cursor.offset += bytes.len();
        let end = cursor.sequence.checked_add(count.into());
        cursor.sequence = end.expect("BUG: record numbers above the range");
        bytes
    }
}

/// The properties that the next message must have.
#[derive(Debug, Clone)]
struct Place {
    owner: Owner,
    store_id: [u8; 16],
    /// First record of the newest segment.
    first: u64,
    /// CRC of the newest segment's header.
    seed: u32,
    cursor: Cursor,
}

impl Place {
    /// Moves behind the header of the next segment.
    fn enter(&mut self, header: &SegmentHeader, crc: u32) {
        self.first = header.first_sequence;
        self.seed = crc;
        self.cursor = Cursor::new(header, crc);
    }
}
