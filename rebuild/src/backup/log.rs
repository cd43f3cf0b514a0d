//! The log's segments. All but the newest never change; that one is copied again as far as it has come.
//!
//! Where the source has removed what the copy's log would go on with, the new segments cannot stand beside those that the
//! copy's manifest needs. They are then written as `oplog/<segment>.<manifest>.staged`, and take the place of all others
//! once that manifest is committed: [`settle`].

use std::io::ErrorKind;

use tallyring_archive::disk::{replace_whole, write_whole};
use tallyring_archive::{Disk, Error, Manifest, names};
use tallyring_realtime::oplog::{copy_segment, goes_on};

use super::{BackupError, Copy};

/// Ends a segment's name; the number of its first record, 16 hex digits, precedes.
const SEGMENT_SUFFIX: &str = ".tlog";
const STAGED_SUFFIX: &str = ".staged";

impl Copy<'_> {
    pub(super) fn log(&mut self, manifest: u64) -> Result<(), BackupError> {
        let segments = list(self.source)?;
        let there = list(self.target)?;
        let newest = there.last().copied();
        let is_staged = newest.is_some_and(|newest| !segments.contains(&newest));
        if is_staged && newest >= segments.first().copied() {
            return Err(BackupError::OtherLog);
        }
        // What is staged would count before it is complete.
        let committed = Manifest::load(self.target)?;
        if is_staged && committed.is_some_and(|committed| committed.number == manifest) {
            return Err(BackupError::Behind);
        }
        for first in segments {
            // What follows the target's newest is new, and that one may have grown.
            if there.contains(&first) && newest != Some(first) {
                self.copied.kept += 1;
                continue;
            }
            let content = copy_segment(self.source, first)?;
            let name = match is_staged {
                true => staged_name(first, manifest),
                false => name_of(first),
            };
            if newest == Some(first) {
                // One that is damaged is healed.
                let earlier = copy_segment(self.target, first).ok();
                if earlier.is_some_and(|earlier| !goes_on(&content, &earlier)) {
                    return Err(BackupError::OtherLog);
                }
                replace_whole(self.target, &name, &content)?;
            } else {
                write_whole(self.target, &name, &content)?;
            }
            if !is_staged {
                // No segment stands behind a gap.
                sync(self.target)?;
            }
            self.read_back(&name, &content)?;
            self.wrote(content.len() as u64);
        }
        Ok(())
    }

    fn read_back(&self, name: &str, content: &[u8]) -> Result<(), Error> {
        let written = self.target.read(name).map_err(Error::io("read", name))?;
        if *written == *content {
            return Ok(());
        }
        // Never taken for a good one by its name.
        let _ = self.target.remove(name);
        let other = std::io::Error::new(ErrorKind::InvalidData, "what was written is not there");
        Err(Error::io("read back", name)(other))
    }

    /// Removes segments that the source has expired, once the manifest that may need them is replaced.
    pub(super) fn drop_old_log(&self) -> Result<(), Error> {
        match list(self.source)?.first() {
            Some(oldest) => remove_before(self.target, *oldest),
            None => Ok(()),
        }
    }
}

/// Finishes or takes back what a copy that was stopped has staged.
pub(super) fn settle(copy: &dyn Disk) -> Result<(), Error> {
    let files = files(copy)?;
    let staged: Vec<(u64, u64)> = files.iter().filter_map(|file| staged_of(file)).collect();
    if staged.is_empty() {
        return Ok(());
    }
    let committed = Manifest::load(copy)?.map(|manifest| manifest.number);
    let (current, stale): (Vec<_>, Vec<_>) = staged
        .into_iter()
        .partition(|(_, manifest)| Some(*manifest) == committed);
    for (first, manifest) in stale {
        let name = staged_name(first, manifest);
        copy.remove(&name).map_err(Error::io("remove", &name))?;
    }
    if let Some((oldest, _)) = current.first() {
        remove_before(copy, *oldest)?;
    }
    for (first, manifest) in &current {
        let (from, to) = (staged_name(*first, *manifest), name_of(*first));
        copy.link(&from, &to).map_err(Error::io("name", &to))?;
    }
    sync(copy)?;
    // The oldest last, each durably: what is before one that is still staged is old.
    for (first, manifest) in current.into_iter().rev() {
        let name = staged_name(first, manifest);
        copy.remove(&name).map_err(Error::io("remove", &name))?;
        sync(copy)?;
    }
    Ok(())
}

fn sync(disk: &dyn Disk) -> Result<(), Error> {
    disk.sync_directory(names::OPLOG)
        .map_err(Error::io("sync", names::OPLOG))
}

fn remove_before(disk: &dyn Disk, oldest: u64) -> Result<(), Error> {
    for first in list(disk)?.into_iter().take_while(|first| *first < oldest) {
        let name = name_of(first);
        disk.remove(&name).map_err(Error::io("remove", &name))?;
    }
    Ok(())
}

/// Segments by their first record, oldest first.
fn list(disk: &dyn Disk) -> Result<Vec<u64>, Error> {
    let files = files(disk)?;
    Ok(files.iter().filter_map(|file| first_of(file)).collect())
}

fn files(disk: &dyn Disk) -> Result<Vec<String>, Error> {
    disk.list(names::OPLOG)
        .map_err(Error::io("list", names::OPLOG))
}

fn name_of(first: u64) -> String {
    format!("{}/{first:016x}{SEGMENT_SUFFIX}", names::OPLOG)
}

fn first_of(file: &str) -> Option<u64> {
    u64::from_str_radix(file.strip_suffix(SEGMENT_SUFFIX)?, 16).ok()
}

fn staged_name(first: u64, manifest: u64) -> String {
    format!("{}.{manifest:016x}{STAGED_SUFFIX}", name_of(first))
}

/// First record and manifest of a staged segment.
fn staged_of(file: &str) -> Option<(u64, u64)> {
    let (segment, manifest) = file.strip_suffix(STAGED_SUFFIX)?.rsplit_once('.')?;
    Some((first_of(segment)?, u64::from_str_radix(manifest, 16).ok()?))
}
