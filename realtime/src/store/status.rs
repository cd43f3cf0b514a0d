//! Facts that an operator wants to know of a store.

use std::collections::BTreeSet;

use serde::Serialize;
use tallyring_archive::{Manifest, Origin, names};
use tallyring_records::{Day, Offset, StoreId};

use super::{Shown, Store};
use crate::delta::Delta;
use crate::intake::{Part, RulesStatus};
use crate::oplog::{LogCopyStatus, LogForecast};

/// State of a store.
#[derive(Debug, Clone, Serialize)]
pub struct Status {
    /// The ring's label.
    pub today: Day,
    /// The committed manifest.
    pub manifest: u64,
    /// The manifest that a store without a log shows.
    #[serde(skip)]
    pub shown: Option<Shown>,
    /// The generation that is read, 0 before the first.
    pub generation: u64,
    /// Everything before this offset is counted.
    pub applied: Offset,
    /// Everything before this offset is durable.
    pub durable: Offset,
    /// Records a restart would replay.
    pub unflushed: u64,
    /// Bytes of all log segments.
    pub oplog_bytes: u64,
    /// How the log grows, and when it has no more room.
    pub log_forecast: LogForecast,
    /// The second copy of the log, if there is one.
    pub log_copy: Option<LogCopyStatus>,
    /// Ids in memory.
    pub ids_in_memory: usize,
    /// Bytes of them.
    pub ids_bytes: usize,
    /// The rules, and what came of them.
    pub rules: RulesStatus,
    /// Delta stores, days first.
    pub stores: Vec<StoreStatus>,
    /// Minutes of base buckets that began earlier have expired (Unix seconds); none has, without.
    pub minutes_from: Option<i64>,
    /// Base buckets that began earlier are folded into days (Unix seconds); none is, without.
    pub hours_from: Option<i64>,
    /// Source runs that the generation lacks.
    pub pending_runs: usize,
    /// Fixes of days that the generation has not merged, such as `2012-03-16 v1`: reads apply them.
    pub waiting_fixes: BTreeSet<String>,
    /// Bytes of all files the manifest names.
    pub file_bytes: u64,
    /// Bytes of archive files that are their own source: nothing else can make them again.
    pub single_copy_bytes: u64,
    /// Files that count and were found damaged.
    pub damaged_files: Vec<String>,
    /// Files in `aside/`: what starts found that no manifest names and could not place.
    pub aside_files: Vec<String>,
    /// Bytes free on the disk.
    pub disk_free_bytes: Option<u64>,
    /// True when the clock is more than a day from where it was plausible last, and not believed yet: nothing is
    /// forgotten and the ring does not turn.
    pub clock_jumped: bool,
    /// When it was plausible last (Unix seconds), where it is not.
    pub clock_plausible_at: Option<i64>,
    /// Days that the ring's today is later than the clock's: above one it had followed a clock that was ahead.
    pub ring_days_ahead: u32,
}

/// State of one delta store.
#[derive(Debug, Clone, Serialize)]
pub struct StoreStatus {
    /// Such as `day-2012-03-16`.
    pub id: StoreId,
    /// Where it stands in the ring.
    #[serde(rename = "position")]
    pub label: RingLabel,
    /// True when it takes nothing more.
    pub cut: bool,
    /// Counters in memory.
    pub counters: u64,
    /// Bytes of them.
    pub memory_bytes: u64,
    /// Flushed runs.
    pub runs: usize,
    /// Bytes of them.
    pub run_bytes: u64,
}

/// Where a delta store stands in the ring.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum RingLabel {
    /// The day before today.
    Yesterday,
    /// The day that the ring has turned to.
    Today,
    /// The day after today.
    Tomorrow,
    /// Increments for days that are cut already, or outside the ring.
    Late,
    /// A day before yesterday, which waits for its export.
    Waiting,
    /// A day after tomorrow, which the ring had reached by a clock that was ahead.
    Ahead,
}

impl Store {
    /// The state now.
    pub fn status(&self) -> Status {
        let manifest = self.manifest();
        // Asked while no lock is held: a disk may hang.
        let disk_free_bytes = self.world().disk.free_bytes().ok();
        let intake = self.intake().status(disk_free_bytes);
        let aside_files = self.world().blobs().list(names::ASIDE).unwrap_or_default();
        let damaged_files = self.ledger.damaged_files();
        let view = self.live().snapshot();
        Status {
            today: view.ring.today(),
            manifest: view.manifest.number,
            shown: self.shown_by(&view),
            generation: view.archive.generation,
            applied: view.applied(),
            durable: match self.part() {
                // It counts nothing else.
                Part::Follows { .. } | Part::Reads => view.applied(),
                Part::Writes => Offset {
                    sequence: intake.durable,
                    ..view.applied()
                },
            },
            unflushed: intake.unflushed,
            oplog_bytes: intake.oplog_bytes,
            log_forecast: intake.forecast,
            log_copy: intake.log_copy,
            ids_in_memory: intake.ids_in_memory,
            ids_bytes: intake.ids_bytes,
            rules: self.intake().rules_status(),
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
            waiting_fixes: waiting_fixes(&manifest),
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
    let label = match store.id.day() {
        None => RingLabel::Late,
        Some(day) if day == today => RingLabel::Today,
        Some(day) if day == today.next() => RingLabel::Tomorrow,
        Some(day) if day == today.previous() => RingLabel::Yesterday,
        Some(day) if day > today => RingLabel::Ahead,
        Some(_) => RingLabel::Waiting,
    };
    StoreStatus {
        id: store.id,
        label,
        cut: store.cut.is_some(),
        counters: store.deltas().map(Delta::counters).sum(),
        memory_bytes: store.deltas().map(|delta| delta.bytes() as u64).sum(),
        runs: store.runs.len(),
        run_bytes: store.runs.iter().map(|run| run.entry.bytes).sum(),
    }
}

fn waiting_fixes(manifest: &Manifest) -> BTreeSet<String> {
    let pending = manifest.archive.pending();
    let fixes = pending.filter_map(|run| match &run.origin {
        Origin::Fix { day, version, .. } => Some(format!("{day} v{version}")),
        _ => None,
    });
    fixes.collect()
}

/// Source runs and files of the generation with the same content are one file with two names, or one name.
fn single_copy_bytes(manifest: &Manifest) -> u64 {
    let sources: BTreeSet<&str> = manifest
        .archive
        .all_sources()
        .map(|run| &*run.hash)
        .collect();
    let active = manifest.archive.active_generation().into_iter();
    let files = active.flat_map(|active| &active.files);
    let single = files.filter(|file| sources.contains(&*file.hash));
    single.map(|file| file.bytes).sum()
}

/// A file with two names counts once.
fn file_bytes(manifest: &Manifest) -> u64 {
    let files: std::collections::BTreeMap<&str, u64> = manifest
        .files()
        .map(|entry| (entry.hash.as_str(), entry.bytes))
        .collect();
    files.values().sum()
}
