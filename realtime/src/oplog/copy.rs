//! A segment's bytes for a backup, taken beside the writer or without one.

use tallyring_archive::Disk;

use super::error::OplogError;
use super::frame::trimmed_len;
use super::recovery::{Scanner, list};
use super::segment::segment_name;

/// A copy of the segment that begins with record `first_sequence`, whose frames were all read: whole ones, one after
/// another, then zeros to the end. In the newest segment, what is being written, and what a crash tore, is not in it.
///
/// # Errors
/// When it is not there, is damaged, or another segment does not go on where it ends.
pub fn copy_segment(disk: &dyn Disk, first_sequence: u64) -> Result<Vec<u8>, OplogError> {
    let segments = list(disk, None)?;
    let place = segments
        .iter()
        .position(|segment| segment.header.first_sequence == first_sequence);
    let Some(place) = place else {
        let next = segments
            .iter()
            .find(|segment| segment.header.first_sequence > first_sequence);
        return Err(OplogError::Missing {
            file: segment_name(first_sequence),
            from: first_sequence,
            next: next.map_or(first_sequence + 1, |next| next.header.first_sequence),
        });
    };
    let (segment, next) = (&segments[place], segments.get(place + 1));
    let mut attempts = 0;
    loop {
        let content = disk
            .read(&segment.file)
            .map_err(OplogError::io(&segment.file, "read"))?;
        let mut copy = as_it_was_once(&content);
        let mut apply = |_: super::Frame<'_>| Ok(());
        let mut scanner = Scanner::new(0, &mut apply);
        attempts += 1;
        match scanner.frames(&copy, segment, next) {
            Ok((cursor, _)) => {
                copy[cursor.offset..].fill(0);
                return Ok(copy);
            }
            // The writer may have been at work in the middle of a block.
            Err(OplogError::Corrupt { .. }) if next.is_none() && attempts < ATTEMPTS => {}
            Err(error) => return Err(error),
        }
    }
}

const ATTEMPTS: usize = 3;

/// True when a copy goes on where an earlier copy of that segment ends.
pub fn goes_on(copy: &[u8], earlier: &[u8]) -> bool {
    copy.starts_with(&earlier[..trimmed_len(earlier)])
}

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
