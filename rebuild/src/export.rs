//! Export: the runs of closed delta stores become source runs, one for each month and shard.

use std::cell::Cell;
use std::collections::BTreeMap;

use rayon::prelude::*;
use tallyring_archive::merge::{Horizon, merge_erasing};
use tallyring_archive::{
    Blobs, Erasures, Manifest, Origin, Partition, Result, Run, RunEntry, RunSpec, RunWriter, Sign,
    StoreEntry, names,
};
use tallyring_records::StoreId;

use crate::generation::BuildOptions;
use crate::horizon::of_breakdowns;
use crate::progress::{Bytes, Progress};

/// The result of an export.
pub(crate) struct Exported {
    /// Delta stores whose counts are all in `runs`.
    pub stores: Vec<StoreId>,
    /// New source runs, durable.
    pub runs: Vec<RunEntry>,
    /// Size of the runs that were read, bytes.
    pub read_bytes: u64,
}

/// Exports every delta store that is closed and flushed to its end, without breakdowns by minute that are not kept any
/// more. `progress` gets the bytes of their runs. Fails when a run is damaged.
pub(crate) fn export(
    blobs: &Blobs,
    manifest: &Manifest,
    options: &BuildOptions,
    progress: Progress<'_>,
) -> Result<Exported> {
    let closed: Vec<&StoreEntry> = manifest
        .intake
        .stores
        .iter()
        .filter(|store| store.is_closed())
        .collect();
    let mut groups: BTreeMap<(Origin, Partition, u16, u16), Vec<&RunEntry>> = BTreeMap::new();
    for store in &closed {
        let origin = origin(manifest, store);
        for run in &store.runs {
            let meta = &run.meta;
            groups
                .entry((origin.clone(), meta.partition, meta.shard, meta.shards))
                .or_default()
                .push(run);
        }
    }
    let groups: Vec<_> = groups.into_iter().collect();
    let read_bytes = groups.iter().map(|(_, runs)| bytes(runs)).sum();
    let done = Bytes::of(read_bytes, progress);
    let horizon = Horizon {
        breakdowns_from: of_breakdowns(manifest, options),
        ..Horizon::ALL
    };
    let runs: Vec<Option<RunEntry>> = groups
        .par_iter()
        .map(|((origin, partition, shard, shards), runs)| {
            let spec = RunSpec {
                origin: origin.clone(),
                partition: *partition,
                shard: *shard,
                shards: *shards,
                level: options.level,
            };
            merge_or_link(
                blobs,
                runs,
                spec,
                (horizon, &manifest.intake.erasures),
                &done,
            )
        })
        .collect::<Result<_>>()?;
    Ok(Exported {
        stores: closed.iter().map(|store| store.id).collect(),
        runs: runs.into_iter().flatten().collect(),
        read_bytes,
    })
}

/// The origin of a delta store's source runs. A day may have a second delta store after the export of the first,
/// because the ring turned back. The origin then tells the two apart: equal counts would otherwise have equal names,
/// and be taken for merged. The origin of a late store tells where it opened, so that the users who came after a final
/// version are known apart.
fn origin(manifest: &Manifest, store: &StoreEntry) -> Origin {
    let (id, opened) = (store.id, store.opened.sequence);
    if matches!(id, StoreId::Again(..)) {
        return Origin::export_of(id);
    }
    let is_export = |origin: &Origin| origin.is_export_of(id);
    let merged = manifest.archive.generations.iter();
    let mut merged = merged.flat_map(|kept| &kept.merged);
    let is_again = manifest
        .archive
        .runs
        .iter()
        .any(|run| is_export(&run.origin))
        || merged.any(|name| names::origin_of(name).as_ref().is_some_and(is_export));
    let is_told = is_again || matches!(id, StoreId::Late(_));
    Origin::Export {
        store: id,
        from: is_told.then_some(opened),
    }
}

/// Size of all these runs, bytes.
pub(crate) fn bytes(runs: &[&RunEntry]) -> u64 {
    runs.iter().map(|run| run.bytes).sum()
}

/// Writes the merge of `runs`, without actions of erased users. A single run of the same partition and shard gets a
/// second name instead, unless it has finer detail from before the `horizon`, or may have such actions. The bytes of
/// the runs are added to `done`.
pub(crate) fn merge_or_link(
    blobs: &Blobs,
    runs: &[&RunEntry],
    spec: RunSpec,
    (horizon, erasures): (Horizon, &Erasures),
    done: &Bytes<'_>,
) -> Result<Option<RunEntry>> {
    // Counts that are taken away have no file of their own: their merge alone fails.
    if let [run] = runs
        && run.sign() == Sign::Plus
        && erasures.hidden_in(run).is_empty()
        && (run.meta.shard, run.meta.shards) == (spec.shard, spec.shards)
        && run.meta.partition == spec.partition
        && !horizon.loses(run)
    {
        done.add(run.bytes);
        return link(blobs, run, &spec).map(Some);
    }
    let inputs = Run::open_all(blobs, runs.iter().copied())?;
    let reported = Cell::new(0);
    let read = |bytes: u64| {
        reported.set(reported.get() + bytes);
        done.add(bytes);
    };
    let out = RunWriter::create(blobs, spec)?;
    let merged = merge_erasing(&inputs, runs, erasures, out, horizon, &read)?;
    // Heads and indexes are not blocks, and are added here.
    done.add(bytes(runs).saturating_sub(reported.get()));
    Ok(merged)
}

fn link(blobs: &Blobs, run: &RunEntry, spec: &RunSpec) -> Result<RunEntry> {
    let linked = run.renamed(spec.origin.clone());
    let name = &linked.name;
    // A name is the hash of its content, so a taken name has the same content.
    blobs.copy(&run.name, name)?;
    Ok(linked)
}
