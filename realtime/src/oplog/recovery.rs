//! Reads the log: the list of segments, then every frame from a start on. Repairs nothing.

use std::ops::ControlFlow;

use tallyring_archive::{Disk, names};

use super::cursor::{Cursor, Step, Tail, judge_tail};
use super::entries::{Entry, list, read_header, sequence_of};
use super::error::{ApplyError, OplogError, Result};
use super::frame::Frame;
use super::packed::SegmentBytes;
use super::segment::{Form, SegmentHeader, SegmentInfo};
use super::window::{Source, Window};

/// The start of a read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReadFrom {
    /// The oldest remaining segment.
    Oldest,
    /// The frame that holds this record; nothing is read when the log ends before it.
    Sequence(u64),
}

/// Findings of a read.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct LogSummary {
    /// Number of segments, including those before the start.
    pub segments: usize,
    /// Number of frames that were passed on.
    pub frames: u64,
    /// Sequence number of the oldest remaining record.
    pub oldest_sequence: u64,
    /// Sequence number after the last record. A file that names a start above it is ahead of the log: discard the file.
    pub end_sequence: u64,
    /// The last epoch that was written.
    pub epoch: u32,
    /// A write that a crash tore; [`super::FileLog::open`] cuts it.
    pub torn: Option<TornTail>,
}

/// A write that no sync covered, so that nothing in it was acknowledged as durable.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TornTail {
    /// The newest segment.
    pub file: String,
    /// Position of the write in the file, bytes.
    pub offset: u64,
    /// Bytes from there to the last byte that is not zero.
    pub bytes: u64,
}

/// The end of the log, where a writer continues.
pub(super) struct LogEnd {
    pub summary: LogSummary,
    /// Segments, oldest first, never empty.
    pub segments: Vec<SegmentInfo>,
    pub cursor: Cursor,
    /// Time of the last frame under a plausible clock, among the frames that were read (Unix milliseconds).
    pub plausible_ms: Option<i64>,
    /// CRC of the newest segment's header.
    pub seed: u32,
}

/// Chooses a segment by the UTC days of its events: numbers from 2000-01-01 on, and how many events.
pub type ReadsDays<'a> = &'a mut dyn FnMut(&[(u32, u64)]) -> bool;

