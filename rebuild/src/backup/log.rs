//! The segments of the log. All but the newest never change, except that they are packed, and later lose users who were
//! erased; the newest is copied again as far as it is written. A packed segment is copied as it is, and again where its
//! checksum is another.
//!
//! A copy is continued where the log of the source passes the same point: the same record after a frame with the same
//! checksum. Bytes are not compared, because payloads may have been replaced since.
//!
//! No segment has a gap before it: each segment is durable before the next one is named, and the oldest is removed
//! first. The source may have removed the segment with which the copy's log would continue. The new segments cannot
//! then be named beside those that the copy's manifest needs. They are written as `oplog/<segment>.<manifest>.staged`,
//! and replace all others once that manifest is committed ([`finish`]).

use tallyring_archive::{Blobs, Error, Manifest, names};
use tallyring_realtime::oplog::{
    SEGMENT_HEADER_BYTES, Segment, copy_segment, is_up_to_date, packed_file, segment, segments,
};

use super::{Attempt, BackupError};

impl Attempt<'_> {
    /// Copies the segments that the copy lacks, and checks that the log has everything that `manifest` needs. Returns
    /// the first record of the log.
    pub(super) fn log(&mut self, manifest: &Manifest) -> Result<u64, BackupError> {
        let segments = segments(self.source.disk())?;
        let oldest = segments.first().map(Segment::first_sequence);
        let oldest = oldest.ok_or(BackupError::NoStore(names::OPLOG))?;
        let needed = (manifest.intake.log_from(), manifest.intake.log_until());
        if oldest > needed.0 {
            return Err(BackupError::Incomplete { needed });
        }
        let existing = list(self.target)?;
        let newest = existing.last().copied();
        let index = segments
            .iter()
            .position(|one| newest == Some(one.first_sequence()));
        let is_staged = newest.is_some() && index.is_none();
        if is_staged {
            self.check_staging(manifest, newest > Some(oldest))?;
        }
        // Compared before anything is replaced: a difference may be damage, or another history.
        let mut compared = None;
        if let Some(index) = index {
            let (content, frames) = copy_segment(
                self.source.disk(),
                &segments[index],
                segments.get(index + 1),
            )?;
            if !goes_on(self.target, &segments[index], &content) {
                return Err(BackupError::OtherLog);
            }
            compared = Some((content, frames));
        }
        let mut end = 0;
        for (index, segment) in segments.iter().enumerate() {
            let first = segment.first_sequence();
            let (is_in_target, is_newest) = (existing.contains(&first), newest == Some(first));
            if is_in_target && !is_newest && self.is_the_same(first)? {
                self.copied.kept += 1;
                continue;
            }
            let (content, frames) = match compared.take_if(|_| is_newest) {
                Some(compared) => compared,
                None => copy_segment(self.source.disk(), segment, segments.get(index + 1))?,
            };
            end = frames.end_sequence;
            // A new segment is copied with its first frame: before that, a power cut may undo its name, and thereby its
            // number.
            if frames.durable_bytes == 0 && index > 0 && !is_in_target {
                continue;
            }
            let packed = packed_file(self.source.disk(), first, &content)?;
            let file = packed.as_ref().unwrap_or(&content);
            self.put(first, file, is_staged.then_some(manifest.number))?;
        }
        if end < needed.1 {
            return Err(BackupError::Incomplete { needed });
        }
        Ok(oldest)
    }

    /// Checks that staging is allowed: for segments that the source has removed, and for another manifest than the
    /// committed one.
    fn check_staging(&self, manifest: &Manifest, is_ahead: bool) -> Result<(), BackupError> {
        if is_ahead {
            return Err(BackupError::OtherLog);
        }
        let committed = Manifest::load(self.target)?;
        if committed.is_some_and(|committed| committed.number == manifest.number) {
            return Err(BackupError::Behind);
        }
        Ok(())
    }

    /// True when an earlier copy of a segment equals that of the source. All of it is read when `again` chooses it.
    fn is_the_same(&self, first: u64) -> Result<bool, Error> {
        let name = names::segment(first);
        let (one, other) = (self.source.content(&name)?, self.target.content(&name)?);
        if one.len() != other.len() {
            return Ok(false);
        }
        if (self.again)(&format!("{first:016x}")) {
            let is_same = one.equals(&other, one.len());
            return is_same.map_err(Error::io("read", &name));
        }
        // The header tells one history of a log from another, and a packed segment from a plain one; the foot of a
        // packed one tells whether payloads were replaced.
        let header = one.len().min(SEGMENT_HEADER_BYTES as u64);
        let is_same = one.equals(&other, header);
        let is_same = is_same.map_err(Error::io("read", &name))?;
        Ok(is_same && is_up_to_date(one, other))
    }

    fn put(&mut self, first: u64, content: &[u8], staged: Option<u64>) -> Result<(), BackupError> {
        let name = match staged {
            Some(manifest) => names::staged_segment(first, manifest),
            None => names::segment(first),
        };
        put_checked(self.target, name, content)?;
        self.wrote(content.len() as u64);
        Ok(())
    }
}

