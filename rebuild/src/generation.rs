//! A generation: for every partition and shard, the merge of its source runs.

use std::collections::{BTreeMap, BTreeSet};
use std::mem;
use std::sync::atomic::{AtomicU64, Ordering};

use rayon::prelude::*;
use serde::{Deserialize, Serialize};
use tallyring_archive::merge::{Horizon, add_sums, may_lose};
use tallyring_archive::{
    Blobs, Build, Erasures, Error, GenerationEntry, KeepDays, Manifest, Origin, Partition, Result,
    RunEntry, RunSpec, Sign, Sums, Work,
};
use tallyring_records::is_actions_section;

use crate::erase::clean;
use crate::export::{bytes, export, merge_or_link};
use crate::horizon::{held_back, horizon};
use crate::plan::{Plan, plan};
use crate::progress::{Bytes, Progress};

/// Files that are smaller than this together are written again every night.
pub const REWRITE_BYTES_MIN: u64 = 1 << 20;

/// Limits of a rebuild.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub struct BuildOptions {
    /// Shards of the new generation.
    pub shards: u16,
    /// zstd level of merged files, 1–19.
    pub level: i32,
    /// How long finer detail is kept.
    pub keep: KeepDays,
    /// Hours before the present one for which breakdowns by minute are kept.
    pub breakdown_hours: u32,
    /// Months of fewer bytes are written again every night; [`REWRITE_BYTES_MIN`] unless a test wants all to wait.
    pub rewrite_bytes_min: u64,
}

/// Builds the next generation of the files that `manifest` names. Returns none when nothing is to be exported or
/// merged; a build without a generation adds source runs that wait to be merged, and clears delta stores. Fixes of a
/// month that take more away than was counted are left out, and [`Build::refused`] says so. Fails when a run is
/// damaged, two texts have the same hash, the sums do not balance, or a disk fails. Nothing counts then, and the next
/// start removes the new files.
pub fn build(
    blobs: &Blobs,
    manifest: &Manifest,
    options: BuildOptions,
    progress: Progress<'_>,
) -> Result<Option<Build>> {
    let exported = export(blobs, manifest, &options, progress)?;
    let before = exported.read_bytes;
    let progress = |done, total| progress(before + done, before + total);
    let mut horizon = horizon(manifest, &options);
    let mut refused = BTreeMap::new();
    let merged = merge_planned(
        blobs,
        manifest,
        &exported.runs,
        options,
        &mut horizon,
        &progress,
        &mut refused,
    )?;
    let newest = manifest.archive.generations.last();
    let newest = newest.map_or(0, |newest| newest.number);
    let mut work = Work::default();
    let generation = merged.map(|merged| {
        let counted = &merged.counted;
        work = merged.work;
        GenerationEntry {
            number: newest + 1,
            // Publishing sets the time.
            created_at_ms: 0,
            cut_at_ms: Some(manifest.written_at_ms.min(waiting_from_ms(
                manifest,
                &exported.runs,
                counted,
            ))),
            merged: counted.iter().map(|run| run.name.clone()).collect(),
            files: merged.files,
            minutes_from: (horizon.minutes_from > i64::MIN).then_some(horizon.minutes_from),
            hours_from: (horizon.hours_from > i64::MIN).then_some(horizon.hours_from),
            breakdowns_from: Some(horizon.breakdowns_from),
            actions_from: (horizon.actions_from > i64::MIN).then_some(horizon.actions_from),
            keep: options.keep,
        }
    });
    let cleaned = clean(blobs, manifest)?;
    let is_empty = exported.stores.is_empty() && cleaned.is_empty() && refused.is_empty();
    if generation.is_none() && is_empty {
        return Ok(None);
    }
    Ok(Some(Build {
        base: manifest.number,
        exported: exported.stores,
        runs: exported.runs,
        generation,
        cleaned,
        refused: refused.into_values().collect(),
        work,
    }))
}

/// The outcome of a plan.
struct Merged<'r> {
    /// Source runs that the files count.
    counted: Vec<&'r RunEntry>,
    /// All files of the generation.
    files: Vec<RunEntry>,
    work: Work,
}

