//! The log over a topic, as its one writer: it appends frames, and acknowledges those that count for every reader.
//!
//! Several nodes may believe to be the writer. Each looks at what stands before its own message before the message is
//! acknowledged ([`super::Chain`] has the rule), so at most one of them is right, and the others learn it. After any
//! failure of which nobody knows the outcome the log takes no more writes. The node then follows it again
//! ([`Log::step_down`]), and what was not acknowledged counts for the node only if its tail passes it on.

use std::collections::VecDeque;
use std::io::ErrorKind;
use std::sync::Arc;

use tallyring_archive::names;

use super::chain::{Ahead, Chain};
use super::clock_watch::ClockWatch;
use super::error::{OplogError, Result};
use super::frame::{PAYLOAD_BYTES_MAX, frame_bytes};
use super::log::Log;
use super::messages::failed;
use super::recovery::Apply;
use super::segments::Segments;
use super::spare::Spare;
use super::tail::{Tail, Taken};
use super::topic::{Message, Owner, TopicWriter};
use super::writer::DurableEnd;

/// Messages that are sent before the topic tells of the first, at most.
const IN_FLIGHT_MAX: usize = 5;
/// Bytes of them after which no more is sent.
const IN_FLIGHT_BYTES_MAX: usize = PAYLOAD_BYTES_MAX;

/// The log over a topic, open for appending. It has one owner.
pub struct TopicLog {
    /// The mirror. It lacks the end of the log once its disk failed.
    tail: Tail,
    /// All that counts.
    chain: Chain,
    writer: Box<dyn TopicWriter>,
    /// Messages that the topic did not tell of yet, oldest first.
    sent: VecDeque<Vec<u8>>,
    sent_bytes: usize,
    /// The log if all that was sent counts.
    ahead: Ahead,
    /// Sequence number after the last record that a commit acknowledged.
    acknowledged: u64,
    /// Why the mirror takes no more.
    mirror_fault: Option<String>,
    /// Why nothing can be written any more.
    lost: Option<String>,
}

/// A log that was not taken over.
pub struct NotTaken {
    /// The tail, which can be used again.
    pub tail: Tail,
    /// The reason.
    pub error: OplogError,
}

impl TopicLog {
    /// Brings the tail up to the end of the topic, and takes the log over by a seal of the next epoch in the name of
    /// `owner`, which no take-over had before. Records on the way are passed on to `apply`. Fails with
    /// [`OplogError::Deposed`] where another node wrote meanwhile, with [`OplogError::TopicCut`], and as [`Tail::step`]
    /// does; the caller tries later.
    pub fn take_over(
        mut tail: Tail,
        owner: Owner,
        now_ms: i64,
        apply: Apply<'_>,
    ) -> Result<Self, Box<NotTaken>> {
        match seal(&mut tail, owner, now_ms, apply) {
            Ok(writer) => Ok(Self {
                chain: tail.chain().clone(),
                ahead: tail.chain().ahead(),
                acknowledged: tail.end().sequence,
                tail,
                writer,
                sent: VecDeque::new(),
                sent_bytes: 0,
                mirror_fault: None,
                lost: None,
            }),
            Err(error) => Err(Box::new(NotTaken { tail, error })),
        }
    }

    /// As [`Tail::sync`].
    pub fn sync(&mut self) -> Result<()> {
        self.tail.sync()
    }

    /// Sends the header of the next segment, unless the disk has no room for its mirror.
    fn roll(&mut self, now_ms: i64) -> Result<()> {
        let segments = self.tail.segments();
        let free = segments.disk.free_bytes();
        if free.is_ok_and(|free| free < segments.options.segment_bytes) {
            let name = names::segment(self.appended());
            let full = ErrorKind::StorageFull.into();
            return Err(OplogError::full_or_io(&name, "a new segment")(full));
        }
        self.make_way()?;
        let mut ahead = self.ahead.clone();
        let bytes = ahead.header(now_ms).to_vec();
        self.send(ahead, bytes)
    }

    /// Waits until one more message may be under way.
    fn make_way(&mut self) -> Result<()> {
        while self.sent.len() >= IN_FLIGHT_MAX || self.sent_bytes > IN_FLIGHT_BYTES_MAX {
            self.settle()?;
        }
        Ok(())
    }

    fn send(&mut self, ahead: Ahead, bytes: Vec<u8>) -> Result<()> {
        if let Err(error) = self.writer.send(&bytes) {
            return Err(self.lose(error.to_string()));
        }
        // Own messages are judged without a reader, unless others send, too.
        self.tail.forget_reader();
        self.ahead = ahead;
        self.sent_bytes += bytes.len();
        self.sent.push_back(bytes);
        Ok(())
    }