/// Writes a segment and reads it back.
pub(super) fn put_checked(blobs: &Blobs, name: String, content: &[u8]) -> Result<(), BackupError> {
    blobs.put_over(&name, content)?;
    match *blobs.read(&name)? == *content {
        true => Ok(()),
        false => Err(BackupError::NotWritten(name)),
    }
}

/// True when `content`, that of `segment` in the source, passes the point where the copy of the segment ends, as far as
/// the source cannot have lost it in a crash. A damaged copy is replaced.
fn goes_on(target: &Blobs, segment: &Segment, content: &[u8]) -> bool {
    let end = || {
        let copied = self::segment(target.disk(), segment.first_sequence())?;
        let (bytes, frames) = copy_segment(target.disk(), &copied, None)?;
        copied.last_point(&bytes, frames.durable_bytes)
    };
    end().map_or(true, |end| segment.passes(content, end))
}

/// Removes segments that a stopped copy has staged in vain. The caller holds the lock of the copy.
pub(super) fn remove_staged(copy: &Blobs) -> Result<(), Error> {
    let committed = Manifest::load(copy)?.map(|manifest| manifest.number);
    for (first, manifest) in staged(copy)? {
        if Some(manifest) != committed {
            let name = names::staged_segment(first, manifest);
            copy.remove(&name)?;
        }
    }
    copy.remove_unfinished(names::OPLOG).map(drop)
}

/// Replaces all other segments by those that were staged for the committed manifest.
pub(super) fn finish(copy: &Blobs) -> Result<(), Error> {
    let committed = Manifest::load(copy)?.map(|manifest| manifest.number);
    let mut staged = staged(copy)?;
    staged.retain(|(_, manifest)| Some(*manifest) == committed);
    let Some(&(oldest, _)) = staged.first() else {
        return Ok(());
    };
    // The process that committed the manifest may have died before its name was durable.
    copy.sync(names::MANIFESTS)?;
    remove_before(copy, oldest)?;
    for &(first, manifest) in &staged {
        let from = names::staged_segment(first, manifest);
        let to = names::segment(first);
        copy.copy(&from, &to)?;
    }
    // The oldest is removed last, and each removal is durable: segments before a staged one are old.
    for (first, manifest) in staged.into_iter().rev() {
        let name = names::staged_segment(first, manifest);
        remove(copy, &name)?;
    }
    Ok(())
}

/// Removes segments before this one, the oldest first, each durably: a crash that undoes some of several removals would
/// leave a gap.
pub(super) fn remove_before(blobs: &Blobs, oldest: u64) -> Result<(), Error> {
    for first in list(blobs)?.into_iter().take_while(|first| *first < oldest) {
        let name = names::segment(first);
        remove(blobs, &name)?;
    }
    Ok(())
}

/// Removes a file of the log durably; a restore may finish the copy at the same time as the process that wrote it.
fn remove(blobs: &Blobs, name: &str) -> Result<(), Error> {
    match blobs.remove(name) {
        Err(error) if !error.is_gone() => Err(error),
        _ => blobs.sync(names::OPLOG),
    }
}

/// First records of the segments, oldest first.
pub(super) fn list(blobs: &Blobs) -> Result<Vec<u64>, Error> {
    let files = blobs.list(names::OPLOG)?;
    let segments = files.iter();
    Ok(segments
        .filter_map(|file| names::segment_first(file))
        .collect())
}

/// First record and manifest of every staged segment, oldest first.
fn staged(blobs: &Blobs) -> Result<Vec<(u64, u64)>, Error> {
    let files = blobs.list(names::OPLOG)?;
    let staged = files.iter();
    Ok(staged
        .filter_map(|file| names::staged_segment_numbers(file))
        .collect())
}
