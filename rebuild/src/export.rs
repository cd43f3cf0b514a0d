//! Export: the runs of closed delta stores become source runs, one a month and shard.

use std::cell::Cell;
use std::collections::BTreeMap;

use rayon::prelude::*;
use tallyring_archive::merge::{Horizon, merge_told};
use tallyring_archive::{
    Blobs, Manifest, Origin, Partition, Result, Run, RunEntry, RunSpec, RunWriter, StoreEntry,
    names,
};
use tallyring_records::StoreId;

use crate::horizon::loses;
use crate::progress::{Bytes, Progress};

/// What export made.
pub struct Exported {
    /// Stores whose every count is in `runs`.
    pub stores: Vec<StoreId>,
    /// New source runs, synced and named.
    pub runs: Vec<RunEntry>,
    /// Bytes of the runs that were read for it.
    pub read_bytes: u64,
}

/// Exports every store that is closed and flushed to its end. `progress` hears of the bytes of their runs.
///
/// # Errors
/// A damaged run, or the disk.
pub fn export(
    blobs: &Blobs,
    manifest: &Manifest,
    level: i32,
    progress: Progress<'_>,
) -> Result<Exported> {
    let closed: Vec<&StoreEntry> = manifest
        .intake
        .stores
        .iter()
        .filter(|store| store.is_closed())
        .collect();
    let mut groups: BTreeMap<(StoreId, Partition, u16, u16), Vec<&RunEntry>> = BTreeMap::new();
    for store in &closed {
        for run in &store.runs {
            let meta = &run.meta;
            groups
                .entry((store.id, meta.partition, meta.shard, meta.shards))
                .or_default()
                .push(run);
        }
    }
    let groups: Vec<_> = groups.into_iter().collect();
    let read_bytes = groups.iter().map(|(_, runs)| bytes(runs)).sum();
    let done = Bytes::of(read_bytes, progress);
    let runs: Vec<Option<RunEntry>> = groups
        .par_iter()
        .map(|((store, partition, shard, shards), runs)| {
            let spec = RunSpec {
                origin: origin(manifest, *store),
                partition: *partition,
                shard: *shard,
                shards: *shards,
                level,
            };
            merge_or_link(blobs, runs, spec, Horizon::ALL, &done)
        })
        .collect::<Result<_>>()?;
    Ok(Exported {
        stores: closed.iter().map(|store| store.id).collect(),
        runs: runs.into_iter().flatten().collect(),
        read_bytes,
    })
}

/// The origin of a store's source runs. A day whose store was exported before has had another store since: the ring turned
/// back. The origin says which one, because equal counts would have equal names, and be taken for merged.
fn origin(manifest: &Manifest, store: StoreId) -> Origin {
    let is_export = |origin: &Origin| origin.is_export_of(store);
    let merged = manifest.archive.generations.iter();
    let mut merged = merged.flat_map(|kept| &kept.merged);
    let is_again = manifest
        .archive
        .runs
        .iter()
        .any(|run| is_export(&run.origin))
        || merged.any(|name| names::origin_of(name).as_ref().is_some_and(is_export));
    let entry = manifest.intake.stores.iter();
    let mut entry = entry.filter(|entry| entry.id == store && is_again);
    let from = entry.next().map(|entry| entry.opened.sequence);
    Origin::Export { store, from }
}

/// Bytes of all these runs.
pub fn bytes(runs: &[&RunEntry]) -> u64 {
    runs.iter().map(|run| run.bytes).sum()
}

/// One run of this place gets a second name; several, runs of other shards, and those with finer forms of
/// before the `horizon` are merged. Their bytes are added to what is `done`.
pub fn merge_or_link(
    blobs: &Blobs,
    runs: &[&RunEntry],
    spec: RunSpec,
    horizon: Horizon,
    done: &Bytes<'_>,
) -> Result<Option<RunEntry>> {
    if let [run] = runs
        && (run.meta.shard, run.meta.shards) == (spec.shard, spec.shards)
        && run.meta.partition == spec.partition
        && !loses(run, horizon)
    {
        done.add(run.bytes);
        return link(blobs, run, &spec).map(Some);
    }
    let inputs = Run::open_all(blobs, runs.iter().copied())?;
    let told = Cell::new(0);
    let read = |bytes: u64| {
        told.set(told.get() + bytes);
        done.add(bytes);
    };
    let merged = merge_told(&inputs, RunWriter::create(blobs, spec)?, horizon, &read)?;
    // What is not a block: heads and indexes.
    done.add(bytes(runs).saturating_sub(told.get()));
    Ok(merged)
}

fn link(blobs: &Blobs, run: &RunEntry, spec: &RunSpec) -> Result<RunEntry> {
    let linked = run.renamed(spec.origin.clone());
    let name = &linked.name;
    // A taken name is the same content: the name is its hash.
    blobs.copy(&run.name, name)?;
    Ok(linked)
}
