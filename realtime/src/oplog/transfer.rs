//! Sends the log of one directory to a topic, from which several nodes go on.
//!
//! The messages are the frames as the segments have them, whatever the form of their files, and the headers in the
//! plain form. So numbers, epochs and the chain of checksums go on, also over payloads that were replaced. The
//! topic always has a beginning of the log: a transfer that was stopped goes on where the topic ends, in the name of
//! the same owner, and what was sent twice is void.

use std::collections::VecDeque;
use std::sync::Arc;

use tallyring_archive::Disk;

use super::chain::{Chain, Verdict};
use super::cursor::{ChainPoint, Cursor, Step};
use super::entries::{Entry, list};
use super::error::{OplogError, Result};
use super::messages::{Messages, failed};
use super::packed::SegmentBytes;
use super::recovery::{check_end, corrupt};
use super::segment::Form;
use super::topic::{Owner, Topic, TopicError, TopicWriter};
use super::window::{Source, Window};

/// Messages that are sent before the topic tells of the first, at most.
const IN_FLIGHT_MAX: usize = 5;
/// Bytes of them after which no more is sent.
const IN_FLIGHT_BYTES_MAX: usize = 16 << 20;

/// A log on its way to a topic. Nobody writes the log meanwhile.
pub struct Transfer<'d> {
    disk: &'d dyn Disk,
    messages: Messages,
    store_id: [u8; 16],
    segments: Vec<Entry>,
    /// The messages that the topic has; none where it is empty.
    there: Option<Chain>,
    sent: Place,
    end: Place,
}

/// A place between two messages of the log.
#[derive(Debug, Clone, Copy, Default)]
struct Place {
    /// First record of the segment.
    first: u64,
    /// Position in the plain segment, bytes; 0 before its header.
    offset: usize,
    point: Option<ChainPoint>,
    /// Bytes of all messages of the log before.
    bytes: u64,
}

impl<'d> Transfer<'d> {
    /// Reads all of the log, and what the topic has of it; changes nothing. Fails with [`OplogError::TopicInUse`] where
    /// the topic has anything else, or where a node wrote to it; with [`OplogError::Topic`], also where a message is
    /// larger than the topic takes; and where the log is damaged, missing, or torn at its end.
    pub fn prepare(disk: &'d dyn Disk, topic: Arc<dyn Topic>, store_id: [u8; 16]) -> Result<Self> {
        let bytes_max = topic.message_bytes_max();
        let mut messages = Messages::new(topic);
        let there = judged(&mut messages, store_id, None)?;
        let segments = list(disk, Some(store_id))?;
        let (mut sent, mut end) = (None, Place::default());
        for (index, segment) in segments.iter().enumerate() {
            let next = segments.get(index + 1);
            each_message(disk, segment, next, &mut |cursor, message| {
                if message.len() > bytes_max {
                    let bytes = message.len();
                    return Err(failed("take the log")(TopicError::TooLarge { bytes }));
                }
                end = end.behind(segment, cursor, message);
                if there.as_ref().is_some_and(|there| end.is_end_of(there)) {
                    sent = Some(end);
                }
                Ok(())
            })?;
        }
        let sent = match &there {
            None => Place::default(),
            Some(there) => sent.ok_or(OplogError::TopicInUse { end: there.next() })?,
        };
        Ok(Self {
            disk,
            messages,
            store_id,
            segments,
            there,
            sent,
            end,
        })
    }

    /// Bytes of the messages that the topic lacked at the beginning.
    pub fn bytes(&self) -> u64 {
        self.end.bytes - self.sent.bytes
    }

    /// Sequence number after the last record of the log.
    pub fn end(&self) -> u64 {
        self.end.point.map_or(0, |point| point.sequence)
    }

    /// Sends what the topic lacks, and reads back that all of the log counts there. `owner` is new, as for a take-over;
    /// the owner of an earlier transfer is taken instead. `progress` gets the bytes that were sent. Fails as
    /// [`Self::prepare`] does, also where a message of an earlier transfer comes late; the transfer can begin again
    /// then, from its preparation.
    pub fn run(mut self, owner: Owner, progress: &dyn Fn(u64)) -> Result<()> {
        let owner = self.there.as_ref().map_or(owner, Chain::owner);
        let writer = self.messages.topic().writer(owner);
        let mut pipe = Pipe {
            writer: writer.map_err(failed("write to"))?,
            under_way: VecDeque::new(),
            bytes: 0,
        };
        let (sent, mut done) = (self.sent, 0);
        let begin = |segment: &&Entry| segment.header.first_sequence >= sent.first;
        for (index, segment) in self
            .segments
            .iter()
            .enumerate()
            .filter(|(_, one)| begin(one))
        {
            let is_first = segment.header.first_sequence == sent.first;
            let next = self.segments.get(index + 1);
            each_message(self.disk, segment, next, &mut |cursor, message| {
                if is_first && cursor.offset <= sent.offset {
                    return Ok(());
                }
                pipe.send(message)?;
                if sent.offset == 0 && done == 0 {
                    // A topic that begins with anything but a header is of no use any more.
                    pipe.settle_to(0)?;
                }
                done += message.len() as u64;
                progress(done);
                Ok(())
            })?;
        }
        pipe.settle_to(0)?;
        self.messages.forget();
        let there = judged(&mut self.messages, self.store_id, self.there)?;
        match there {
            Some(there) if self.end.is_end_of(&there) => Ok(()),
            there => Err(OplogError::TopicInUse {
                end: there.map_or(0, |there| there.next()),
            }),
        }
    }
}

