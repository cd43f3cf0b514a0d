//! The log's segments. All but the newest never change; that one is copied again as far as it has come.
//!
//! No segment stands behind a gap: each is durable before the next one is named, and the oldest goes first. Where the
//! source has removed what the copy's log would go on with, the new segments cannot stand beside those that the copy's
//! manifest needs. They are then written as `oplog/<segment>.<manifest>.staged`, and take the place of all others once
//! that manifest is committed: [`finish`].

use std::io::ErrorKind;

use tallyring_archive::disk::{remove_temporary_files, replace_whole};
use tallyring_archive::{Disk, Error, Manifest, names};
use tallyring_realtime::oplog::{
    OplogError, SEGMENT_HEADER_BYTES, Segment, copy_segment, segment, segments,
};

use super::{Attempt, BackupError};

impl Attempt<'_> {
    /// Copies what the copy lacks, and makes sure that all that `manifest` needs is there. The first record of it.
    pub(super) fn log(&mut self, manifest: &Manifest) -> Result<u64, BackupError> {
        let segments = segments(self.source)?;
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
            let (content, frames) =
                copy_segment(self.source, &segments[place], segments.get(place + 1))?;
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
                None => copy_segment(self.source, segment, segments.get(place + 1))?,
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
    fn is_the_same(&self, first: u64) -> Result<bool, OplogError> {
        let name = names::segment(first);
        let read = |disk: &dyn Disk| {
            disk.read(&name).map_err(|source| OplogError::Io {
                file: name.clone(),
                action: "read",
                source,
            })
        };
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
        replace_whole(self.target, &name, content)?;
        sync(self.target)?;
        let written = self.target.read(&name).map_err(Error::io("read", &name))?;
        if *written != *content {
            return Err(BackupError::NotWritten(name));
        }
        self.wrote(content.len() as u64);
        Ok(())
    }
}

/// True when `content` goes on where the copy of that segment ends, as far as the source cannot have lost it in a crash.
/// One that is damaged is healed.
fn goes_on(target: &dyn Disk, first: u64, content: &[u8]) -> bool {
    match segment(target, first).and_then(|segment| copy_segment(target, &segment, None)) {
        Ok((earlier, frames)) => content.starts_with(&earlier[..frames.durable_bytes]),
        Err(_) => true,
    }
}

/// Takes back what a copy that was stopped has staged in vain. Only who holds the copy's lock may.
pub(super) fn take_back(copy: &dyn Disk) -> Result<(), Error> {
    let committed = Manifest::load(copy)?.map(|manifest| manifest.number);
    for (first, manifest) in staged(copy)? {
        if Some(manifest) != committed {
            let name = names::staged_segment(first, manifest);
            copy.remove(&name).map_err(Error::io("remove", &name))?;
        }
    }
    remove_temporary_files(copy, names::OPLOG).map_err(Error::io("clean", names::OPLOG))?;
    Ok(())
}

/// Puts what was staged for the committed manifest in the place of all other segments.
pub(super) fn finish(copy: &dyn Disk) -> Result<(), Error> {
    let committed = Manifest::load(copy)?.map(|manifest| manifest.number);
    let mut staged = staged(copy)?;
    staged.retain(|(_, manifest)| Some(*manifest) == committed);
    let Some(&(oldest, _)) = staged.first() else {
        return Ok(());
    };
    // Whoever committed it may have died before its name was durable.
    copy.sync_directory(names::MANIFESTS)
        .map_err(Error::io("sync", names::MANIFESTS))?;
    remove_before(copy, oldest)?;
    for &(first, manifest) in &staged {
        let from = names::staged_segment(first, manifest);
        let to = names::segment(first);
        copy.link(&from, &to).map_err(Error::io("name", &to))?;
    }
    sync(copy)?;
    // The oldest last, each durably: what is before one that is still staged is old.
    for (first, manifest) in staged.into_iter().rev() {
        let name = names::staged_segment(first, manifest);
        remove(copy, &name)?;
        sync(copy)?;
    }
    Ok(())
}

/// Removes segments before this one, the oldest first, each durably: a crash that keeps any of several removals would
/// leave a gap.
pub(super) fn remove_before(disk: &dyn Disk, oldest: u64) -> Result<(), Error> {
    for first in list(disk)?.into_iter().take_while(|first| *first < oldest) {
        let name = names::segment(first);
        remove(disk, &name)?;
        sync(disk)?;
    }
    Ok(())
}

/// Whoever restores from a copy may finish it beside who made it.
fn remove(disk: &dyn Disk, name: &str) -> Result<(), Error> {
    match disk.remove(name) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(Error::io("remove", name)(error)),
        _ => Ok(()),
    }
}

fn sync(disk: &dyn Disk) -> Result<(), Error> {
    disk.sync_directory(names::OPLOG)
        .map_err(Error::io("sync", names::OPLOG))
}

/// Segments by their first record, oldest first.
pub(super) fn list(disk: &dyn Disk) -> Result<Vec<u64>, Error> {
    let files = files(disk)?;
    let segments = files.iter();
    Ok(segments
        .filter_map(|file| names::segment_first(file))
        .collect())
}

/// First record and manifest of every staged segment, oldest first.
fn staged(disk: &dyn Disk) -> Result<Vec<(u64, u64)>, Error> {
    let files = files(disk)?;
    let staged = files.iter();
    Ok(staged
        .filter_map(|file| names::staged_segment_numbers(file))
        .collect())
}

fn files(disk: &dyn Disk) -> Result<Vec<String>, Error> {
    disk.list(names::OPLOG)
        .map_err(Error::io("list", names::OPLOG))
}
