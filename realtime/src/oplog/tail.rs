//! Follows the log of a topic: judges messages, keeps them in a mirror, and passes their records on.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tallyring_archive::{Disk, names};
use tallyring_records::Offset;

use super::chain::{Chain, Verdict};
use super::clock_watch::ClockWatch;
use super::error::{OplogError, Result};
use super::frame::Frame;
use super::headers::HeaderAt;
use super::messages::{Messages, failed};
use super::mirror::{self, Mirror};
use super::recovery::{Apply, read_on};
use super::segments::Segments;
use super::spare::remove_spares;
use super::survey::{Start, survey};
use super::topic::{Message, Owner, Topic};
use super::writer::{LogOptions, check_segment_bytes};

/// A reader of the log that keeps its mirror: segments in the directory of a log, which all readers of logs read. It
/// has one owner, and a data directory has one.
pub struct Tail {
    disk: Arc<dyn Disk>,
    messages: Messages,
    chain: Chain,
    mirror: Mirror,
    clock: ClockWatch,
    /// Sequence number after the last record that was passed on. The mirror may have more, and less.
    passed: u64,
    voids: BTreeMap<&'static str, u64>,
    /// Their number, for a thread that does not have the tail.
    void_count: Arc<AtomicU64>,
}

/// The part of a message in the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Taken {
    /// It counts.
    Counts,
    /// It counts, and the log has another owner.
    Over,
    Void,
}

impl Taken {
    pub(super) fn of(verdict: &Verdict<'_>) -> Self {
        match verdict {
            Verdict::Frame(_) | Verdict::Segment { .. } => Self::Counts,
            Verdict::TakenOver(_) => Self::Over,
            Verdict::Void(_) => Self::Void,
        }
    }
}

impl Tail {
    /// Opens the mirror, and brings it up to the end of the topic; the caller reads the records from its segments.
    /// Segments that a crash may have torn are written anew. Fails with [`OplogError::TopicDiffers`] and
    /// [`OplogError::MirrorBehind`] where the mirror is not of this topic, and with [`OplogError::NoLog`],
    /// [`OplogError::ForeignStore`] and [`OplogError::Version`]; all of them remove and write nothing. Fails with
    /// [`OplogError::Topic`], [`OplogError::Full`] and [`OplogError::Io`], too. Panics when the options are out of
    /// bounds.
    pub fn open(disk: Arc<dyn Disk>, topic: Arc<dyn Topic>, options: LogOptions) -> Result<Self> {
        check_segment_bytes(&options);
        disk.create_directory(names::OPLOG)
            .map_err(OplogError::io(names::OPLOG, "create directory"))?;
        disk.sync_directory("")
            .map_err(OplogError::io("", "sync directory"))?;
        let mut messages = Messages::new(topic);
        let start = survey(&*disk, &mut messages, options.store_id)?;
        remove_spares(&*disk).map_err(OplogError::io(names::OPLOG, "remove temporary files"))?;
        messages.forget();
        let Start {
            header,
            older,
            headers,
            end,
        } = start;
        let mut tail = Self {
            chain: Chain::begin(&header, options.store_id)?,
            mirror: Mirror::begin(Arc::clone(&disk), options, older, headers, &header)?,
            disk,
            messages,
            clock: ClockWatch::new(options.plausible_ms),
            // Nothing is passed on before the end: the caller reads the segments.
            passed: u64::MAX,
            voids: BTreeMap::new(),
            void_count: Arc::default(),
        };
        tail.read_to(end, &mut |_| Ok(()))?;
        tail.passed = tail.end().sequence;
        Ok(tail)
    }

