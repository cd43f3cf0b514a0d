//! Recompression: the files of closed years are written once again, smaller, when there is time for it.
//!
//! Few counts come to a closed year any more, so what is saved is saved for long. The lines stay the same, and so does
//! everything that a manifest says of them but names, bytes and hashes: no generation is made. What replaces the only
//! copy of something is read back and compared with it first.

use std::collections::BTreeSet;

use tallyring_archive::merge::{Horizon, merge_told};
use tallyring_archive::{
    Blobs, Error, Manifest, Result, RunEntry, RunMeta, RunSpec, RunWriter, verify_bytes,
};

use crate::closed::first_open_year;
use crate::progress::{Bytes, Progress};
use crate::remake::have_same_lines;

/// Files of closed years that were written at a lower level, one of each content. Only what every kept generation is made
/// of: what comes and goes is not worth the time.
pub fn recompressible(manifest: &Manifest, level: i32) -> Vec<&RunEntry> {
    let first_open_year = first_open_year(manifest.intake.today);
    let mut seen = BTreeSet::new();
    lasting(manifest)
        .filter(|file| {
            let partition = file.meta.partition;
            partition.is_year()
                && partition.year() < first_open_year
                && file.meta.level().is_some_and(|before| before < level)
                && seen.insert(file.hash.as_str())
        })
        .collect()
}

/// Writes a file of the manifest again at another level. It counts for nothing until it is published.
///
/// # Errors
/// A damaged file, or the disk.
pub fn recompress(
    blobs: &Blobs,
    file: &RunEntry,
    level: i32,
    progress: Progress<'_>,
) -> Result<RunEntry> {
    let wrong = |what: &str| Error::malformed(&file.name, what);
    let input = verify_bytes(blobs, file)?;
    let spec = RunSpec::again(file, level);
    let done = Bytes::of(file.bytes, progress);
    let out = RunWriter::create(blobs, spec)?;
    let inputs = std::slice::from_ref(&input);
    let made = merge_told(inputs, out, Horizon::ALL, &|bytes| done.add(bytes))?;
    let made = made.ok_or_else(|| wrong("it holds nothing"))?;
    if !means_the_same(&made.meta, &file.meta) {
        return Err(wrong("written again it has other books"));
    }
    if !have_same_lines(&input, &verify_bytes(blobs, &made)?)? {
        return Err(wrong("written again it holds other lines"));
    }
    Ok(made)
}

/// What the newest generation has, or the next one will, and the oldest has, too.
fn lasting(manifest: &Manifest) -> impl Iterator<Item = &RunEntry> {
    let generations = &manifest.archive.generations;
    let (oldest, newest) = (generations.first(), generations.last());
    let sources = manifest
        .archive
        .sources()
        .filter(move |run| oldest.is_some_and(|oldest| oldest.merged.contains(&run.name)));
    let files = newest.into_iter().flat_map(|newest| &newest.files);
    let files = files.filter(move |file| {
        let mut of_oldest = oldest.into_iter().flat_map(|oldest| &oldest.files);
        of_oldest.any(|old| old.name == file.name)
    });
    sources.chain(files)
}

fn means_the_same(meta: &RunMeta, other: &RunMeta) -> bool {
    let compression = meta.compression.clone();
    *meta
        == RunMeta {
            compression,
            ..other.clone()
        }
}
