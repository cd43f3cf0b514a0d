//! The log's segments. All but the newest never change; that one is copied again as far as it has come.
//!
//! No segment stands behind a gap: each is durable before the next one is named, and the oldest goes first. Where the
//! source has removed what the copy's log would go on with, the new segments cannot stand beside those that the copy's
//! manifest needs. They are then written as `oplog/<segment>.<manifest>.staged`, and take the place of all others once
//! that manifest is committed: [`finish`].

use tallyring_archive::{Blobs, Error, Manifest, names};
use tallyring_realtime::oplog::{SEGMENT_HEADER_BYTES, Segment, copy_segment, segment, segments};

use super::{Attempt, BackupError};

impl Attempt<'_> {
    /// Copies what the copy lacks, and makes sure that all that `manifest` needs is there. The first record of it.
    pub(super) fn log(&mut self, manifest: &Manifest) -> Result<u64, BackupError> {
        let segments = segments(self.source.disk())?;
        let oldest = segments.first().map(Segment::first_sequence);
        let oldest = oldest.ok_or(BackupError::NoStore(names::OPLOG))?;
        let needed = (manifest.intake.log_from(), manifest.intake.log_until());
        if oldest > needed.0 {
            return Err(BackupError::Incomplete { needed });
        }
        let there = list(self.target)?;
        let newest = there.last().copied();
        let place = segments
            .iter()
            .position(|one| newest == Some(one.first_sequence()));
        let is_staged = newest.is_some() && place.is_none();
        if is_staged {
            self.check_staging(manifest, newest > Some(oldest))?;
        }
        // Before anything is replaced: what differs may be damaged, or another history.
        let mut compared = None;
        if let Some(place) = place {
            let (content, frames) = copy_segment(
                self.source.disk(),
                &segments[place],
                segments.get(place + 1),
            )?;
            if !goes_on(self.target, segments[place].first_sequence(), &content) {
                return Err(BackupError::OtherLog);
            }
            compared = Some((content, frames));
        }
        let mut end = 0;
        for (place, segment) in segments.iter().enumerate() {
            let first = segment.first_sequence();
            let (is_there, is_newest) = (there.contains(&first), newest == Some(first));
            if is_there && !is_newest && self.is_the_same(first)? {
                self.copied.kept += 1;
                continue;
            }
            let (content, frames) = match compared.take_if(|_| is_newest) {
                Some(compared) => compared,
                None => copy_segment(self.source.disk(), segment, segments.get(place + 1))?,
            };
            end = frames.end_sequence;
            // A new one is copied with its first frame: before, a power cut may take back its name, and its number.
            if frames.durable_bytes == 0 && place > 0 && !is_there {
                continue;
            }
            self.put(first, &content, is_staged.then_some(manifest.number))?;
        }
        if end < needed.1 {
            return Err(BackupError::Incomplete { needed });
        }
        Ok(oldest)
    }

    /// Staging is for what the source has removed, and counts when another manifest is committed.
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

    /// True when a segment that was copied before is that of the source; all of it is read when its turn has come.
    fn is_the_same(&self, first: u64) -> Result<bool, Error> {
        let name = names::segment(first);
        let read = |blobs: &Blobs| blobs.read(&name);
        let (one, other) = (read(self.source)?, read(self.target)?);
        let compared = match (self.again)(&format!("{first:016x}")) {
            true => one.len(),
            // The header tells one history of a log from another.
            false => one.len().min(SEGMENT_HEADER_BYTES),
        };
        Ok(one.len() == other.len() && one[..compared] == other[..compared])
    }

    fn put(&mut self, first: u64, content: &[u8], staged: Option<u64>) -> Result<(), BackupError> {
        let name = match staged {
            Some(manifest) => names::staged_segment(first, manifest),
            None => names::segment(first),
        };
        self.target.put_over(&name, content)?;
        let written = self.target.read(&name)?;
        if *written != *content {
            return Err(BackupError::NotWritten(name));
        }
        self.wrote(content.len() as u64);
        Ok(())
    }
}

/// True when `content` goes on where the copy of that segment ends, as far as the source cannot have lost it in a crash.
/// One that is damaged is healed.
fn goes_on(target: &Blobs, first: u64, content: &[u8]) -> bool {
    match segment(target.disk(), first)
        .and_then(|segment| copy_segment(target.disk(), &segment, None))
    {
        Ok((earlier, frames)) => content.starts_with(&earlier[..frames.durable_bytes]),
        Err(_) => true,
    }
}

/// Takes back what a copy that was stopped has staged in vain. Only who holds the copy's lock may.
pub(super) fn take_back(copy: &Blobs) -> Result<(), Error> {
    let committed = Manifest::load(copy)?.map(|manifest| manifest.number);
    for (first, manifest) in staged(copy)? {
        if Some(manifest) != committed {
            let name = names::staged_segment(first, manifest);
            copy.remove(&name)?;
        }
    }
    copy.remove_unfinished(names::OPLOG).map(drop)
}

/// Puts what was staged for the committed manifest in the place of all other segments.
pub(super) fn finish(copy: &Blobs) -> Result<(), Error> {
    let committed = Manifest::load(copy)?.map(|manifest| manifest.number);
    let mut staged = staged(copy)?;
    staged.retain(|(_, manifest)| Some(*manifest) == committed);
    let Some(&(oldest, _)) = staged.first() else {
        return Ok(());
    };
    // Whoever committed it may have died before its name was durable.
    copy.sync(names::MANIFESTS)?;
    remove_before(copy, oldest)?;
    for &(first, manifest) in &staged {
        let from = names::staged_segment(first, manifest);
        let to = names::segment(first);
        copy.copy(&from, &to)?;
    }
    // The oldest last, each durably: what is before one that is still staged is old.
    for (first, manifest) in staged.into_iter().rev() {
        let name = names::staged_segment(first, manifest);
        remove(copy, &name)?;
        copy.sync(names::OPLOG)?;
    }
    Ok(())
}

/// Removes segments before this one, the oldest first, each durably: a crash that keeps any of several removals would
/// leave a gap.
pub(super) fn remove_before(blobs: &Blobs, oldest: u64) -> Result<(), Error> {
    for first in list(blobs)?.into_iter().take_while(|first| *first < oldest) {
        let name = names::segment(first);
        remove(blobs, &name)?;
        blobs.sync(names::OPLOG)?;
    }
    Ok(())
}

/// Whoever restores from a copy may finish it beside who made it.
fn remove(blobs: &Blobs, name: &str) -> Result<(), Error> {
    match blobs.remove(name) {
        Err(error) if !error.is_gone() => Err(error),
        _ => Ok(()),
    }
}

/// Segments by their first record, oldest first.
pub(super) fn list(blobs: &Blobs) -> Result<Vec<u64>, Error> {
    let files = files(blobs)?;
    let segments = files.iter();
    Ok(segments
        .filter_map(|file| names::segment_first(file))
        .collect())
}

/// First record and manifest of every staged segment, oldest first.
fn staged(blobs: &Blobs) -> Result<Vec<(u64, u64)>, Error> {
    let files = files(blobs)?;
    let staged = files.iter();
    Ok(staged
        .filter_map(|file| names::staged_segment_numbers(file))
        .collect())
}

fn files(blobs: &Blobs) -> Result<Vec<String>, Error> {
    blobs.list(names::OPLOG)
}