    /// Reads the next message, waiting for one for `wait` at most, and passes its records on to `apply` once the mirror
    /// has them. Records that the mirror already has and that were not passed on come first. Returns false where
    /// nothing came. A failure, that of `apply` too, changes nothing, and the call can be repeated; fails with
    /// [`OplogError::Topic`], [`OplogError::Full`], [`OplogError::Io`] and [`OplogError::Apply`].
    pub fn step(&mut self, wait: Duration, apply: Apply<'_>) -> Result<bool> {
        if self.passed < self.end().sequence {
            self.pass_on(apply)?;
            return Ok(true);
        }
        let message = self.messages.next(self.chain.next(), wait)?;
        let Some(message) = message else {
            return Ok(false);
        };
        self.take_read(&message, apply)?;
        Ok(true)
    }

    /// Offset of the next message in the topic: all before were judged.
    pub fn next(&self) -> u64 {
        self.chain.next()
    }

    /// The offset behind the last record of the log, in its last epoch.
    pub fn end(&self) -> Offset {
        self.chain.end()
    }

    /// The owner of the log.
    pub fn owner(&self) -> Owner {
        self.chain.owner()
    }

    /// The segments of the mirror.
    pub fn segments(&self) -> &Segments {
        self.mirror.segments()
    }

    /// The segments of the mirror, to pack them.
    pub fn segments_mut(&mut self) -> &mut Segments {
        self.mirror.segments_mut()
    }

    /// The writers' clocks, as the frames of the log know them.
    pub fn clock(&self) -> &ClockWatch {
        &self.clock
    }