/// Plans the next generation and writes its files; none where it would be the one before. Where the fixes of a
/// partition take more away than was counted, they stay deltas, and `refused` gets the reason. `horizon` is held back
/// to the detail of fixes that stay deltas.
fn merge_planned<'r>(
    blobs: &Blobs,
    manifest: &'r Manifest,
    exported: &'r [RunEntry],
    options: BuildOptions,
    horizon: &mut Horizon,
    progress: Progress<'_>,
    refused: &mut BTreeMap<Partition, String>,
) -> Result<Option<Merged<'r>>> {
    loop {
        let mut plan = plan(manifest, exported, &options, *horizon, refused);
        let held_back = held_back(*horizon, left_fixes(manifest, &plan));
        if held_back != *horizon {
            *horizon = held_back;
            continue;
        }
        if !plan.changes {
            return Ok(None);
        }
        let counted = mem::take(&mut plan.counted);
        let without = (*horizon, &manifest.intake.erasures);
        match write_files(blobs, plan, options, without, progress) {
            Ok((files, work)) => {
                balance(&counted, &files)?;
                return Ok(Some(Merged {
                    counted,
                    files,
                    work,
                }));
            }
            Err((partition, error @ Error::BelowZero { .. }))
                if !refused.contains_key(&partition) =>
            {
                refused.insert(partition, error.to_string());
            }
            Err((_, error)) => return Err(error),
        }
    }
}

/// Fixes that the planned generation does not merge.
fn left_fixes<'r>(manifest: &'r Manifest, plan: &Plan<'_>) -> impl Iterator<Item = &'r RunEntry> {
    let counted: BTreeSet<&str> = plan.counted.iter().map(|run| &*run.name).collect();
    let fixes = manifest.archive.runs.iter();
    let fixes = fixes.filter(|run| run.origin.is_fix());
    fixes.filter(move |run| !counted.contains(&*run.name))
}

/// The start of the first day whose export waits for a later generation, Unix milliseconds.
fn waiting_from_ms(manifest: &Manifest, exported: &[RunEntry], counted: &[&RunEntry]) -> i64 {
    let counted: BTreeSet<&str> = counted.iter().map(|run| run.name.as_str()).collect();
    let sources = manifest.archive.sources().chain(exported);
    let of_days = sources.filter_map(|run| match &run.origin {
        Origin::Export { store, from: None } => Some((run, store.day()?)),
        _ => None,
    });
    let waiting = of_days.filter(|(run, _)| !counted.contains(run.name.as_str()));
    let days = waiting.map(|(_, day)| day.start().saturating_mul(1_000));
    days.min().unwrap_or(i64::MAX)
}

/// Writes the files that the plan merges, in parallel. Returns all files of the generation, or a partition that cannot
/// be merged.
fn write_files(
    blobs: &Blobs,
    plan: Plan<'_>,
    options: BuildOptions,
    without: (Horizon, &Erasures),
    progress: Progress<'_>,
) -> std::result::Result<(Vec<RunEntry>, Work), (Partition, Error)> {
    let all = plan.merged.iter().map(|target| bytes(&target.inputs));
    let done = Bytes::of(all.sum(), progress);
    let linked = AtomicU64::new(0);
    let written: Vec<Option<RunEntry>> = plan
        .merged
        .par_iter()
        .map(|target| {
            let spec = RunSpec {
                origin: Origin::Merge,
                partition: target.partition,
                shard: target.shard,
                shards: options.shards,
                level: options.level,
            };
            let file = merge_or_link(blobs, &target.inputs, spec, without, &done)
                .map_err(|error| (target.partition, error))?;
            if let ([run], Some(file)) = (target.inputs.as_slice(), &file)
                && run.hash == file.hash
            {
                linked.fetch_add(1, Ordering::Relaxed);
            }
            Ok(file)
        })
        .collect::<std::result::Result<_, _>>()?;
    let shared = plan.shared.len();
    let mut files = plan.shared;
    files.extend(written.into_iter().flatten());
    let linked = linked.into_inner();
    let work = Work {
        merged: (files.len() - shared) as u64 - linked,
        linked,
        shared: shared as u64,
    };
    files.sort_by_key(|file| (file.meta.partition, file.meta.shard));
    Ok((files, work))
}

/// Checks that a generation counts exactly what its source runs count, section by section. Sections of minutes and
/// of actions, which every merge has checked, may lose counts. Where a fix takes actions away, a merge leaves out those
/// of erased users.
fn balance(sources: &[&RunEntry], files: &[RunEntry]) -> Result<()> {
    let before = add_sums(sources.iter().map(|run| (run.sign(), &run.meta)))?;
    let after = add_sums(files.iter().map(|file| (file.sign(), &file.meta)))?;
    let sum = |sums: &Sums, section: &str| sums.get(section).copied().unwrap_or(0);
    let takes_actions = |section: &str| {
        let mut minus = sources.iter().filter(|run| run.sign() == Sign::Minus);
        is_actions_section(section) && minus.any(|run| run.meta.has_actions())
    };
    let balances = |section: &String| {
        let (before, after) = (sum(&before, section), sum(&after, section));
        before == after || may_lose(section) && after < before || takes_actions(section)
    };
    if before.keys().chain(after.keys()).all(balances) {
        return Ok(());
    }
    Err(Error::Imbalance {
        name: "the new generation".into(),
        what: format!("the source runs sum to {before:?}, but the files sum to {after:?}"),
    })
}
