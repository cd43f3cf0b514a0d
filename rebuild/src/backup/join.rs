//! What was logged after a backup, taken from the second copy of the log.
//!
//! The copy goes on where the restored log ends: their bytes are equal as far as both have them, and every segment follows
//! the one before. Only whole frames are taken. What of the copy a crash tore was being written then; so the first frame that
//! is not whole ends what is taken, and what cannot be read behind it is told.

use serde::Serialize;
use tallyring_archive::{Blobs, Error, names};
use tallyring_realtime::oplog::{Segment, copy_segment, segment, segments, whole_frames};

use super::BackupError;
use super::log::list;

/// What was taken from the copy.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Joined {
    /// Records behind the backup's.
    pub records: u64,
    /// Number after the last record now.
    pub end: u64,
    /// Why what follows in the copy was not taken, where anything does.
    pub left: Option<String>,
}

/// Lets the log of `data`, which was restored from a backup, go on with that in `copy`.
///
/// # Errors
/// [`BackupError::NotJoined`] when the copy is not one of the same log, or begins behind its end; when a disk refuses.
pub fn join_log(data: &Blobs, copy: &Blobs) -> Result<Joined, BackupError> {
    let mut last = segments(data.disk())?
        .pop()
        .ok_or(BackupError::NoStore(names::OPLOG))?;
    let (mut content, frames) = copy_segment(data.disk(), &last, None)?;
    content.truncate(frames.bytes);
    let (began, mut end) = (frames.end_sequence, frames.end_sequence);
    let mut firsts = list(copy)?;
    firsts.retain(|first| *first >= last.first_sequence());
    let mut left = None;
    let mut has_joined = false;
    for first in firsts {
        let of_copy = read(copy, first)?;
        let is_last = first == last.first_sequence();
        let joins = segment(copy.disk(), first)
            .map_err(|error| error.to_string())
            .and_then(|next| {
                let taken = whole_frames(&next, &of_copy);
                match is_last {
                    true => same_beginning(&content, &of_copy[..taken.bytes])?,
                    false => follows((&last, &content, end), &next)?,
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
        if is_last && taken.bytes <= content.len() {
            continue;
        }
        content = of_copy[..taken.bytes].to_vec();
        put(data, first, &content)?;
        (last, end) = (next, taken.end_sequence);
    }
    if !has_joined {
        return Err(BackupError::NotJoined(format!(
            "it ends before record {began}, up to which the backup has the log"
        )));
    }
    Ok(Joined {
        records: end - began,
        end,
        left,
    })
}

/// Both are the same segment as far as both have frames of it.
fn same_beginning(restored: &[u8], of_copy: &[u8]) -> Result<(), String> {
    let pairs = restored.iter().zip(of_copy);
    let equal = pairs.take_while(|(one, other)| one == other).count();
    if equal == restored.len().min(of_copy.len()) {
        return Ok(());
    }
    Err(format!(
        "its bytes differ from offset {equal} of the backup's last segment on"
    ))
}

/// The segment goes on where the `content` of the one before ends, which is before record `end`.
fn follows(before: (&Segment, &[u8], u64), next: &Segment) -> Result<(), String> {
    let (segment, content, end) = before;
    let first = next.first_sequence();
    if first > end {
        return Err(format!(
            "records {end} to {} can be read from neither",
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
        "{name}: {bytes} bytes behind record {end} are no whole frame: a write that was cut off, or damage"
    ))
}

fn put(data: &Blobs, first: u64, content: &[u8]) -> Result<(), BackupError> {
    let name = names::segment(first);
    data.put_over(&name, content)?;
    match *read(data, first)? == *content {
        true => Ok(()),
        false => Err(BackupError::NotWritten(name)),
    }
}

fn read(blobs: &Blobs, first: u64) -> Result<tallyring_archive::Content, Error> {
    let name = names::segment(first);
    blobs.read(&name)
}
