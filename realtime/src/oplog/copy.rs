//! Segments' bytes for a backup, taken beside the writer or without one.

use tallyring_archive::{Disk, names};

use super::error::OplogError;
use super::recovery::{Entry, Scanner, list, read_header};
use super::segment::SEGMENT_HEADER_BYTES;

/// A segment whose header was read.
#[derive(Debug)]
pub struct Segment(Entry);

/// What the frames of a segment's bytes say.
#[derive(Debug, Clone, Copy)]
pub struct Frames {
    /// Number after the last record.
    pub end_sequence: u64,
    /// Where the last whole frame ends.
    pub bytes: usize,
    /// As far as they prove that their bytes had been durable; 0 without a frame.
    pub durable_bytes: usize,
}

impl Segment {
    /// Number of its first record, by which it is named.
    pub fn first_sequence(&self) -> u64 {
        self.0.header.first_sequence
    }

    /// When it was begun, Unix milliseconds.
    pub fn created_ms(&self) -> i64 {
        self.0.header.created_ms
    }

    /// Reads the frames in `content`, which are those of this segment; `next` is the one that follows it.
    ///
    /// # Errors
    /// When they are damaged, or `next` does not go on where they end.
    pub fn read(&self, content: &[u8], next: Option<&Self>) -> Result<Frames, OplogError> {
        let mut apply = |_: super::Frame<'_>| Ok(());
        let mut scanner = Scanner::new(0, &mut apply);
        let (cursor, _) = scanner.frames(content, &self.0, next.map(|next| &next.0))?;
        let has_frames = cursor.offset > SEGMENT_HEADER_BYTES;
        Ok(Frames {
            end_sequence: cursor.sequence,
            bytes: cursor.offset,
            durable_bytes: match has_frames {
                true => cursor.durable.min(cursor.offset),
                false => 0,
            },
        })
    }
}

/// The frames in `content`, which is that of this segment, up to the first that is not whole. What follows is not judged:
/// a copy of the log that a crash tore has lost what had been durable in the log.
pub fn whole_frames(segment: &Segment, content: &[u8]) -> Frames {
    let cursor = segment.0.last_frame(content);
    Frames {
        end_sequence: cursor.sequence,
        bytes: cursor.offset,
        durable_bytes: cursor.offset,
    }
}

/// All segments, oldest first, each following the one before. Reads their headers.
///
/// # Errors
/// When one is missing or is none.
pub fn segments(disk: &dyn Disk) -> Result<Vec<Segment>, OplogError> {
    Ok(list(disk, None)?.into_iter().map(Segment).collect())
}

/// The segment that begins with this record.
///
/// # Errors
/// When it is not there, or is none.
pub fn segment(disk: &dyn Disk, first_sequence: u64) -> Result<Segment, OplogError> {
    read_header(disk, names::segment(first_sequence), None).map(Segment)
}

/// A copy of a segment, whose frames were all read: whole ones, one after another, then zeros to the end. What is being
/// written, and what a crash tore, is not in it.
///
/// # Errors
/// When it is gone or damaged, or `next`, the one that follows it, does not go on where it ends.
pub fn copy_segment(
    disk: &dyn Disk,
    segment: &Segment,
    next: Option<&Segment>,
) -> Result<(Vec<u8>, Frames), OplogError> {
    let file = &segment.0.file;
    let mut attempts = 0;
    loop {
        let content = disk.read(file).map_err(OplogError::io(file, "read"))?;
        let mut copy = as_it_was_once(&content);
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

/// A copy that holds no later write without the earlier ones, of bytes that are written to meanwhile from the front to
/// the back: so it is read from the back to the front.
fn as_it_was_once(content: &[u8]) -> Vec<u8> {
    const BLOCK_BYTES: usize = 4 << 10;
    let mut copy = vec![0; content.len()];
    let blocks = content
        .chunks(BLOCK_BYTES)
        .zip(copy.chunks_mut(BLOCK_BYTES));
    blocks.rev().for_each(|(from, to)| to.copy_from_slice(from));
    copy
}
