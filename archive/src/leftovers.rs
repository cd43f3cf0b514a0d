//! Files that no manifest names: leftovers of crashes, and files that nobody knows.
//!
//! A start removes only files that it can prove to be needless, and puts the others in `aside/`, where they stay until
//! an operator removes them. Nothing is removed while a file that the manifest names is missing. Temporary files may go
//! then: they never had a name that counts. A sorted file goes when three more things hold. The files that reads need
//! can be opened. The manifest is known to be the newest there ever was, so that no lost manifest named the file. And
//! the file was made of others that are still there:
//!
//! * runs in `deltas/` and `ids/`: the log was read from where the manifest's runs end, so memory holds what they say;
//! * `runs/ring-…` and `archive/`: exports and merges of files that the manifest names, which the next rebuild makes
//!   again;
//! * `runs/fix-…` and `finals/`: the fix or the final day was not published, and is made again of the log;
//! * `runs/bulk-…` that still has its first name in `incoming/`: the adoption was not finished, and can be done again.
//!
//! While a server runs, it removes only files that it knows to be its own: a flush and an adoption remember the names
//! that they made, and a worker tells its server each name that it makes ([`Blobs::telling`]). Other processes may
//! write in the same directories.
//!
//! So ordinary crashes, in a flush, a rebuild or an adoption, leave nothing in `aside/`. Few files come there: those
//! that a lost manifest may have named, a dataset's run whose other name is gone, files that somebody else put there.

use std::collections::BTreeSet;

use crate::blobs::Blobs;
use crate::error::Result;
use crate::manifest::Manifest;
use crate::names;
use crate::origin::Origin;

/// The files that a start found out of place, by what it did with them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Cleared {
    /// Files that were removed.
    pub removed: usize,
    /// Files that were put aside: the names that they have now.
    pub aside: Vec<String>,
    /// Files that the manifest names and that are gone. Nothing was removed then.
    pub missing: Vec<String>,
}

/// Clears the directories of sorted files of those that the manifest does not name. The log was read by then.
/// `may_remove` says that it notes this manifest and never noted a later one, and that the files that reads need are
/// open. After an error, what was not cleared is as it was.
pub fn clear_at_start(blobs: &Blobs, manifest: &Manifest, may_remove: bool) -> Result<Cleared> {
    let named = manifest.file_names();
    let mut there = sorted_files(blobs)?;
    let missing = named.iter().filter(|name| !there.contains(**name));
    let mut cleared = Cleared {
        missing: missing.map(|name| (*name).to_owned()).collect(),
        ..Cleared::default()
    };
    let may_remove = may_remove && cleared.missing.is_empty();
    if cleared.missing.is_empty() {
        cleared.removed = remove_unfinished(blobs)?;
    }
    there.retain(|name| !named.contains(name.as_str()));
    let mut moved = Vec::new();
    for name in there {
        if may_remove && can_be_made_again(blobs, &name) {
            blobs.remove(&name)?;
            cleared.removed += 1;
        } else {
            cleared.aside.push(name_aside(blobs, manifest, &name)?);
            moved.push(name);
        }
    }
    // Their new names are durable: a crash leaves a file both names at worst.
    for name in &moved {
        blobs.remove(name)?;
    }
    // A name that comes back would be put aside once more.
    let directories: BTreeSet<&str> = moved.iter().map(|name| split(name).0).collect();
    for directory in directories {
        blobs.sync(directory)?;
    }
    Ok(cleared)
}

/// True for a file that was made of what is still there.
fn can_be_made_again(blobs: &Blobs, name: &str) -> bool {
    match names::origin_of(name) {
        Some(Origin::Load(_)) => {
            let first = names::before_adoption(split(name).1);
            first.is_some_and(|first| blobs.content(&first).is_ok())
        }
        origin => origin.is_some(),
    }
}

/// Gives a file a free name in `aside/`, which is returned.
fn name_aside(blobs: &Blobs, manifest: &Manifest, name: &str) -> Result<String> {
    let (directory, file) = split(name);
    let mut again = 0;
    loop {
        let aside = names::aside(manifest.number, directory, file, again);
        if blobs.copy_into(names::ASIDE, name, &aside)? {
            return Ok(aside);
        }
        again += 1;
    }
}

/// Removes temporary files, and sorted files that the manifest does not name, from a copy.
pub fn remove_leftovers(blobs: &Blobs, manifest: &Manifest) -> Result<usize> {
    let mut removed = remove_unfinished(blobs)?;
    let named = manifest.file_names();
    for name in sorted_files(blobs)? {
        if !named.contains(name.as_str()) {
            blobs.remove(&name)?;
            removed += 1;
        }
    }
    Ok(removed)
}

/// The names of all sorted files that are there, whether a manifest names them or not.
pub fn sorted_files(blobs: &Blobs) -> Result<BTreeSet<String>> {
    let mut found = BTreeSet::new();
    for directory in names::SORTED_FILE_DIRECTORIES {
        let files = blobs.list(directory)?;
        found.extend(files.into_iter().map(|file| format!("{directory}/{file}")));
    }
    Ok(found)
}

/// The directory of a sorted file, and its name there.
fn split(name: &str) -> (&str, &str) {
    name.split_once('/').expect("BUG: it is in a directory")
}

/// Removes blobs that were begun and not finished.
pub fn remove_unfinished(blobs: &Blobs) -> Result<usize> {
    let mut removed = 0;
    for directory in names::DIRECTORIES {
        // Files that are sorted for a load belong to the process that sorts them.
        if directory != names::OPLOG && directory != names::INCOMING {
            removed += blobs.remove_unfinished(directory)?;
        }
    }
    Ok(removed)
}

/// A file that only a manifest can have named, if there is one: where there is no manifest, it was lost.
pub fn any_sorted_file(blobs: &Blobs) -> Result<Option<String>> {
    for directory in names::SORTED_FILE_DIRECTORIES {
        let files = blobs.list(directory)?;
        if let Some(file) = files.first() {
            return Ok(Some(format!("{directory}/{file}")));
        }
    }
    Ok(None)
}
