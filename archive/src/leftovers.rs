//! What a crash leaves: files that nothing names.

use crate::disk::{Disk, TEMPORARY_SUFFIX, remove_temporary_files};
use crate::error::{Error, Result};
use crate::manifest::Manifest;
use crate::names;

/// Removes temporary files, and sorted files that the manifest does not name.
///
/// # Errors
/// When the disk refuses.
pub fn remove_leftovers(disk: &dyn Disk, manifest: &Manifest) -> Result<usize> {
    let removed = remove_temporaries(disk)?;
    Ok(removed + remove_unnamed(disk, manifest, &names::SORTED_FILE_DIRECTORIES)?)
}

/// Removes temporary files only.
///
/// # Errors
/// When the disk refuses.
pub fn remove_temporaries(disk: &dyn Disk) -> Result<usize> {
    let mut removed = 0;
    for directory in names::DIRECTORIES {
        // What is sorted for a load belongs to the process that sorts it.
        if directory != names::OPLOG && directory != names::INCOMING {
            removed +=
                remove_temporary_files(disk, directory).map_err(Error::io("clean", directory))?;
        }
    }
    Ok(removed)
}

/// A file that only a manifest can have named, if there is one: where there is no manifest, it was lost.
///
/// # Errors
/// When the disk refuses.
pub fn any_sorted_file(disk: &dyn Disk) -> Result<Option<String>> {
    for directory in names::SORTED_FILE_DIRECTORIES {
        let files = disk.list(directory).map_err(Error::io("list", directory))?;
        let mut whole = files
            .iter()
            .filter(|file| !file.ends_with(TEMPORARY_SUFFIX));
        if let Some(file) = whole.next() {
            return Ok(Some(format!("{directory}/{file}")));
        }
    }
    Ok(None)
}

/// Removes what a rebuild that failed has made. A recompression that runs meanwhile fails, and is tried again.
///
/// # Errors
/// When the disk refuses.
pub fn remove_leftovers_of_rebuild(disk: &dyn Disk, manifest: &Manifest) -> Result<usize> {
    remove_all_unnamed(disk, manifest, [names::RUNS, names::ARCHIVE])
}

/// Removes what a flush that failed has made; where it is not known whether its manifest counts, that is not to be asked for.
///
/// # Errors
/// When the disk refuses.
pub fn remove_leftovers_of_flush(disk: &dyn Disk, manifest: &Manifest) -> Result<usize> {
    remove_all_unnamed(disk, manifest, [names::DELTAS, names::IDS])
}

fn remove_all_unnamed(
    disk: &dyn Disk,
    manifest: &Manifest,
    directories: [&str; 2],
) -> Result<usize> {
    let mut removed = remove_unnamed(disk, manifest, &directories)?;
    for directory in directories {
        removed +=
            remove_temporary_files(disk, directory).map_err(Error::io("clean", directory))?;
    }
    Ok(removed)
}

fn remove_unnamed(disk: &dyn Disk, manifest: &Manifest, directories: &[&str]) -> Result<usize> {
    let mut removed = 0;
    let named = manifest.file_names();
    for directory in directories {
        for file in disk.list(directory).map_err(Error::io("list", directory))? {
            let name = format!("{directory}/{file}");
            if !named.contains(name.as_str()) {
                disk.remove(&name).map_err(Error::io("remove", &name))?;
                removed += 1;
            }
        }
    }
    Ok(removed)
}