/// Obeys a frame of records.
pub type Apply<'a> = &'a mut dyn FnMut(Frame<'_>) -> Result<(), ApplyError>;

/// As [`Apply`], until it breaks.
type ApplyUntil<'a> = &'a mut dyn FnMut(Frame<'_>) -> Result<ControlFlow<()>, ApplyError>;

/// Reads the log without changing anything, and passes on every frame with records from the start on, including frames
/// that are not durable yet. The read ends at a torn tail, which the summary names. A scan may run at the same time as
/// the writer, whose last frame may then look torn, unless segments are removed meanwhile. `store_id` is checked if
/// given. A scan holds a piece of one segment in memory. Fails where [`super::FileLog::open`] would refuse the log.
pub fn scan(
    disk: &dyn Disk,
    store_id: Option<[u8; 16]>,
    from: ReadFrom,
    apply: Apply<'_>,
) -> Result<LogSummary> {
    Ok(read_log(disk, store_id, from, apply)?
        .map(|end| end.summary)
        .unwrap_or_default())
}

/// As [`scan`], but leaves out segments that say which UTC days their events have, unless `reads` chooses them. Plain
/// segments do not say it, and are read.
pub fn scan_some(
    disk: &dyn Disk,
    from: ReadFrom,
    reads: ReadsDays<'_>,
    apply: Apply<'_>,
) -> Result<LogSummary> {
    Ok(read_some(disk, None, from, reads, apply)?
        .map(|end| end.summary)
        .unwrap_or_default())
}

/// Passes on the frames that hold these records, which ascend; each frame comes once. A plain segment is read once, up
/// to the last of its records, and a packed one in the parts that hold them, each once. Fails as [`scan`] does, and
/// with [`OplogError::Missing`] where the segment of a record is gone; frames may have been passed on before.
pub fn read_each(disk: &dyn Disk, sequences: &[u64], apply: Apply<'_>) -> Result<()> {
    let mut rest = sequences;
    while let Some(&first) = rest.first() {
        let segment = SegmentOf::open(disk, first)?;
        let from = segment.start(first).offset;
        let is_together = |sequence: &u64| {
            segment.next.is_none_or(|next| *sequence < next)
                && segment.start(*sequence).offset == from
        };
        let (mut wanted, others) = rest.split_at(rest.partition_point(is_together));
        segment.read_on(first, &mut |frame| {
            let end = frame.first_sequence + u64::from(frame.count);
            let of_frame = wanted.partition_point(|sequence| *sequence < end);
            wanted = &wanted[of_frame..];
            if of_frame > 0 {
                apply(frame)?;
            }
            Ok(match wanted.is_empty() {
                true => ControlFlow::Break(()),
                false => ControlFlow::Continue(()),
            })
        })?;
        rest = others;
    }
    Ok(())
}

/// Passes on the frames from the one that holds the record `sequence` on, until `apply` breaks or the segment ends. The
/// writer may run at the same time. Fails as [`scan`] does.
pub fn read_on(disk: &dyn Disk, sequence: u64, apply: ApplyUntil<'_>) -> Result<()> {
    SegmentOf::open(disk, sequence)?.read_on(sequence, apply)
}

/// The segment of a record.
struct SegmentOf {
    entry: Entry,
    bytes: SegmentBytes,
    /// First record of the next segment; none of the newest one.
    next: Option<u64>,
}

impl SegmentOf {
    fn open(disk: &dyn Disk, sequence: u64) -> Result<Self> {
        let mut files = disk
            .list(names::OPLOG)
            .map_err(OplogError::io(names::OPLOG, "list"))?;
        files.retain(|file| names::is_segment(file));
        // The names are numbers of one width.
        let until = names::segment(sequence);
        let name = |file: &String| format!("{}/{file}", names::OPLOG);
        let index = files.partition_point(|file| name(file) <= until);
        let Some(file) = index.checked_sub(1).and_then(|index| files.get(index)) else {
            let oldest = files.first().and_then(|file| sequence_of(file));
            return Err(OplogError::Missing {
                file: until,
                from: sequence,
                next: oldest.unwrap_or(sequence),
            });
        };
        let entry = read_header(disk, name(file), None)?;
        Ok(Self {
            bytes: SegmentBytes::open(disk, &entry.file)?,
            entry,
            next: files.get(index).and_then(|file| sequence_of(file)),
        })
    }

    /// Where a read for a record of the segment begins.
    fn start(&self, sequence: u64) -> Cursor {
        let before = self.bytes.before(sequence);
        before.unwrap_or_else(|| self.entry.start())
    }

    /// As [`read_on`].
    fn read_on(self, sequence: u64, apply: ApplyUntil<'_>) -> Result<()> {
        let mut is_enough = false;
        let mut until_enough = |frame: Frame<'_>| {
            is_enough = apply(frame)?.is_break();
            match is_enough {
                // The rest of the segment is not needed.
                true => Err("enough".into()),
                false => Ok(()),
            }
        };
        let from = self.start(sequence);
        let read = Scanner::new(sequence, &mut until_enough).frames_from(
            from,
            Source::File(self.bytes),
            &self.entry,
            None,
        );
        match is_enough {
            true => Ok(()),
            false => read.map(drop),
        }
    }
}

/// Reads the log; none when it has no segment yet.
pub(super) fn read_log(
    disk: &dyn Disk,
    store_id: Option<[u8; 16]>,
    from: ReadFrom,
    apply: Apply<'_>,
) -> Result<Option<LogEnd>> {
    read_some(disk, store_id, from, &mut |_| true, apply)
}

fn read_some(
    disk: &dyn Disk,
    store_id: Option<[u8; 16]>,
    from: ReadFrom,
    reads: ReadsDays<'_>,
    apply: Apply<'_>,
) -> Result<Option<LogEnd>> {
    let entries = list(disk, store_id)?;
    let oldest = entries.first().map(|entry| entry.header);
    let start = match from {
        ReadFrom::Oldest => oldest.map_or(0, |header| header.first_sequence),
        ReadFrom::Sequence(start) => start,
    };
    let Some(oldest) = oldest else {
        return match start {
            0 => Ok(None),
            _ => Err(OplogError::Missing {
                file: names::segment(0),
                from: 0,
                next: start,
            }),
        };
    };
    if start < oldest.first_sequence {
        let file = names::segment(oldest.previous_first);
        return Err(OplogError::Missing {
            file,
            from: start,
            next: oldest.first_sequence,
        });
    }
    let first = entries.partition_point(|entry| entry.header.first_sequence <= start) - 1;
    let mut scanner = Scanner::new(start, apply);
    let mut end = None;
    for (index, entry) in entries.iter().enumerate().skip(first) {
        let bytes = SegmentBytes::open(disk, &entry.file)?;
        let next = entries.get(index + 1);
        // The newest says where the log ends.
        if next.is_some() && bytes.days().is_some_and(|days| !reads(days)) {
            continue;
        }
        end = Some(scanner.frames(Source::File(bytes), entry, next)?);
    }
    let (cursor, torn) = end.expect("BUG: the newest segment is always read");
    let summary = LogSummary {
        segments: entries.len(),
        frames: scanner.frames_read,
        oldest_sequence: oldest.first_sequence,
        end_sequence: cursor.sequence,
        epoch: cursor.epoch,
        torn,
    };
    let seed = entries.last().map_or(0, |entry| entry.crc);
    let segments = describe(entries, cursor.sequence, scanner.written_ms);
    Ok(Some(LogEnd {
        summary,
        segments,
        cursor,
        plausible_ms: scanner.plausible_ms,
        seed,
    }))
}

/// Reads frames and passes on those with records from `start` on.
pub(super) struct Scanner<'a> {
    start: u64,
    apply: Apply<'a>,
    frames_read: u64,
    /// Time of the last frame that was read.
    written_ms: i64,
    /// Time of the last frame that was read and has a plausible clock.
    plausible_ms: Option<i64>,
}

