//! Which of the stores that were once the same one this is: `LINEAGE`.
//!
//! What is restored keeps the identity of what was backed up, with the key of its long-key hashes. From then on the two count
//! apart, so that a copy of one must never take in files of the other: their logs have the same names. A store that began
//! as itself has no such file; a restore gives its own to what it makes; a backup has that of what it is a copy of.

use std::path::Path;

use tallyring_archive::{Blobs, names};
use tallyring_realtime::is_same_store;

use crate::data_directory::random;
use crate::error::{CommandError, Result};

/// Begins one of its own for what was just restored.
///
/// # Errors
/// When the disk refuses.
pub fn begin(blobs: &Blobs) -> Result<()> {
    let mut bytes = [0; 16];
    random(&mut bytes);
    let text = format!("{:032x}\n", u128::from_be_bytes(bytes));
    Ok(blobs.put_over(names::LINEAGE, text.as_bytes())?)
}

/// Gives a new backup the lineage of its source; one that is there must have it. `name` is the backup's.
///
/// # Errors
/// When it has another one, or a disk refuses. Nothing of it was changed then.
pub fn carry(source: &Blobs, target: &Blobs, name: &Path) -> Result<()> {
    let there = read(target, names::IDENTITY)?;
    // That it is another store's altogether is found by whoever copies.
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
    match read(source, names::LINEAGE)? {
        Some(lineage) => Ok(target.put_over(names::LINEAGE, &lineage)?),
        // Of another store whose first backup was cut off.
        None => Ok(target.remove(names::LINEAGE)?),
    }
}

/// True when they are one store, or a store and its backup.
///
/// # Errors
/// When a disk refuses.
pub fn is_same(one: &Blobs, other: &Blobs) -> Result<bool> {
    Ok(read(one, names::LINEAGE)? == read(other, names::LINEAGE)?)
}

fn read(blobs: &Blobs, name: &str) -> Result<Option<Vec<u8>>> {
    let content = blobs.read_if_there(name)?;
    Ok(content.map(|content| content.to_vec()))
}
