//! Reads the bytes of segments for a backup, with or without a running writer.

use std::collections::BTreeSet;
use std::io;
use std::ops::ControlFlow;

use tallyring_archive::{Content, Disk, names};
use tallyring_records::{Day, Record, decode_all};

use super::cursor::{ChainPoint, Cursor};
use super::entries::{Entry, list, read_header};
use super::error::{OplogError, Result};
use super::packed::SegmentBytes;
use super::recovery::{Scanner, read_on};
use super::segment::{Form, SEGMENT_HEADER_BYTES};
use super::window::Source;

/// A segment whose header was read.
#[derive(Debug)]
pub struct Segment(Entry);

/// Findings in the frames of a segment's bytes.
#[derive(Debug, Clone, Copy)]
pub struct Frames {
    /// Sequence number after the last record.
    pub end_sequence: u64,
    /// The point behind the last whole frame.
    pub end: ChainPoint,
    /// Position behind the last whole frame, bytes.
    pub bytes: usize,
    /// Bytes that the frames prove to have been durable; 0 without a frame.
    pub durable_bytes: usize,
}

impl Segment {
    /// Sequence number of the first record, by which the segment is named.
    pub fn first_sequence(&self) -> u64 {
        self.0.header.first_sequence
    }

    /// Time at which the segment was begun, Unix milliseconds.
    pub fn created_ms(&self) -> i64 {
        self.0.header.created_ms
    }

    /// True where erased users were taken out of its records.
    pub fn lacks_erased(&self) -> bool {
        self.0.form == Form::Redacted
    }

    /// Size of the segment in its plain form, bytes.
    pub fn plain_bytes(&self) -> u64 {
        self.0.plain_bytes
    }

    /// Reads the frames in `content`, the content of this segment. `next` is the segment that follows. Fails when the
    /// frames are damaged, or `next` does not continue where they end.
    pub fn read(&self, content: &[u8], next: Option<&Self>) -> Result<Frames> {
        let mut apply = |_: super::Frame<'_>| Ok(());
        let mut scanner = Scanner::new(0, &mut apply);
        let (cursor, _) =
            scanner.frames(Source::Bytes(content), &self.0, next.map(|next| &next.0))?;
        let has_frames = cursor.offset > SEGMENT_HEADER_BYTES;
        Ok(Frames {
            end_sequence: cursor.sequence,
            end: cursor.point(),
            bytes: cursor.offset,
            durable_bytes: match (has_frames, self.0.form) {
                (false, _) => 0,
                (true, Form::Plain) => cursor.durable.min(cursor.offset),
                (true, Form::Packed | Form::Redacted | Form::Pseudonymous) => cursor.offset,
            },
        })
    }

    /// Whether this point is in the segment, whose content is `content`. Payloads may have been replaced there.
    pub fn passes(&self, content: &[u8], point: ChainPoint) -> bool {
        let found = self.0.find(Source::Bytes(content), point);
        matches!(found, Ok(Some(_)))
    }

    /// The last point within the first `bytes` bytes of `content`, the content of this segment.
    pub fn last_point(&self, content: &[u8], bytes: usize) -> Result<ChainPoint> {
        let mut is_behind = |cursor: &Cursor| cursor.offset > bytes.max(SEGMENT_HEADER_BYTES);
        let cursor = self.0.last_before(Source::Bytes(content), &mut is_behind)?;
        Ok(cursor.point())
    }
}

/// Reads the frames in `content`, the content of this segment, up to the first incomplete one. The bytes that follow
/// are not judged: a torn copy of the log has lost bytes that were durable in the log.
pub fn whole_frames(segment: &Segment, content: &[u8]) -> Result<Frames> {
    let cursor = segment.0.last_frame(Source::Bytes(content))?;
    Ok(Frames {
        end_sequence: cursor.sequence,
        end: cursor.point(),
        bytes: cursor.offset,
        durable_bytes: cursor.offset,
    })
}

/// All segments, oldest first, each following the preceding one. Reads their headers. Fails when a segment is missing
/// or invalid.
pub fn segments(disk: &dyn Disk) -> Result<Vec<Segment>> {
    Ok(list(disk, None)?.into_iter().map(Segment).collect())
}

/// The oldest segment; none where the log has none yet. Reads its header alone. Fails when the segment is invalid.
pub fn oldest_segment(disk: &dyn Disk) -> Result<Option<Segment>> {
    let files = disk
        .list(names::OPLOG)
        .map_err(OplogError::io(names::OPLOG, "list"))?;
    // The names are numbers of one width.
    let oldest = files.iter().filter(|file| names::is_segment(file)).min();
    oldest
        .map(|file| read_header(disk, format!("{}/{file}", names::OPLOG), None).map(Segment))
        .transpose()
}