impl<'a> Scanner<'a> {
    pub(super) fn new(start: u64, apply: Apply<'a>) -> Self {
        Self {
            start,
            apply,
            frames_read: 0,
            written_ms: i64::MIN,
            plausible_ms: None,
        }
    }

    /// Passes on the frames in one segment. The end of the segment is checked against the header of
    /// `next`; the end of the newest segment is judged instead.
    pub(super) fn frames(
        &mut self,
        source: Source<'_>,
        entry: &Entry,
        next: Option<&Entry>,
    ) -> Result<(Cursor, Option<TornTail>)> {
        self.frames_from(entry.start(), source, entry, next)
    }

    /// As [`Self::frames`], of the frames from `cursor` on.
    fn frames_from(
        &mut self,
        mut cursor: Cursor,
        source: Source<'_>,
        entry: &Entry,
        next: Option<&Entry>,
    ) -> Result<(Cursor, Option<TornTail>)> {
        let mut window = Window::new(source);
        loop {
            let before = cursor;
            let rest = window.frame(before.offset, entry.crc)?;
            let problem = match cursor.step(rest, entry.crc) {
                Step::Frame(frame) => {
                    self.frame(entry, before.offset, &frame)?;
                    continue;
                }
                Step::End => None,
                Step::Broken(problem) => Some(problem),
                Step::Misplaced(problem) => return Err(corrupt(entry, &before, problem)),
            };
            if let Some(next) = next {
                check_end(&mut window, entry, &cursor, problem, next)?;
                return Ok((cursor, None));
            }
            let tail = window.tail(cursor.offset)?;
            let torn_bytes = match judge_tail(&tail, entry.crc, cursor.offset) {
                Tail::Clean => return Ok((cursor, None)),
                Tail::Torn(_) if entry.form.is_packed() => {
                    // Nothing was written any more when it was packed.
                    let problem = "bytes after the last frame".to_owned();
                    return Err(corrupt(entry, &before, problem));
                }
                Tail::Torn(bytes) => bytes,
                Tail::Damaged(proof) => {
                    // A live writer may have finished this frame meanwhile.
                    let rest = window.frame(before.offset, entry.crc)?;
                    if matches!(before.clone().step(rest, entry.crc), Step::Frame(_)) {
                        continue;
                    }
                    let problem = problem.unwrap_or_else(|| "zeros instead of a frame".to_owned());
                    return Err(corrupt(entry, &before, format!("{problem}; {proof}")));
                }
            };
            let (offset, bytes) = (cursor.offset as u64, torn_bytes as u64);
            return Ok((
                cursor,
                Some(TornTail {
                    file: entry.file.clone(),
                    offset,
                    bytes,
                }),
            ));
        }
    }

