//! Recompression: the files of closed years are written again, smaller, when there is time for it.
//!
//! Few counts come to a closed year, so the saved space is saved for long. The lines stay the same. A manifest changes
//! only in names, sizes and hashes, and no generation is made. A new file may replace the only copy of its counts, so
//! it is read back and compared with the old file first.

use std::collections::BTreeSet;

use tallyring_archive::merge::{Horizon, merge_erasing};
use tallyring_archive::{
    Blobs, Erasures, Error, Hidden, Manifest, Result, Run, RunEntry, RunMeta, RunSpec, RunWriter,
    verify_bytes,
};

use crate::closed::first_open_year;
use crate::progress::{Bytes, Progress};
use crate::remake::have_same_lines;

/// Files of closed years that were written at a lower level, one for each content. Only files that every kept
/// generation is made of are worth the time.
pub fn recompressible(manifest: &Manifest, level: i32) -> Vec<&RunEntry> {
    let first_open_year = first_open_year(manifest.intake.today);
    let mut seen = BTreeSet::new();
    lasting(manifest)
        .filter(|file| {
            let partition = file.meta.partition;
            partition.is_year()
                && partition.year() < first_open_year
                && file.meta.level().is_some_and(|before| {
                    before < level || (before == level && file.meta.is_before_sums())
                })
                && seen.insert(file.hash.as_str())
        })
        .collect()
}

/// Writes a file of the manifest again at another level. The new file does not count until it is published. Fails when
/// the file is damaged.
pub fn recompress(
    blobs: &Blobs,
    file: &RunEntry,
    level: i32,
    progress: Progress<'_>,
) -> Result<RunEntry> {
    let wrong = |what: &str| Error::malformed(&file.name, what);
    // The lines are written again as they are, whatever their sign.
    verify_bytes(blobs, file)?;
    let input = Run::open(blobs, &file.name)?;
    let spec = RunSpec::again(file, level);
    let done = Bytes::of(file.bytes, progress);
    let out = RunWriter::create(blobs, spec)?;
    let (inputs, none) = (std::slice::from_ref(&input), Erasures::default());
    let read = |bytes| done.add(bytes);
    let written = merge_erasing(inputs, &[], &none, out, Horizon::ALL, &read)?;
    let written = written.ok_or_else(|| wrong("the file has no lines"))?;
    if !are_equal_but_for_compression(&written.meta, &file.meta) {
        return Err(wrong("the file has other sums when it is written again"));
    }
    if !have_same_lines(
        (&input, &Hidden::default()),
        &verify_bytes(blobs, &written)?,
    )? {
        return Err(wrong("the file has other lines when it is written again"));
    }
    Ok(RunEntry {
        erased_until: file.erased_until,
        ..written
    })
}

/// Files and source runs that both the oldest and the newest generation are made of.
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

fn are_equal_but_for_compression(meta: &RunMeta, other: &RunMeta) -> bool {
    let compression = meta.compression.clone();
    *meta
        == RunMeta {
            compression,
            ..other.clone()
        }
}