    /// Waits for the oldest message that is under way: it counts, or the log is lost.
    fn settle(&mut self) -> Result<()> {
        let bytes = self.sent.pop_front().expect("BUG: nothing is under way");
        self.sent_bytes -= bytes.len();
        let told = match self.writer.told() {
            Ok(told) => told,
            Err(error) => return Err(self.lose(error.to_string())),
        };
        let settled = match told {
            Some(offset) if offset == self.chain.next() => self.take_own(offset, bytes),
            _ => self.look_for(told, &bytes),
        };
        match settled {
            Ok(()) => {
                self.ahead.acknowledge(&self.chain);
                Ok(())
            }
            Err(cause) => Err(self.lose(cause)),
        }
    }

    /// Takes the own message, before which everything was judged. The error says why the log is lost.
    fn take_own(&mut self, offset: u64, bytes: Vec<u8>) -> Result<(), String> {
        let message = Message {
            offset,
            owner: self.ahead.owner(),
            bytes,
        };
        match self.take(&message) {
            Taken::Counts => Ok(()),
            Taken::Over | Taken::Void => Err("a message that was sent is void".to_owned()),
        }
    }

    /// Judges what stands before the own message, and the message. The error says why the log is lost.
    fn look_for(&mut self, told: Option<u64>, bytes: &[u8]) -> Result<(), String> {
        let end = match told {
            Some(offset) => offset.saturating_add(1),
            None => self.topic_end().map_err(|error| error.to_string())?,
        };
        while let Some((taken, message)) =
            self.read_before(end).map_err(|error| error.to_string())?
        {
            match taken {
                Taken::Void => {}
                Taken::Counts if message.bytes == bytes => return Ok(()),
                Taken::Counts => {
                    return Err("the topic has another message than was sent".to_owned());
                }
                Taken::Over => return Err(TAKEN_OVER.to_owned()),
            }
        }
        Err("a message that was sent is void".to_owned())
    }

    /// Judges what others appended while nothing is under way.
    fn look(&mut self) -> Result<()> {
        let end = self.topic_end()?;
        if let Err(error) = self.tail.check_end(end) {
            return Err(self.lose(error.to_string()));
        }
        while let Some((taken, _)) = self.read_before(end)? {
            match taken {
                Taken::Void => {}
                Taken::Over => return Err(self.lose(TAKEN_OVER.to_owned())),
                Taken::Counts => {
                    let cause = "a message counts that this node did not send";
                    return Err(self.lose(cause.to_owned()));
                }
            }
        }
        Ok(())
    }

    fn topic_end(&self) -> Result<u64> {
        let range = self.tail.topic().range().map_err(failed("look at"))?;
        Ok(range.end)
    }

    /// Reads and judges the next message before offset `end`; none where all were judged.
    fn read_before(&mut self, end: u64) -> Result<Option<(Taken, Message)>> {
        let next = self.chain.next();
        if next >= end {
            return Ok(None);
        }
        let message = self.tail.read_at(next)?;
        Ok(Some((self.take(&message), message)))
    }

    /// Judges the next message. The mirror takes it, too, until its disk fails.
    fn take(&mut self, message: &Message) -> Taken {
        if self.mirror_fault.is_none() {
            match self.tail.take(message, &mut |_| Ok(())) {
                Ok(taken) => {
                    self.chain.clone_from(self.tail.chain());
                    return taken;
                }
                Err(error) => self.mirror_fault = Some(error.to_string()),
            }
        }
        Taken::of(&self.chain.judge(message))
    }

    fn check_bytes(&self, payload: &[u8]) -> Result<()> {
        let bytes = payload.len();
        let header_bytes = frame_bytes(0);
        let topic_max = self.tail.topic().message_bytes_max();
        let bytes_max = PAYLOAD_BYTES_MAX.min(topic_max.saturating_sub(header_bytes) & !7);
        match bytes <= bytes_max {
            true => Ok(()),
            false => Err(OplogError::TooLarge { bytes, bytes_max }),
        }
    }

    fn check_lost(&self) -> Result<()> {
        match self.lost.as_ref().or(self.mirror_fault.as_ref()) {
            Some(cause) => Err(self.deposed(cause.clone())),
            None => Ok(()),
        }
    }

    /// Ends all writing: every later call gets the first cause.
    fn lose(&mut self, cause: String) -> OplogError {
        let cause = self.lost.get_or_insert(cause).clone();
        self.deposed(cause)
    }

    fn deposed(&self, cause: String) -> OplogError {
        OplogError::Deposed {
            epoch: self.epoch(),
            cause,
        }
    }
}