impl Place {
    /// The place behind a message of this segment, which ends at the cursor.
    fn behind(self, segment: &Entry, cursor: &Cursor, message: &[u8]) -> Self {
        Self {
            first: segment.header.first_sequence,
            offset: cursor.offset,
            point: Some(cursor.point()),
            bytes: self.bytes + message.len() as u64,
        }
    }

    fn is_end_of(&self, chain: &Chain) -> bool {
        self.first == chain.first() && self.point == Some(chain.point())
    }
}

/// Messages under way to the topic.
struct Pipe {
    writer: Box<dyn TopicWriter>,
    /// Sizes of those that the topic did not tell of yet, oldest first.
    under_way: VecDeque<usize>,
    bytes: usize,
}

impl Pipe {
    fn send(&mut self, message: &[u8]) -> Result<()> {
        self.settle_to(IN_FLIGHT_MAX - 1)?;
        self.writer.send(message).map_err(failed("write to"))?;
        self.under_way.push_back(message.len());
        self.bytes += message.len();
        Ok(())
    }

    /// Waits until no more than `most` messages are under way, and not too many bytes.
    fn settle_to(&mut self, most: usize) -> Result<()> {
        while self.under_way.len() > most || self.bytes > IN_FLIGHT_BYTES_MAX {
            self.writer.told().map_err(failed("write to"))?;
            self.bytes -= self.under_way.pop_front().unwrap_or_default();
        }
        Ok(())
    }
}

/// Judges the messages of the topic that `there` did not judge yet, up to its end. None where the topic is empty.
fn judged(
    messages: &mut Messages,
    store_id: [u8; 16],
    there: Option<Chain>,
) -> Result<Option<Chain>> {
    let range = messages.topic().range().map_err(failed("look at"))?;
    let in_use = || OplogError::TopicInUse { end: range.end };
    let mut chain = match there {
        Some(chain) => chain,
        None if range.is_empty() && range.end == 0 => return Ok(None),
        None if range.is_empty() => return Err(in_use()),
        None => match Chain::begin(&messages.next_there(range.start)?, store_id) {
            Err(OplogError::NoLog { .. } | OplogError::ForeignStore { .. }) => {
                return Err(in_use());
            }
            begun => begun?,
        },
    };
    while chain.next() < range.end {
        let message = messages.next_there(chain.next())?;
        if let Verdict::TakenOver(_) = chain.judge(&message) {
            return Err(in_use());
        }
    }
    Ok(Some(chain))
}

/// A function that gets a message, and the cursor behind it.
type Visit<'a> = &'a mut dyn FnMut(&Cursor, &[u8]) -> Result<()>;

/// Visits the header and all frames of a segment, and checks its end: the segment that follows, or zeros.
fn each_message(
    disk: &dyn Disk,
    segment: &Entry,
    next: Option<&Entry>,
    visit: Visit<'_>,
) -> Result<()> {
    let mut cursor = segment.start();
    visit(&cursor, &segment.header.encode(Form::Plain))?;
    let bytes = SegmentBytes::open(disk, &segment.file)?;
    let mut window = Window::new(Source::File(bytes));
    let problem = loop {
        let before = cursor;
        let rest = window.frame(before.offset, segment.crc)?;
        match cursor.step(rest, segment.crc) {
            Step::Frame(_) => visit(&cursor, &rest[..cursor.offset - before.offset])?,
            Step::End => break None,
            Step::Broken(problem) => break Some(problem),
            Step::Misplaced(problem) => return Err(corrupt(segment, &before, problem)),
        }
    };
    match (next, problem) {
        (Some(next), problem) => check_end(&mut window, segment, &cursor, problem, next),
        (None, Some(problem)) => Err(corrupt(segment, &cursor, problem)),
        (None, None) => Ok(()),
    }
}
