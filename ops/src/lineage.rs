//! `LINEAGE`: which of several stores that were once the same store a directory holds.
//!
//! A restored store keeps the identity of the original, with the key of its long-key hashes. From the restore on the
//! two count apart, so a copy of one must never take files of the other: their logs have the same names. An original
//! store has no such file; a restore writes a new one; a backup has that of its source.

use std::path::Path;

use tallyring_archive::{Blobs, names};
use tallyring_realtime::is_same_store;

use crate::data_directory::random;
use crate::error::{CommandError, Result};

/// Writes a new lineage for a store that was just restored.
pub(crate) fn begin(blobs: &Blobs) -> Result<()> {
    let mut bytes = [0; 16];
    random(&mut bytes);
    let text = format!("{:032x}\n", u128::from_be_bytes(bytes));
    Ok(blobs.put_over(names::LINEAGE, text.as_bytes())?)
}

/// Gives a new backup the lineage of its source; an existing backup must have the same one. Messages call the backup
/// `name`. Fails when the lineages differ. After an error the backup is unchanged.
pub(crate) fn carry(source: &Blobs, target: &Blobs, name: &Path) -> Result<()> {
    let there = target.read_if_there(names::IDENTITY)?;
    // The copy itself finds a backup of a store with another identity.
    let is_other = there.is_some() && !is_same_store(source, target);
    if is_other || is_same(source, target)? {
        return Ok(());
    }
    if there.is_some() {
        return Err(CommandError::Failed(format!(
            "{} is a backup of a store that this one was restored from, or the other way round: they count apart since; \
             name another directory, or move that one away",
            name.display()
        )));
    }
    match source.read_if_there(names::LINEAGE)? {
        Some(lineage) => Ok(target.put_over(names::LINEAGE, &lineage)?),
        // A first backup of another store that was interrupted.
        None => Ok(target.remove(names::LINEAGE)?),
    }
}

/// True when both are one store, or a store and its backup.
pub(crate) fn is_same(one: &Blobs, other: &Blobs) -> Result<bool> {
    let (one, other) = (
        one.read_if_there(names::LINEAGE)?,
        other.read_if_there(names::LINEAGE)?,
    );
    Ok(one.as_deref() == other.as_deref())
}
