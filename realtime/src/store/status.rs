//! The state of a store, for operators.

use std::collections::BTreeSet;

use serde::Serialize;
use tallyring_archive::{Manifest, names};
use tallyring_records::{Day, Offset, StoreId};

use super::Store;
use crate::delta::Delta;
use crate::oplog::LogCopyStatus;

/// State of a store.
#[derive(Debug, Clone, Serialize)]
pub struct Status {
    /// The ring's label today.
    pub today: Day,
    /// Number of the committed manifest.
    pub manifest: u64,
    /// Number of the active generation, 0 before the first.
    pub generation: u64,
    /// Everything before this offset is counted.
    pub applied: Offset,
    /// Everything before this offset is durable.
    pub durable: Offset,
    /// Records that a restart would replay.
    pub unflushed: u64,
    /// Bytes of all log segments.
    pub oplog_bytes: u64,
    /// The second copy of the log, if there is one.
    pub log_copy: Option<LogCopyStatus>,
    /// Ids in memory.
    pub ids_in_memory: usize,
    /// Memory of these ids, bytes.
    pub ids_bytes: usize,
    /// Delta stores, days first.
    pub stores: Vec<StoreStatus>,
    /// Minutes of base buckets that began before this instant (Unix seconds) have expired; none where no minute has.
    pub minutes_from: Option<i64>,
    /// Base buckets that began before this instant (Unix seconds) are folded into days; none where no bucket is.
    pub hours_from: Option<i64>,
    /// Source runs that the generation lacks.
    pub pending_runs: usize,
    /// Bytes of all files that the manifest names.
    pub file_bytes: u64,
    /// Bytes of files of the archive that are their own source: no other file can replace them.
    pub single_copy_bytes: u64,
    /// Names of files that were found damaged.
    pub damaged_files: Vec<String>,
    /// Files in `aside/`: files that a start found, that no manifest names and that could not be made again.
    pub aside_files: Vec<String>,
    /// Free bytes of the disk.
    pub disk_free_bytes: Option<u64>,
    /// True when the clock is more than a day from its last plausible time and not believed yet: nothing is forgotten
    /// and the ring does not turn.
    pub clock_jumped: bool,
    /// Last plausible time of the clock (Unix seconds) while the clock is doubted.
    pub clock_plausible_at: Option<i64>,
    /// Days by which the ring's today is ahead of the clock's day. Above one, the ring had followed a clock that was
    /// ahead.
    pub ring_days_ahead: u32,
}

/// State of one delta store.
#[derive(Debug, Clone, Serialize)]
pub struct StoreStatus {
    /// Name of the delta store, such as `day-2012-03-16`.
    pub id: StoreId,
    /// `yesterday`, `today`, `tomorrow`, `late`, `waiting` for its export, or `ahead`: a later day, which the ring had
    /// reached under a clock that was ahead.
    pub position: &'static str,
    /// True when the delta store takes no more increments.
    pub cut: bool,
    /// Counters in memory.
    pub counters: u64,
    /// Memory of these counters, bytes.
    pub memory_bytes: u64,
    /// Flushed runs.
    pub runs: usize,
    /// Bytes of these runs.
    pub run_bytes: u64,
}

impl Store {
    /// The current state.
    pub fn status(&self) -> Status {
        let manifest = self.manifest();
        let intake = self.intake().status();
        // Asked while no lock is held, because a disk may hang.
        let disk_free_bytes = self.world().disk.free_bytes().ok();
        let aside_files = self.world().blobs().list(names::ASIDE).unwrap_or_default();
        let damaged_files = self.ledger.damaged_files();
        let view = self.live().snapshot();
        Status {
            today: view.ring.today(),
            manifest: view.manifest.number,
            generation: view.archive.generation,
            applied: view.applied(),
            durable: Offset {
                sequence: intake.durable,
                ..view.applied()
            },
            unflushed: intake.unflushed,
            oplog_bytes: intake.oplog_bytes,
            log_copy: intake.log_copy,
            ids_in_memory: intake.ids_in_memory,
            ids_bytes: intake.ids_bytes,
            stores: view
                .ring
                .stores()
                .map(|store| store_status(store, view.ring.today()))
                .collect(),
            minutes_from: (view.archive.minutes_from)
                .get(&view.archive.generation)
                .copied(),
            hours_from: (view.archive.hours_from)
                .get(&view.archive.generation)
                .copied(),
            pending_runs: manifest.archive.pending().count(),
            file_bytes: file_bytes(&manifest),
            single_copy_bytes: single_copy_bytes(&manifest),
            damaged_files,
            aside_files,
            disk_free_bytes,
            clock_jumped: intake.is_clock_doubted,
            clock_plausible_at: (intake.plausible_ms)
                .filter(|_| intake.is_clock_doubted)
                .map(|last_ms| last_ms.div_euclid(1_000)),
            ring_days_ahead: self.intake().days_ahead(view.ring.today()),
        }
    }
}

fn store_status(store: &crate::delta::DeltaStore, today: Day) -> StoreStatus {
    let position = match store.id {
        StoreId::Late(_) => "late",
        StoreId::Day(day) if day == today => "today",
        StoreId::Day(day) if day == today.next() => "tomorrow",
        StoreId::Day(day) if day == today.previous() => "yesterday",
        StoreId::Day(day) if day > today => "ahead",
        StoreId::Day(_) => "waiting",
    };
    StoreStatus {
        id: store.id,
        position,
        cut: store.cut.is_some(),
        counters: store.deltas().map(Delta::counters).sum(),
        memory_bytes: store.deltas().map(|delta| delta.bytes() as u64).sum(),
        runs: store.runs.len(),
        run_bytes: store.runs.iter().map(|run| run.entry.bytes).sum(),
    }
}

/// Bytes of active files that have a source run of the same content: one file with two names, or one name.
fn single_copy_bytes(manifest: &Manifest) -> u64 {
    let sources: BTreeSet<&str> = manifest
        .archive
        .all_sources()
        .map(|run| &*run.hash)
        .collect();
    let active = manifest
        .archive
        .generation(manifest.archive.active)
        .into_iter();
    let files = active.flat_map(|active| &active.files);
    let single = files.filter(|file| sources.contains(&*file.hash));
    single.map(|file| file.bytes).sum()
}

/// Bytes of all files; a file with two names counts once.
fn file_bytes(manifest: &Manifest) -> u64 {
    let files: std::collections::BTreeMap<&str, u64> = manifest
        .files()
        .map(|entry| (entry.hash.as_str(), entry.bytes))
        .collect();
    files.values().sum()
}
