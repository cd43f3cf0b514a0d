//! Takes the records from after a backup out of the second copy of the log.
//!
//! The copy continues where the restored log ends: one of them passes the point at which the other's last common
//! segment ends, and every segment follows the preceding one. Bytes are not compared, because users who were erased may
//! have left one of them. Only whole frames are taken. A crash may have torn the last write of the copy, so the
//! first incomplete frame ends the take-over, and bytes that cannot be read behind it are reported.

use serde::Serialize;
use tallyring_archive::{Blobs, names};
use tallyring_realtime::oplog::{
    Segment, copy_segment, plain_bytes, segment, segments, whole_frames,
};
use tallyring_records::content_hash;

use super::BackupError;
use super::log::{list, put_checked};

/// Result of taking records from the copy.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Joined {
    /// Number of records behind those of the backup.
    pub records: u64,
    /// Sequence number after the last record now.
    pub end: u64,
    /// Why the following bytes of the copy were not taken; none where nothing follows.
    pub left: Option<String>,
}

/// Continues the log of `data`, which was restored from a backup, with the copy in `copy`. Fails with
/// [`BackupError::NotJoined`] when the copy is of another log, or begins behind the end of the restored log.
pub fn join_log(data: &Blobs, copy: &Blobs) -> Result<Joined, BackupError> {
    let mut last = segments(data.disk())?
        .pop()
        .ok_or(BackupError::NoStore(names::OPLOG))?;
    let (mut content, frames) = copy_segment(data.disk(), &last, None)?;
    content.truncate(frames.bytes);
    let (began, mut end, restored_end) = (frames.end_sequence, frames.end_sequence, frames.end);
    let mut firsts = list(copy)?;
    firsts.retain(|first| *first >= last.first_sequence());
    let mut left = None;
    let mut has_joined = false;
    for first in firsts {
        let of_copy = plain_bytes(copy.disk(), first)?;
        let is_last = first == last.first_sequence();
        let mut has_more = true;
        let joins = segment(copy.disk(), first)
            .map_err(|error| error.to_string())
            .and_then(|next| {
                let taken = whole_frames(&next, &of_copy).map_err(|error| error.to_string())?;
                if is_last {
                    has_more = !last.passes(&content, taken.end);
                    let goes_on = next.passes(&of_copy[..taken.bytes], restored_end);
                    is_one_log(first, goes_on || !has_more)?;
                } else {
                    follows((&last, &content, end), &next)?;
                }
                Ok((next, taken))
            });
        let (next, taken) = match joins {
            Ok(joins) => joins,
            Err(problem) if has_joined => {
                left = Some(problem);
                break;
            }
            Err(problem) => return Err(BackupError::NotJoined(problem)),
        };
        has_joined = true;
        left = unread(&next, &of_copy[taken.bytes..], taken.end_sequence);
        if !has_more {
            continue;
        }
        content = of_copy[..taken.bytes].to_vec();
        put(data, first, &content)?;
        (last, end) = (next, taken.end_sequence);
    }
    if !has_joined {
        return Err(BackupError::NotJoined(format!(
            "the copy ends before record {began}, where the log of the backup ends"
        )));
    }
    Ok(Joined {
        records: end - began,
        end,
        left,
    })
}

/// Takes the contents of lists that came after the backup from beside the copy of the log. One whose bytes are not
/// those of its name is left there, and missing where the backup lacks it, too. Fails when a disk does.
pub fn join_lists(data: &Blobs, copy: &Blobs) -> Result<(), BackupError> {
    let listed = match copy.list(names::RULES) {
        // An earlier build copied no lists.
        Err(error) if error.is_gone() => return Ok(()),
        listed => listed?,
    };
    for file in listed {
        let name = names::list_content(&file);
        let content = copy.read(&name)?;
        if content_hash(&content) == file {
            data.put(&name, &content)?;
        }
    }
    Ok(())
}

fn is_one_log(first: u64, is_one: bool) -> Result<(), String> {
    match is_one {
        true => Ok(()),
        false => Err(format!(
            "the copy differs from the last segment of the backup: {} has other records",
            names::segment(first)
        )),
    }
}

/// Checks that `next` continues where the `content` of the preceding segment ends, before record `end`.
fn follows(before: (&Segment, &[u8], u64), next: &Segment) -> Result<(), String> {
    let (segment, content, end) = before;
    let first = next.first_sequence();
    if first > end {
        return Err(format!(
            "neither the backup nor the copy has records {end} to {}",
            first - 1
        ));
    }
    let read = segment.read(content, Some(next));
    read.map(drop).map_err(|error| error.to_string())
}

fn unread(segment: &Segment, behind: &[u8], end: u64) -> Option<String> {
    let bytes = behind.iter().rposition(|byte| *byte != 0)? + 1;
    let name = names::segment(segment.first_sequence());
    Some(format!(
        "{name}: {bytes} bytes behind record {end} are not a whole frame: the write was cut off, or the bytes are damaged"
    ))
}

fn put(data: &Blobs, first: u64, content: &[u8]) -> Result<(), BackupError> {
    put_checked(data, names::segment(first), content)
}