    /// How many messages were void, by the reason, since the mirror was opened.
    pub fn voids(&self) -> &BTreeMap<&'static str, u64> {
        &self.voids
    }

    /// The number of void messages, which goes on to rise.
    pub(crate) fn void_count(&self) -> Arc<AtomicU64> {
        Arc::clone(&self.void_count)
    }

    /// Syncs the segments that are written no more, so that the next start does not read them anew from the topic. Not
    /// for the path of a commit: it writes as much as these segments are large. Fails with [`OplogError::Io`] and
    /// [`OplogError::Full`]; the call can be repeated.
    pub fn sync(&mut self) -> Result<()> {
        self.mirror.sync()
    }

    /// Removes the oldest segments of the mirror whose records are all below `sequence` and were written before
    /// `older_than_ms` (Unix milliseconds), `at_most` so many, and never the newest. The topic stays as it is. Returns
    /// the number of removed segments. Fails with [`OplogError::Io`]; the call can be repeated.
    pub fn trim(&mut self, sequence: u64, older_than_ms: i64, at_most: usize) -> Result<usize> {
        let mut removed = 0;
        while removed < at_most
            && self
                .mirror
                .segments()
                .may_remove_oldest(sequence, older_than_ms)
        {
            self.mirror.remove_oldest()?;
            removed += 1;
        }
        Ok(removed)
    }

    /// As [`Self::trim`]; before a segment goes, its messages are removed from the topic.
    pub(super) fn trim_topic(
        &mut self,
        sequence: u64,
        older_than_ms: i64,
        at_most: usize,
    ) -> Result<usize> {
        let mut removed = 0;
        let segments = |tail: &Self| {
            tail.mirror
                .segments()
                .may_remove_oldest(sequence, older_than_ms)
        };
        while removed < at_most && segments(self) {
            let next = self.segments().list()[1].first_sequence;
            if let Some(at) = self.mirror.header_of(next) {
                remove_before(self.topic(), at)?;
            }
            self.mirror.remove_oldest()?;
            removed += 1;
        }
        Ok(removed)
    }

    /// Checks that the topic, which ends at offset `end`, still has all that was judged.
    pub(super) fn check_end(&self, end: u64) -> Result<()> {
        let next = self.next();
        match end < next {
            true => Err(OplogError::TopicCut { end, next }),
            false => Ok(()),
        }
    }

    /// Passes on what counts up to offset `end` of the topic, which is there.
    pub(super) fn read_to(&mut self, end: u64, apply: Apply<'_>) -> Result<()> {
        if self.passed < self.end().sequence {
            self.pass_on(apply)?;
        }
        while self.next() < end {
            let message = self.messages.next_there(self.next())?;
            self.take_read(&message, apply)?;
        }
        Ok(())
    }

    /// Notes that the records before `sequence` were passed on, and none behind. Lets the next read ask the topic.
    pub(super) fn go_on_from(&mut self, sequence: u64) {
        self.passed = sequence;
        self.messages.forget();
    }

    /// The message at offset `next` of the topic, which is there.
    pub(super) fn read_at(&mut self, next: u64) -> Result<Message> {
        self.messages.next_there(next)
    }

    /// Lets the next read ask the topic.
    pub(super) fn forget_reader(&mut self) {
        self.messages.forget();
    }

    pub(super) fn topic(&self) -> &Arc<dyn Topic> {
        self.messages.topic()
    }

    pub(super) fn chain(&self) -> &Chain {
        &self.chain
    }

    pub(super) fn options(&self) -> &LogOptions {
        &self.segments().options
    }

    pub(super) fn clock_mut(&mut self) -> &mut ClockWatch {
        &mut self.clock
    }

    /// As [`Self::take`], of a message that was read: after a failure it is read again.
    fn take_read(&mut self, message: &Message, apply: Apply<'_>) -> Result<Taken> {
        let taken = self.take(message, apply);
        if taken.is_err() {
            self.messages.forget();
        }
        taken
    }

    /// Judges the next message, and takes it into the mirror if it counts. A failure changes nothing.
    pub(super) fn take(&mut self, message: &Message, apply: Apply<'_>) -> Result<Taken> {
        let mut chain = self.chain.clone();
        let verdict = chain.judge(message);
        match &verdict {
            Verdict::Void(why) => {
                *self.voids.entry(why).or_default() += 1;
                self.void_count.fetch_add(1, Ordering::Relaxed);
            }
            Verdict::Segment { .. } => self.mirror.begin_segment(message)?,
            Verdict::Frame(frame) | Verdict::TakenOver(frame) => {
                self.take_frame(frame, message, apply)?;
            }
        }
        let taken = Taken::of(&verdict);
        self.chain = chain;
        Ok(taken)
    }

    fn take_frame(&mut self, frame: &Frame<'_>, message: &Message, apply: Apply<'_>) -> Result<()> {
        self.mirror.put(&message.bytes)?;
        let end = frame.first_sequence + u64::from(frame.count);
        if frame.count > 0 && end > self.passed {
            apply(*frame).map_err(|source| OplogError::Apply {
                file: self.mirror.segments().newest().file.clone(),
                offset: self.mirror.segments().end(),
                sequence: frame.first_sequence,
                source,
            })?;
            self.passed = end;
        }
        self.mirror.grown(frame, message.bytes.len());
        if frame.is_plausible {
            self.clock.believe(frame.written_ms);
        }
        Ok(())
    }

    /// Passes on what the mirror has and was not passed on.
    fn pass_on(&mut self, apply: Apply<'_>) -> Result<()> {
        let end = self.end().sequence;
        while self.passed < end {
            let from = self.passed;
            let passed = &mut self.passed;
            read_on(&*self.disk, from, &mut |frame| {
                apply(frame)?;
                *passed = frame.first_sequence + u64::from(frame.count);
                Ok(ControlFlow::Continue(()))
            })?;
            if self.passed == from {
                return Err(OplogError::Missing {
                    file: names::segment(from),
                    from,
                    next: end,
                });
            }
        }
        Ok(())
    }
}

/// Removes the messages before the header of a segment from the topic. Checks that the header is there: what is removed
/// is gone for all nodes.
fn remove_before(topic: &Arc<dyn Topic>, at: HeaderAt) -> Result<()> {
    if topic.range().map_err(failed("look at"))?.start >= at.offset {
        return Ok(());
    }
    let message = Messages::new(Arc::clone(topic)).next_there(at.offset)?;
    let found = mirror::decode(&message).map(|header| mirror::at(&header, &message))?;
    if found != at {
        return Err(OplogError::NoLog { offset: at.offset });
    }
    topic.remove_before(at.offset).map_err(failed("trim"))
}
