//! Compares the second copy of the log with the log, at a start.

use tallyring_archive::{Disk, names};

use super::super::cursor::ChainPoint;
use super::super::entries::{Entry, list, read_header};
use super::super::error::{OplogError, Result};
use super::super::packed::SegmentBytes;
use super::super::window::Source;
use super::{PIECE_BYTES, Tip, UNSYNCED_BYTES, differs, segments};
use crate::identity::are_of_one_store;

/// Finds how far the copy certainly equals the log. Whole frames of the copy behind that are equal, too.
pub(super) fn compare(log: &dyn Disk, copy: &dyn Disk) -> Result<Tip> {
    if let (Ok(existing), Ok(identity)) = (copy.read(names::IDENTITY), log.read(names::IDENTITY))
        && !are_of_one_store(&existing, &identity)
    {
        return Err(differs(names::IDENTITY, "it belongs to another store"));
    }
    let copied = segments(copy)?;
    let Some(&newest) = copied.last() else {
        return Ok(Tip::default());
    };
    let logged = list(log, None)?;
    for &first in &copied {
        let of_log = logged.iter().find(|one| one.header.first_sequence == first);
        let of_copy = header_of_copy(copy, first)?;
        if of_log.is_some_and(|one| one.header != of_copy.header) {
            return Err(differs(&of_copy.file, "its header differs"));
        }
        let is_of_store = |one: &Entry| one.header.store_id == of_copy.header.store_id;
        if !logged.iter().all(is_of_store) {
            return Err(differs(&of_copy.file, "it belongs to another store"));
        }
    }
    let (Some(oldest), Some(last)) = (logged.first(), logged.last()) else {
        return Err(ahead(copy, newest, 0));
    };
    if newest > last.header.first_sequence {
        let end = last.last_frame(open(log, &last.file)?)?;
        return Err(ahead(copy, newest, end.sequence));
    }
    if newest < oldest.header.first_sequence {
        // All of the copy is expired.
        return Ok(Tip::default());
    }
    let Some(index) = logged
        .iter()
        .position(|one| one.header.first_sequence == newest)
    else {
        return Err(differs(
            &names::segment(newest),
            "the log has no such segment",
        ));
    };
    if header_of_copy(copy, newest)?.form.is_packed() {
        let problem = "its newest segment is packed, which no copy is";
        return Err(differs(&names::segment(newest), problem));
    }
    let tip = compare_newest(log, copy, &logged[index])?;
    // Segments from one on that is missing or not whole are copied again.
    let whole = logged[..=index].windows(2);
    let mut whole = whole.filter(|pair| pair[0].header.first_sequence >= copied[0]);
    let lacking = whole.find(|pair| !has_whole(copy, &pair[0], &pair[1]));
    Ok(lacking.map_or(tip, |pair| anew(&pair[0])))
}

/// Whether the copy has all of a segment of the log, which `next` follows. Their sizes differ where payloads were
/// replaced in one of them; the copy gets those of the log later.
fn has_whole(copy: &dyn Disk, entry: &Entry, next: &Entry) -> bool {
    let Ok(bytes) = SegmentBytes::open(copy, &entry.file) else {
        return false;
    };
    if bytes.len() == entry.plain_bytes {
        return true;
    }
    let end = ChainPoint {
        sequence: next.header.first_sequence,
        crc: next.header.previous_crc,
    };
    let last = entry.last_frame(Source::File(bytes));
    last.is_ok_and(|last| last.point() == end)
}

/// The tip of a copy that goes on with the beginning of this segment.
fn anew(entry: &Entry) -> Tip {
    Tip {
        first: entry.header.first_sequence,
        sequence: entry.header.first_sequence,
        anew: true,
        ..Tip::default()
    }
}

/// Finds how far the newest segment of the copy goes, by number and checksum: payloads may have been replaced in the
/// log's since.
fn compare_newest(log: &dyn Disk, copy: &dyn Disk, entry: &Entry) -> Result<Tip> {
    let cursor = entry.last_frame(open(copy, &entry.file)?)?;
    let frames_end = cursor.offset as u64;
    if entry
        .find(open(log, &entry.file)?, cursor.point())?
        .is_some()
    {
        if equal_bytes(log, copy, &entry.file, frames_end)? < frames_end {
            return Ok(anew(entry));
        }
        let content = copy.content(&entry.file);
        let content = content.map_err(OplogError::io(&entry.file, "read"))?;
        // After a sync that failed before the end of the process, its bytes may be in memory only, and no later sync
        // writes them. So they are written again.
        return Ok(Tip {
            first: entry.header.first_sequence,
            bytes: frames_end.saturating_sub(UNSYNCED_BYTES),
            sequence: entry.header.first_sequence,
            torn: match content.len() > frames_end {
                true => frames_end,
                false => 0,
            },
            ..Tip::default()
        });
    }
    let logged = entry.last_frame(open(log, &entry.file)?)?;
    let is_beginning = entry.find(open(copy, &entry.file)?, logged.point())?;
    if is_beginning.is_some() {
        return Err(OplogError::CopyAhead {
            copy: cursor.sequence,
            log: logged.sequence,
        });
    }
    let problem = format!(
        "its records up to {} are not those of the log",
        cursor.sequence
    );
    Err(differs(&entry.file, &problem))
}

/// Number of bytes that a segment of both begins with, at most `bytes_max`.
fn equal_bytes(log: &dyn Disk, copy: &dyn Disk, name: &str, bytes_max: u64) -> Result<u64> {
    let mut at = 0;
    while at < bytes_max {
        let wanted = PIECE_BYTES.min(bytes_max - at) as usize;
        let part = |disk: &dyn Disk| {
            let mut bytes = SegmentBytes::open(disk, name)?;
            let left = bytes.len().saturating_sub(at);
            bytes.part(at, left.min(wanted as u64) as usize)
        };
        let (one, other) = (part(log)?, part(copy)?);
        let equal = one.iter().zip(&other).take_while(|(a, b)| a == b).count();
        at += equal as u64;
        if equal < wanted {
            break;
        }
    }
    Ok(at)
}

/// Builds the error for a copy whose newest segment follows the end of the log.
fn ahead(copy: &dyn Disk, newest: u64, log: u64) -> OplogError {
    let end = header_of_copy(copy, newest)
        .and_then(|entry| Ok(entry.last_frame(open(copy, &entry.file)?)?.sequence));
    OplogError::CopyAhead {
        copy: end.unwrap_or(newest),
        log,
    }
}

fn header_of_copy(copy: &dyn Disk, first: u64) -> Result<Entry> {
    let file = names::segment(first);
    read_header(copy, file.clone(), None).map_err(|error| match error {
        OplogError::Corrupt { problem, .. } => differs(&file, &problem),
        other => other,
    })
}

fn open(disk: &dyn Disk, name: &str) -> Result<Source<'static>> {
    Ok(Source::File(SegmentBytes::open(disk, name)?))
}