    fn frame(&mut self, entry: &Entry, offset: usize, frame: &Frame<'_>) -> Result<()> {
        self.written_ms = frame.written_ms;
        if frame.is_plausible {
            self.plausible_ms = Some(frame.written_ms);
        }
        let is_needed = frame.first_sequence + u64::from(frame.count) > self.start;
        if frame.count == 0 || !is_needed {
            return Ok(());
        }
        self.frames_read += 1;
        (self.apply)(*frame).map_err(|source| OplogError::Apply {
            file: entry.file.clone(),
            offset: offset as u64,
            sequence: frame.first_sequence,
            source,
        })
    }
}

/// Checks the end of a segment that is not the newest: all of it had been durable.
pub(super) fn check_end(
    window: &mut Window<'_>,
    entry: &Entry,
    cursor: &Cursor,
    problem: Option<String>,
    next: &Entry,
) -> Result<()> {
    if let Some(problem) = problem {
        return Err(corrupt(entry, cursor, problem));
    }
    let follows = next.header.first_sequence == cursor.sequence
        && next.header.previous_crc == cursor.crc
        && next.header.epoch >= cursor.epoch;
    if !follows {
        let problem = format!(
            "the frames end at record {} with checksum {:08x}, but {} goes on from record {} \
             after checksum {:08x}",
            cursor.sequence,
            cursor.crc,
            next.file,
            next.header.first_sequence,
            next.header.previous_crc
        );
        return Err(corrupt(entry, cursor, problem));
    }
    if !window.tail(cursor.offset)?.is_empty() {
        return Err(corrupt(
            entry,
            cursor,
            "bytes after the last frame".to_owned(),
        ));
    }
    Ok(())
}

pub(super) fn corrupt(entry: &Entry, cursor: &Cursor, problem: String) -> OplogError {
    OplogError::Corrupt {
        file: entry.file.clone(),
        offset: cursor.offset as u64,
        sequence: cursor.sequence,
        problem,
    }
}

/// Describes the segments. The header of the next segment describes all but the newest, so that old segments are not
/// read.
pub(super) fn describe(
    entries: Vec<Entry>,
    end_sequence: u64,
    written_ms: i64,
) -> Vec<SegmentInfo> {
    let nexts: Vec<SegmentHeader> = entries.iter().skip(1).map(|entry| entry.header).collect();
    let mut segments = Vec::with_capacity(entries.len());
    for (index, entry) in entries.into_iter().enumerate() {
        let next = nexts.get(index);
        let until_ms = next.map_or(written_ms, |next| next.created_ms);
        segments.push(SegmentInfo {
            file: entry.file,
            first_sequence: entry.header.first_sequence,
            end_sequence: next.map_or(end_sequence, |next| next.first_sequence),
            created_ms: entry.header.created_ms,
            written_until_ms: until_ms.max(entry.header.created_ms),
            bytes: entry.bytes,
            plain_bytes: entry.plain_bytes,
            is_packed: entry.form.is_packed(),
            is_pseudonymous: entry.form == Form::Pseudonymous,
        });
    }
    segments
}