/// The segment that begins with this record. Fails when the segment is missing or invalid.
pub fn segment(disk: &dyn Disk, first_sequence: u64) -> Result<Segment> {
    read_header(disk, names::segment(first_sequence), None).map(Segment)
}

/// UTC days of which the segment that begins with this record has events or voids. Reads the index of a packed segment,
/// and all of a plain one. Fails when the segment is missing or damaged.
pub fn event_days(disk: &dyn Disk, first_sequence: u64) -> Result<BTreeSet<Day>> {
    let bytes = SegmentBytes::open(disk, &names::segment(first_sequence))?;
    if let Some(days) = bytes.days() {
        return Ok(days.iter().map(|(day, _)| Day::from_number(*day)).collect());
    }
    let mut days = BTreeSet::new();
    read_on(disk, first_sequence, &mut |frame| {
        let records = decode_all(frame.payload, frame.count)?;
        days.extend(records.iter().filter_map(Record::day));
        Ok(ControlFlow::Continue(()))
    })?;
    Ok(days)
}

/// Copies a segment whose frames were all checked: whole frames, then zeros to the end. A frame that is being written
/// and a torn frame are left out. Fails when the segment is missing or damaged, or `next`, the segment that follows,
/// does not continue where it ends.
pub fn copy_segment(
    disk: &dyn Disk,
    segment: &Segment,
    next: Option<&Segment>,
) -> Result<(Vec<u8>, Frames)> {
    let file = &segment.0.file;
    let mut attempts = 0;
    loop {
        let mut copy = match SegmentBytes::open(disk, file)? {
            SegmentBytes::Plain { content, .. } => {
                as_it_was_once(&content).map_err(OplogError::io(file, "read"))?
            }
            mut packed => packed.all()?,
        };
        attempts += 1;
        match segment.read(&copy, next) {
            Ok(frames) => {
                copy[frames.bytes..].fill(0);
                return Ok((copy, frames));
            }
            // The writer may have been at work in the middle of a block.
            Err(OplogError::Corrupt { .. }) if next.is_none() && attempts < ATTEMPTS => {}
            Err(error) => return Err(error),
        }
    }
}

const ATTEMPTS: usize = 3;

/// The bytes of the segment that begins with this record, in the plain form.
pub fn plain_bytes(disk: &dyn Disk, first_sequence: u64) -> Result<Vec<u8>> {
    SegmentBytes::open(disk, &names::segment(first_sequence))?.all()
}

/// Whether a copy of a segment, whose file has the size and the header of the log's, needs no new content as far as the
/// feet of packed files tell. No block is read. A damaged copy needs it; a damaged segment has none to give.
pub fn is_up_to_date(log: Content, copy: Content) -> bool {
    let [log, copy] = [log, copy].map(|content| SegmentBytes::of(content, ""));
    match (log, copy) {
        (Ok(SegmentBytes::Packed(log)), Ok(SegmentBytes::Packed(copy))) => log.is_alike(&copy),
        (log, copy) => log.is_err() || copy.is_ok(),
    }
}

/// The file of a segment, if it is packed and stands for exactly the bytes of `plain`.
pub fn packed_file(disk: &dyn Disk, first_sequence: u64, plain: &[u8]) -> Result<Option<Vec<u8>>> {
    let name = names::segment(first_sequence);
    let content = disk.content(&name).map_err(OplogError::io(&name, "read"))?;
    if let SegmentBytes::Plain { .. } = SegmentBytes::of(content.clone(), &name)? {
        return Ok(None);
    }
    // The bytes that are compared are those that are copied.
    let file = content.all().map_err(OplogError::io(&name, "read"))?;
    let mut bytes = SegmentBytes::of(Content::new(file.clone()), &name)?;
    let stands_for = bytes.len() == plain.len() as u64 && bytes.all()? == plain;
    Ok(stands_for.then_some(file))
}

/// A copy that holds no later write without the earlier ones. The writer writes from front to back meanwhile, so the
/// bytes are read from back to front.
fn as_it_was_once(content: &Content) -> io::Result<Vec<u8>> {
    const BLOCK_BYTES: usize = 4 << 10;
    let mut copy = vec![0; usize::try_from(content.len()).unwrap_or(usize::MAX)];
    for (number, block) in copy.chunks_mut(BLOCK_BYTES).enumerate().rev() {
        block.copy_from_slice(&content.part((number * BLOCK_BYTES) as u64, block.len())?);
    }
    Ok(copy)
}
