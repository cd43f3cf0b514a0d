//! The whole store against a naive map, under random increments, clocks, crashes, rebuilds, recompressions
//! and rollbacks.
//!
//! A [`Driver`] owns a simulated disk, a clock and one store, draws operations from a seed, and does
//! the same to `naive::Naive`. Invariants it holds the store to: what was acknowledged is counted
//! once and in its bucket, what was refused is not, a batch is whole or absent, the values of every
//! subtotal sum to the total, a kept generation reads as it was published, and after a restart no
//! file is left that the manifest does not name. A batch whose fate a fault made uncertain carries a
//! *mark*, a key of its own, by which the next start tells whether it counts.

mod alone;
mod book;
mod caps;
mod chance;
mod check;
mod clicks;
mod commit;
mod datasets;
mod declare;
mod deletes;
mod faults;
mod fixes;
mod generations;
mod history;
mod log_copy;
mod naive;
mod nodes;
mod oracle;
mod reconcile;
mod rot;
mod run;
#[cfg(feature = "shuttle")]
mod schedules;
mod taps;
mod torn;

pub use caps::Caps;
pub use chance::{Chance, ManualClock, fixed_bytes, world};
pub use clicks::{increment, schema, schema_without_lists};
pub use oracle::{Deed, Deeds, Oracle, deeds};
pub use run::{Stats, run_nodes, run_seeds};
#[cfg(feature = "shuttle")]
pub use schedules::{run_reservations, run_schedules};
pub use torn::run_readers;

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use tallyring_archive::{Build, RunEntry};
use tallyring_realtime::{Accepted, Options, Store};
use tallyring_records::{Increment, StoreId};

use crate::sim_disk::SimDisk;
use datasets::Wanted;
use fixes::Fixed;
use naive::{Counted, Naive, Piece};

/// One store, its world and its model.
pub struct Driver {
    chance: Chance,
    /// Draws which answers are compared once more. They are no draws of `chance`, so the life goes on as without them.
    again: Chance,
    disk: SimDisk,
    /// Where the second copy of the log is, in some lives.
    copy_disk: Option<SimDisk>,
    clock: Arc<ManualClock>,
    now_ms: i64,
    /// The latest time that the clock ever had.
    latest_ms: i64,
    options: Options,
    schema: usize,
    /// None only while it is opened.
    store: Option<Store>,
    naive: Naive,
    /// The call of the disk at which a fault was set.
    fault_at: Option<u64>,
    /// A fault struck since the store was opened: errors are allowed until the next start.
    troubled: bool,
    /// The disk is nearly full.
    full: bool,
    /// Batches that may be counted or not; the next start tells.
    pending: Vec<Pending>,
    /// Batches that a loss of power may take, with the sequence behind each.
    unsynced: Vec<(u64, Pending)>,
    /// Keyed batches that were answered.
    keyed: BTreeMap<String, (Vec<Increment>, Accepted)>,
    /// A build that was not published.
    held: Option<Made>,
    /// A build whose publication failed: the next start tells.
    attempted: Option<Made>,
    /// A fix whose publication failed: the next start tells.
    attempted_fix: Option<Fixed>,
    trace: Vec<String>,
    stats: Stats,
    /// Answers compared with the model.
    compared: Cell<u64>,
    /// Files that were proved, with the bytes and the entry that they had then.
    proved: BTreeMap<String, (RunEntry, Arc<Vec<u8>>)>,
}

/// A generation that was built, and what it counts.
struct Made {
    build: Build,
    datasets: Wanted,
    /// The exports that it has merged, except those that files have replaced.
    merged: BTreeSet<Piece>,
}

/// A batch and its mark.
#[derive(Debug, Clone)]
struct Pending {
    mark: String,
    increments: Vec<Increment>,
    counted: Counted,
    arrived_ms: i64,
    /// How far the clock has moved since, to and fro.
    moved_ms: i64,
    key: Option<String>,
    /// The ring when it was sent: which store takes what.
    ring: BTreeMap<StoreId, bool>,
}

impl Driver {
    fn store(&self) -> &Store {
        self.store.as_ref().expect("BUG: the store is open")
    }

    fn note(&mut self, step: String) {
        self.trace.push(step);
    }

    /// True when a fault struck since the store was opened.
    fn is_troubled(&mut self) -> bool {
        if self.fault_at.is_some_and(|call| self.disk.calls() >= call) {
            self.troubled = true;
            self.fault_at = None;
        }
        self.troubled
    }

    /// An operation failed: that is a finding unless a fault struck, or the disk or the log is full.
    fn allow(&mut self, what: &str, error: &str) -> Result<(), String> {
        if self.is_log_full(error) {
            self.note(format!("  {what} found no room in the log"));
            self.stats.log_full += 1;
            return Ok(());
        }
        if self.is_troubled() || self.full {
            self.note(format!("  {what} failed: {error}"));
            self.stats.failures += 1;
            return Ok(());
        }
        Err(format!("{what} failed without a fault: {error}"))
    }

    /// True where a batch may find no room on the disk or in the log.
    fn may_be_full(&self) -> bool {
        self.full || self.options.oplog_bytes_max < u64::MAX
    }

    /// True for the error of a log that reached the limit of its size.
    fn is_log_full(&self, error: &str) -> bool {
        self.options.oplog_bytes_max < u64::MAX && error.contains("oplog.max_bytes")
    }

    /// Moves the clock: as time passes where that is not far, otherwise it is set.
    fn set_clock(&mut self, now_ms: i64) {
        let moved_ms = now_ms - self.now_ms;
        self.now_ms = now_ms;
        self.latest_ms = self.latest_ms.max(now_ms);
        match (0..3_600_000).contains(&moved_ms) {
            true => self.clock.pass(moved_ms),
            false => self.clock.set(now_ms),
        }
        self.naive.age(now_ms, moved_ms);
        for pending in &mut self.pending {
            pending.moved_ms += moved_ms.abs();
        }
    }
}
