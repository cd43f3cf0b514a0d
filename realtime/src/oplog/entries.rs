//! The segments of a log by their headers.

use tallyring_archive::{Disk, names};

use super::cursor::{ChainPoint, Cursor, Step};
use super::error::{OplogError, Result};
use super::packed::{HEAD_BYTES, Head};
use super::segment::{FORMAT_MAX, Form, HeaderFault, SegmentHeader};
use super::window::{Source, Window};

/// A segment whose header was read.
#[derive(Debug)]
pub(super) struct Entry {
    pub file: String,
    pub header: SegmentHeader,
    /// CRC of the header in the plain form.
    pub crc: u32,
    /// Size of the file, bytes.
    pub bytes: u64,
    /// Size of the segment in its plain form, bytes.
    pub plain_bytes: u64,
    pub form: Form,
}

impl Entry {
    /// A cursor before the first frame.
    pub(super) fn start(&self) -> Cursor {
        Cursor::new(&self.header, self.crc)
    }

    /// A cursor behind the last whole frame of `source`. The bytes that follow are not judged.
    pub(super) fn last_frame(&self, source: Source<'_>) -> Result<Cursor> {
        self.last_before(source, &mut |_| false)
    }

    /// A cursor at this point of `source`; none where the whole frames of `source` do not come past it.
    pub(super) fn find(&self, source: Source<'_>, point: ChainPoint) -> Result<Option<Cursor>> {
        let is_behind = |cursor: &Cursor| cursor.sequence > point.sequence;
        let mut found = None;
        self.last_before(source, &mut |cursor| {
            if cursor.point() == point {
                found = Some(*cursor);
            }
            found.is_some() || is_behind(cursor)
        })?;
        Ok(found)
    }

    /// A cursor before the first frame of `source` that ends where `is_enough` says so, or behind the last whole one.
    /// `is_enough` sees the beginning of the segment, too.
    pub(super) fn last_before(
        &self,
        source: Source<'_>,
        is_enough: &mut dyn FnMut(&Cursor) -> bool,
    ) -> Result<Cursor> {
        let mut window = Window::new(source);
        let mut cursor = self.start();
        let mut next = cursor;
        while !is_enough(&next) {
            cursor = next;
            match next.step(window.frame(cursor.offset, self.crc)?, self.crc) {
                Step::Frame(_) => {}
                _ => break,
            }
        }
        Ok(cursor)
    }
}

/// All segments, oldest first, each following the preceding one.
pub(super) fn list(disk: &dyn Disk, store_id: Option<[u8; 16]>) -> Result<Vec<Entry>> {
    list_below(disk, store_id, u64::MAX)
}

/// As [`list`], without the segments that begin at or above `below`.
pub(super) fn list_below(
    disk: &dyn Disk,
    store_id: Option<[u8; 16]>,
    below: u64,
) -> Result<Vec<Entry>> {
    let files = disk
        .list(names::OPLOG)
        .map_err(OplogError::io(names::OPLOG, "list"))?;
    let mut entries: Vec<Entry> = Vec::new();
    let is_below = |file: &str| names::segment_first(file).is_none_or(|first| first < below);
    let segments = files.iter().filter(|file| names::is_segment(file));
    for file in segments.filter(|file| is_below(file)) {
        let entry = read_header(disk, format!("{}/{file}", names::OPLOG), store_id)?;
        if let Some(before) = entries.last() {
            check_follows(before, &entry)?;
        }
        entries.push(entry);
    }
    Ok(entries)
}

pub(super) fn read_header(
    disk: &dyn Disk,
    file: String,
    store_id: Option<[u8; 16]>,
) -> Result<Entry> {
    let unreadable = || OplogError::io(&file, "read");
    let content = disk.content(&file).map_err(unreadable())?;
    let bytes = content.len();
    let head = content.part(0, bytes.min(HEAD_BYTES as u64) as usize);
    let head = head.map_err(unreadable())?;
    let (header, crc, form) = match SegmentHeader::decode(&head) {
        Ok(read) => read,
        Err(HeaderFault::Version(found)) => {
            return Err(OplogError::Version {
                file,
                found,
                supported: FORMAT_MAX,
            });
        }
        Err(HeaderFault::Damaged(problem)) => {
            let sequence = sequence_of(&file).unwrap_or_default();
            return Err(damaged(file, sequence, problem));
        }
    };
    let sequence = header.first_sequence;
    if names::segment(sequence) != file {
        let problem = format!(
            "the name of the segment should be {}",
            names::segment(sequence)
        );
        return Err(damaged(file, sequence, problem));
    }
    if let Some(expected) = store_id
        && expected != header.store_id
    {
        return Err(OplogError::foreign(file, header.store_id, expected));
    }
    let plain_bytes = match form {
        Form::Plain => bytes,
        Form::Packed | Form::Redacted | Form::Pseudonymous => {
            match Head::decode(&head, header, crc) {
                Ok(head) => head.plain_bytes,
                Err(problem) => return Err(damaged(file, sequence, problem)),
            }
        }
    };
    Ok(Entry {
        file,
        header,
        crc,
        bytes,
        plain_bytes,
        form,
    })
}

/// The error for what a segment begins with.
fn damaged(file: String, sequence: u64, problem: String) -> OplogError {
    OplogError::Corrupt {
        file,
        offset: 0,
        sequence,
        problem,
    }
}

/// The segment that follows the one with this first record, if any.
pub(super) fn following(disk: &dyn Disk, first_sequence: u64) -> Result<Option<Entry>> {
    let files = disk
        .list(names::OPLOG)
        .map_err(OplogError::io(names::OPLOG, "list"))?;
    let firsts = files.iter().filter_map(|file| names::segment_first(file));
    let next = firsts.filter(|first| *first > first_sequence).min();
    next.map(|next| read_header(disk, names::segment(next), None))
        .transpose()
}

/// The segment with this first record, which is written no more, and the one that follows it. Fails where either is
/// missing or has a damaged header.
pub(super) fn ended(disk: &dyn Disk, first_sequence: u64) -> Result<(Entry, Entry)> {
    let entry = read_header(disk, names::segment(first_sequence), None)?;
    let next = following(disk, first_sequence)?.ok_or_else(|| OplogError::Missing {
        file: entry.file.clone(),
        from: first_sequence,
        next: first_sequence + 1,
    })?;
    Ok((entry, next))
}

fn check_follows(before: &Entry, entry: &Entry) -> Result<()> {
    let expected = entry.header.previous_first;
    let found = before.header.first_sequence;
    if found < expected {
        return Err(OplogError::Missing {
            file: names::segment(expected),
            from: expected,
            next: entry.header.first_sequence,
        });
    }
    if found > expected {
        return Err(OplogError::Corrupt {
            file: entry.file.clone(),
            offset: 0,
            sequence: entry.header.first_sequence,
            problem: format!(
                "the segment follows {}, but the preceding segment is {}",
                names::segment(expected),
                before.file
            ),
        });
    }
    Ok(())
}

/// First record of a segment by its name. The result is for messages, so the name need not be quite that of a segment.
pub(super) fn sequence_of(file: &str) -> Option<u64> {
    let name = file.rsplit('/').next()?;
    u64::from_str_radix(name.split('.').next()?, 16).ok()
}
