//! Repairs sorted files that are damaged or missing. The manifest has the hash of every file, so a copy with that hash
//! can be trusted, wherever it comes from.

use tallyring_archive::{Blobs, Manifest, Result, RunEntry, names, verify_bytes};
use tallyring_realtime::oplog::{OplogError, Segment, copy_segment, plain_bytes, segment};

use crate::backup::copy_file;
use crate::remake::remake_file;

/// Source of the good bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Healed {
    /// Another name of the same content.
    Twin,
    /// The backup.
    Backup,
    /// The source runs of the file, merged again.
    Remade,
}

impl Healed {
    /// Text for people, to follow `from`.
    pub fn told(self) -> &'static str {
        match self {
            Self::Twin => "its other name",
            Self::Backup => "the backup",
            Self::Remade => "its source runs, merged again",
        }
    }
}

/// Replaces the file of `entry` by good bytes. Returns none when no source has them, and changes nothing. The caller
/// holds the lock of the data directory.
pub fn heal(
    blobs: &Blobs,
    scratch: &Blobs,
    manifest: &Manifest,
    entry: &RunEntry,
    backup: Option<&Blobs>,
) -> Result<Option<Healed>> {
    let clear_way = || blobs.clear_way(manifest.number, &entry.name);
    let twin = manifest
        .files()
        .filter(|other| other.hash == entry.hash && other.name != entry.name)
        .find(|other| verify_bytes(blobs, other).is_ok());
    if let Some(twin) = twin {
        clear_way()?;
        put(blobs, blobs, &twin.name, entry)?;
        return Ok(Some(Healed::Twin));
    }
    if let Some(backup) = backup
        && verify_bytes(backup, entry).is_ok()
    {
        clear_way()?;
        copy_file(backup, blobs, entry)?;
        return Ok(Some(Healed::Backup));
    }
    // The source runs may be damaged, too, which is no reason to stop.
    if let Ok(Some(name)) = remake_file(blobs, scratch, manifest, entry) {
        clear_way()?;
        put(scratch, blobs, &name, entry)?;
        return Ok(Some(Healed::Remade));
    }
    Ok(None)
}

fn put(from: &Blobs, blobs: &Blobs, name: &str, entry: &RunEntry) -> Result<()> {
    blobs.put_over_from(from, name, &entry.name)?;
    verify_bytes(blobs, entry).map(|_| ())
}

/// Replaces a damaged or missing log segment by the backup's copy. The newest segment of the backup may lack later
/// frames; the rest of the existing segment then stays. Returns false when the result would not be whole.
pub fn heal_segment(blobs: &Blobs, backup: &Blobs, file: &str) -> Result<bool> {
    let Some(first) = names::segment_first(file.rsplit('/').next().unwrap_or(file)) else {
        return Ok(false);
    };
    let copied = || {
        let own = segment(backup.disk(), first)?;
        let next = following(backup, first)?;
        let (copy, frames) = copy_segment(backup.disk(), &own, next.as_ref())?;
        Ok::<_, OplogError>((own, next.is_some(), copy, frames))
    };
    // The segment may be missing or damaged in the backup, too.
    let Ok((own, is_closed, copy, frames)) = copied() else {
        return Ok(false);
    };
    let existing = plain_bytes(blobs.disk(), first).ok();
    let good = match (&existing, is_closed) {
        (_, true) => copy,
        // Records from after the backup would be lost without an error.
        (None, false) => return Ok(false),
        (Some(existing), false) => {
            let rest = existing.get(frames.bytes..).unwrap_or_default();
            [&copy[..frames.bytes], rest].concat()
        }
    };
    // The backup may hold records that this store lost in a crash and replaced by others.
    let next = following(blobs, first).ok().flatten();
    if own.read(&good, next.as_ref()).is_err()
        || existing.is_some_and(|existing| *existing == *good)
    {
        return Ok(false);
    }
    blobs.put_over(file, &good)?;
    Ok(true)
}

/// The segment that follows the one with this first record, if any.
fn following(blobs: &Blobs, first: u64) -> Result<Option<Segment>, OplogError> {
    let files = blobs.list(names::OPLOG).unwrap_or_default();
    let next = files
        .iter()
        .filter_map(|file| names::segment_first(file))
        .find(|next| *next > first);
    next.map(|next| segment(blobs.disk(), next)).transpose()
}
