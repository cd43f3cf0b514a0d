//! Erasure: files that hold actions of erased users are written again without them.
//!
//! Merges leave such actions out by themselves. Files that no merge reads anew are written again here: files that
//! generations share, and source runs that were merged before.

use std::ops::ControlFlow;

use rayon::prelude::*;
use tallyring_archive::merge::{Horizon, merge_erasing};
use tallyring_archive::{
    Blobs, BlockCache, Cleaned, Erasures, Hidden, Manifest, Result, Run, RunEntry, RunSpec,
    RunWriter,
};

/// zstd level of a file that an unknown build wrote.
const LEVEL: i32 = 6;
/// Decoded blocks that are kept while users are looked for in one file, bytes.
const CACHE_BYTES: u64 = 1 << 20;

/// Writes the files of the archive again that hold actions of erased users, one for each content. A damaged file stays
/// as it is, hides the users, and is tried again by the next rebuild. Fails when the disk fails.
pub(crate) fn clean(blobs: &Blobs, manifest: &Manifest) -> Result<Vec<Cleaned>> {
    let erasures = &manifest.intake.erasures;
    let generations = manifest.archive.generations.iter();
    let of_generations = generations.flat_map(|generation| &generation.files);
    let files = manifest.archive.all_sources().chain(of_generations);
    let may_hide =
        |file: &&RunEntry| file.meta.has_actions() && file.erased_until < erasures.until();
    let mut files: Vec<&RunEntry> = files.filter(may_hide).collect();
    files.sort_by_key(|file| (&file.hash, file.erased_until));
    files.dedup_by_key(|file| &file.hash);
    let clean = |file| match clean_file(blobs, erasures, file) {
        Err(error) if error.is_damage() => None,
        cleaned => Some(cleaned),
    };
    files.into_par_iter().filter_map(clean).collect()
}

fn clean_file(blobs: &Blobs, erasures: &Erasures, file: &RunEntry) -> Result<Cleaned> {
    let hidden = erasures.hidden_in(file);
    let named = Run::open_named(blobs, file)?;
    let by = match holds(&named, &hidden)? {
        true => {
            let level = file.meta.level().unwrap_or(LEVEL);
            let out = RunWriter::create(blobs, RunSpec::again(file, level))?;
            // The lines are written again as they are, whatever their sign.
            let run = Run::open(blobs, &file.name)?;
            let written = merge_erasing(&[run], &[file], erasures, out, Horizon::ALL, &|_| {})?;
            written.map(|written| RunEntry {
                corrects: file.corrects,
                ..written
            })
        }
        false => Some(RunEntry {
            erased_until: erasures.until(),
            ..file.clone()
        }),
    };
    Ok(Cleaned {
        hash: file.hash.clone(),
        by,
    })
}

/// True when the run has a hidden line.
fn holds(run: &Run, hidden: &Hidden) -> Result<bool> {
    let cache = BlockCache::new(CACHE_BYTES);
    for user in hidden.users() {
        let (prefix, mut is_there) = (user.prefix(), false);
        let prefix = prefix.as_bytes();
        run.visit_prefix(&cache, (prefix, prefix), &mut |key, _| {
            is_there |= key.starts_with(prefix);
            ControlFlow::Break(())
        })?;
        if is_there {
            return Ok(true);
        }
    }
    Ok(false)
}
