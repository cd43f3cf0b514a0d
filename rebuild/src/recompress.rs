//! Recompression: the files of closed years are written once again, smaller, when there is time for it.
//!
//! Few counts come to a closed year any more, so what is saved is saved for long. The lines stay the same, and so does
//! everything that a manifest says of them but names, bytes and hashes: no generation is made.

use std::collections::{BTreeMap, BTreeSet};

use tallyring_archive::merge::{Keep, merge_told};
use tallyring_archive::{
    Disk, Error, Manifest, Result, Run, RunEntry, RunMeta, RunSpec, RunWriter,
};

use crate::closed::first_open_year;
use crate::progress::{Bytes, Progress};

/// Files of closed years that were written at a lower level, one of each content.
pub fn recompressible(manifest: &Manifest, level: i32) -> Vec<&RunEntry> {
    let first_open_year = first_open_year(manifest.today);
    let mut seen = BTreeSet::new();
    sorted_files(manifest)
        .filter(|file| {
            let partition = file.meta.partition;
            partition.is_year()
                && partition.year() < first_open_year
                && file.meta.level().is_some_and(|before| before < level)
                && seen.insert(file.hash.as_str())
        })
        .collect()
}

/// Writes a file of the manifest again at another level, with all its names; what to name for each of them. Nothing
/// counts until that is published.
///
/// # Errors
/// A damaged file, or the disk.
pub fn recompress(
    disk: &dyn Disk,
    manifest: &Manifest,
    file: &RunEntry,
    level: i32,
    progress: Progress<'_>,
) -> Result<BTreeMap<String, RunEntry>> {
    let input = Run::open_named(disk, file)?;
    let done = Bytes::of(file.bytes, progress);
    let mut replaced: BTreeMap<String, RunEntry> = BTreeMap::new();
    let mut made: Option<RunEntry> = None;
    for twin in sorted_files(manifest).filter(|twin| twin.hash == file.hash) {
        if replaced.contains_key(&twin.name) {
            continue;
        }
        let spec = RunSpec::again(twin, level).ok_or_else(|| other(twin, "its name is unknown"))?;
        let directory = spec.directory;
        let entry = match &made {
            Some(made) => {
                let name = spec.name(&made.hash);
                disk.link(&made.name, &name)
                    .map_err(Error::io("name", &name))?;
                RunEntry {
                    name,
                    ..made.clone()
                }
            }
            None => {
                let keep = Keep::all(spec.shard, spec.shards);
                let inputs = std::slice::from_ref(&input);
                let out = RunWriter::create(disk, spec)?;
                let entry = merge_told(inputs, out, keep, &|bytes| done.add(bytes))?;
                let same = entry.filter(|entry| holds_the_same(&entry.meta, &file.meta));
                same.ok_or_else(|| other(file, "it holds other lines when it is written again"))?
            }
        };
        disk.sync_directory(directory)
            .map_err(Error::io("sync", directory))?;
        replaced.insert(twin.name.clone(), entry.clone());
        made = Some(entry);
    }
    Ok(replaced)
}

/// Source runs and files of generations; some more than once.
fn sorted_files(manifest: &Manifest) -> impl Iterator<Item = &RunEntry> {
    let generations = manifest.generations.iter();
    manifest
        .all_sources()
        .chain(generations.flat_map(|generation| &generation.files))
}

fn holds_the_same(meta: &RunMeta, other: &RunMeta) -> bool {
    let compression = meta.compression.clone();
    *meta
        == RunMeta {
            compression,
            ..other.clone()
        }
}

fn other(file: &RunEntry, what: &str) -> Error {
    Error::Imbalance {
        name: file.name.clone(),
        what: what.into(),
    }
}
