//! Heals sorted files that are damaged or gone: what a manifest names is known by its hash, so a copy can be trusted
//! as soon as it has that hash, wherever it comes from.

use tallyring_archive::{Blobs, Manifest, Result, RunEntry, names, verify_bytes};
use tallyring_realtime::oplog::{OplogError, Segment, copy_segment, segment};

use crate::backup::copy_file;
use crate::remake::remake_file;

/// Where good bytes came from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Healed {
    /// Another name of the same content.
    Twin,
    /// The backup.
    Backup,
    /// Its source runs, merged again.
    Remade,
}

impl Healed {
    /// For people, behind `from`.
    pub fn told(self) -> &'static str {
        match self {
            Self::Twin => "its other name",
            Self::Backup => "the backup",
            Self::Remade => "its source runs, merged again",
        }
    }
}

/// Puts the bytes that `entry` tells of in the place of what is there. `None` when nobody has them.
/// The caller holds the lock.
///
/// # Errors
/// When the disk refuses.
pub fn heal(
    blobs: &Blobs,
    scratch: &Blobs,
    manifest: &Manifest,
    entry: &RunEntry,
    backup: Option<&Blobs>,
) -> Result<Option<Healed>> {
    let twin = manifest
        .files()
        .filter(|other| other.hash == entry.hash && other.name != entry.name)
        .find(|other| verify_bytes(blobs, other).is_ok());
    if let Some(twin) = twin {
        put(blobs, blobs, &twin.name, entry)?;
        return Ok(Some(Healed::Twin));
    }
    if let Some(backup) = backup
        && verify_bytes(backup, entry).is_ok()
    {
        copy_file(backup, blobs, entry)?;
        return Ok(Some(Healed::Backup));
    }
    // It may have been merged of runs that are damaged too, which is no reason to stop.
    if let Ok(Some(name)) = remake_file(blobs, scratch, manifest, entry) {
        put(scratch, blobs, &name, entry)?;
        return Ok(Some(Healed::Remade));
    }
    Ok(None)
}

fn put(from: &Blobs, blobs: &Blobs, name: &str, entry: &RunEntry) -> Result<()> {
    let content = from.read(name)?;
    blobs.put_over(&entry.name, &content)?;
    verify_bytes(blobs, entry).map(|_| ())
}

/// Puts what the backup has of a log segment in the place of a damaged or missing one. Its newest segment may lack what
/// was written later, so of that one only what the backup has is put back, and the rest stays. False when that makes
/// nothing whole.
///
/// # Errors
/// When a disk refuses.
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
    // It may not be there, or be damaged there, too.
    let Ok((own, is_closed, copy, frames)) = copied() else {
        return Ok(false);
    };
    let there = blobs.read(file).ok();
    let good = match (&there, is_closed) {
        (_, true) => copy,
        // What came after the backup would be lost without a word.
        (None, false) => return Ok(false),
        (Some(there), false) => {
            let rest = there.get(frames.bytes..).unwrap_or_default();
            [&copy[..frames.bytes], rest].concat()
        }
    };
    // The backup may hold records that this store lost in a crash, and has written others since.
    let next = following(blobs, first).ok().flatten();
    if own.read(&good, next.as_ref()).is_err() || there.is_some_and(|there| *there == *good) {
        return Ok(false);
    }
    blobs.put_over(file, &good)?;
    Ok(true)
}

/// The segment behind the one that begins with this record, if there is one.
fn following(blobs: &Blobs, first: u64) -> std::result::Result<Option<Segment>, OplogError> {
    let files = blobs.list(names::OPLOG).unwrap_or_default();
    let next = files
        .iter()
        .filter_map(|file| names::segment_first(file))
        .find(|next| *next > first);
    next.map(|next| segment(blobs.disk(), next)).transpose()
}