impl Log for TopicLog {
    /// As the trait says. Some frames are under way at once; after that the call waits for the oldest.
    fn append(&mut self, payload: &[u8], count: u32, now_ms: i64) -> Result<u64> {
        self.check_lost()?;
        self.check_bytes(payload)?;
        self.tail.segments().check_limit(payload.len(), 0)?;
        let segment_bytes = self.tail.options().segment_bytes;
        let is_full = self.ahead.segment_bytes_with(payload.len()) > segment_bytes;
        if is_full && self.ahead.has_record() {
            self.roll(now_ms)?;
        }
        self.make_way()?;
        let is_plausible = self.tail.clock_mut().see(now_ms);
        let mut ahead = self.ahead.clone();
        let first_sequence = ahead.end().sequence;
        let bytes = ahead.frame(payload, count, now_ms, is_plausible);
        self.send(ahead, bytes)?;
        Ok(first_sequence)
    }

    /// Waits until every appended frame counts for all readers. With nothing under way, looks whether another node took
    /// the log over.
    fn commit(&mut self) -> Result<u64> {
        if let Some(cause) = &self.lost {
            return Err(self.deposed(cause.clone()));
        }
        if self.sent.is_empty() {
            self.look()?;
        }
        while !self.sent.is_empty() {
            self.settle()?;
        }
        // Records that count are acknowledged, whatever the mirror has of them.
        self.lost = self.mirror_fault.take();
        self.acknowledged = self.chain.end().sequence;
        Ok(self.acknowledged)
    }

    /// Commits: nothing is ever torn.
    fn seal(&mut self, _now_ms: i64) -> Result<()> {
        self.commit().map(drop)
    }

    /// As the trait says, and commits.
    fn begin_segment(&mut self, now_ms: i64) -> Result<()> {
        self.check_lost()?;
        if self.ahead.has_record() {
            let segment_bytes = self.tail.options().segment_bytes;
            self.tail.segments().check_growth(segment_bytes, 0)?;
            self.roll(now_ms)?;
            self.commit()?;
        }
        Ok(())
    }

    /// As the trait says. Before a segment goes, its messages are removed from the topic, for all nodes. The call can
    /// be repeated after [`OplogError::Topic`] and [`OplogError::Io`].
    fn trim(&mut self, sequence: u64, older_than_ms: i64, at_most: usize) -> Result<usize> {
        self.check_lost()?;
        self.tail.trim_topic(sequence, older_than_ms, at_most)
    }

    fn epoch(&self) -> u32 {
        self.ahead.end().epoch
    }

    fn appended(&self) -> u64 {
        self.ahead.end().sequence
    }

    fn durable(&self) -> u64 {
        self.acknowledged
    }

    /// The part of the mirror that counts for all readers, synced or not.
    fn durable_end(&self) -> DurableEnd {
        let segments = self.segments();
        DurableEnd {
            oldest: segments.list()[0].first_sequence,
            newest: segments.newest().first_sequence,
            bytes: segments.end(),
            sequence: segments.newest().end_sequence,
        }
    }

    fn segments(&self) -> &Segments {
        self.tail.segments()
    }

    fn segments_mut(&mut self) -> &mut Segments {
        self.tail.segments_mut()
    }

    fn clock(&self) -> &ClockWatch {
        self.tail.clock()
    }

    fn clock_mut(&mut self) -> &mut ClockWatch {
        self.tail.clock_mut()
    }

    fn spare(&self) -> Option<Arc<Spare>> {
        None
    }

    fn is_shared(&self) -> bool {
        true
    }

    fn has_failed(&self) -> bool {
        self.lost.is_some()
    }

    fn step_down(mut self: Box<Self>) -> Option<Tail> {
        self.tail.go_on_from(self.acknowledged);
        Some(self.tail)
    }
}

const TAKEN_OVER: &str = "another node took the log over";

/// Reads to the end, sends the seal of the next epoch, and judges what came before it.
fn seal(
    tail: &mut Tail,
    owner: Owner,
    now_ms: i64,
    apply: Apply<'_>,
) -> Result<Box<dyn TopicWriter>> {
    let range = tail.topic().range().map_err(failed("look at"))?;
    tail.check_end(range.end)?;
    tail.read_to(range.end, apply)?;
    if tail.options().trusts_clock {
        tail.clock_mut().believe(now_ms);
    }
    let is_plausible = tail.clock_mut().see(now_ms);
    let mut ahead = tail.chain().ahead();
    let bytes = ahead.take_over(owner, now_ms, is_plausible);
    let mut writer = tail.topic().writer(owner).map_err(failed("write to"))?;
    writer.send(&bytes).map_err(failed("write to"))?;
    let end = match writer.told().map_err(failed("take over"))? {
        Some(offset) => offset.saturating_add(1),
        None => tail.topic().range().map_err(failed("look at"))?.end,
    };
    tail.read_to(end, apply)?;
    match tail.owner() == owner {
        true => Ok(writer),
        false => Err(OplogError::Deposed {
            epoch: ahead.end().epoch,
            cause: "another node wrote meanwhile".to_owned(),
        }),
    }
}
