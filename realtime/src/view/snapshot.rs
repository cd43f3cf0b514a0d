//! Snapshots: one state of everything that is counted.
//!
//! A snapshot is taken in constant time, whatever is counted: it shares everything with the newest state. A change
//! first copies the parts that a held snapshot shares, which are small. Counts themselves are not copied, because they
//! go to another layer (`realtime/src/delta/layers.rs`). Invariant: a snapshot never changes.

use std::collections::BTreeMap;
use std::mem;
use std::ops::Range;
use std::sync::Arc;

use tallyring_archive::{Erasures, Manifest, Run, SchemaEntry};
use tallyring_records::{Offset, Schema};

use super::Live;
use super::finals::FinalDays;
use super::lateness::Watermarks;
use crate::error::{Error, Result};
use crate::heavy::Heavy;
use crate::ring::Ring;

/// One state of everything that is counted. A clone shares the counts.
#[derive(Clone)]
pub(crate) struct Snapshot {
    pub ring: Ring,
    /// The schema in force at the offset of the snapshot.
    pub schema: Arc<Schema>,
    /// All schemas, the one in force last.
    pub schemas: Arc<Vec<SchemaEntry>>,
    pub archive: Arc<ArchiveFiles>,
    pub manifest: Arc<Manifest>,
    /// Everything before this offset is counted.
    applied: Offset,
    /// Newest event of each type, which decides until when events are expected.
    pub watermarks: Watermarks,
    /// Erased users, whose actions of before runs may still hold.
    pub erasures: Arc<Erasures>,
    /// Final days.
    pub finals: FinalDays,
    /// The time until when everything that came is counted, Unix seconds: that of the files of a store without a log.
    /// None where the log is counted to its end, so until now.
    pub counted_until: Option<i64>,
}

/// Files of the archive that queries read: the active generation, and the source runs that it lacks.
pub(crate) struct ArchiveFiles {
    /// Number of the active generation, 0 before the first.
    pub generation: u64,
    /// Files whose counts are added: those of the active generation, and pending source runs.
    pub plus: Vec<Arc<Run>>,
    /// Pending source runs whose counts and actions are taken away. They have no users.
    pub minus: Vec<Arc<Run>>,
    /// Files of every kept generation; their counts are added.
    pub kept: BTreeMap<u64, Vec<Arc<Run>>>,
    /// First instant (Unix seconds) for which each kept generation has minutes. Unlisted generations have all minutes.
    pub minutes_from: BTreeMap<u64, i64>,
    /// First instant (Unix seconds) for which each kept generation has hours; earlier hours are folded into days.
    /// Unlisted generations have all hours.
    pub hours_from: BTreeMap<u64, i64>,
}

/// The schemas that a manifest names: all of them, but for those that differ in their lists alone from the next one and
/// judged no record that the log has. Lists change often, and final versions are made again by the lists of then.
pub(crate) fn to_name(schemas: &[SchemaEntry], log_begins: u64) -> Vec<SchemaEntry> {
    let mut named: Vec<SchemaEntry> = Vec::new();
    for entry in schemas {
        match named.last_mut() {
            Some(last)
                if entry.since.sequence <= log_begins
                    && !last.schema.lists.is_empty()
                    && last.schema.with_lists(&entry.schema.lists) == entry.schema =>
            {
                last.schema = entry.schema.clone();
            }
            _ => named.push(entry.clone()),
        }
    }
    named
}

impl ArchiveFiles {
    /// The files whose counts in a range (Unix seconds) are taken away.
    pub(super) fn minus_in(&self, range: &Range<i64>) -> impl Iterator<Item = &Arc<Run>> {
        let minus = self.minus.iter();
        minus.filter(|run| run.meta().overlaps(range.start, range.end))
    }
}

impl Snapshot {
    /// A snapshot in which no record of the log is counted yet.
    pub(crate) fn new(
        ring: Ring,
        (schema, schemas): (Arc<Schema>, Vec<SchemaEntry>),
        archive: ArchiveFiles,
        manifest: &Manifest,
    ) -> Self {
        Self {
            ring,
            schema,
            schemas: Arc::new(schemas),
            archive: Arc::new(archive),
            watermarks: Watermarks::restore(&manifest.intake.newest_events),
            erasures: Arc::new(manifest.intake.erasures.clone()),
            finals: FinalDays::of(manifest),
            manifest: Arc::new(manifest.clone()),
            applied: Offset::default(),
            counted_until: None,
        }
    }

    /// The offset before which everything is counted.
    pub(crate) fn applied(&self) -> Offset {
        self.applied
    }

    /// Marks everything before this offset as counted. The offset never falls.
    pub(crate) fn apply_until(&mut self, applied: Offset) {
        let before = self.applied;
        assert!(
            before <= applied,
            "BUG: {before} was applied before {applied}"
        );
        self.applied = applied;
    }

    /// Takes another manifest.
    pub(super) fn name(&mut self, manifest: &Manifest) {
        self.finals = self.finals.after(manifest);
        self.manifest = Arc::new(manifest.clone());
    }

    /// The schema in force at a record of the log; the oldest one that is known where the record is older.
    pub(crate) fn schema_at(&self, sequence: u64) -> &Schema {
        let known = (self.schemas).partition_point(|entry| entry.since.sequence <= sequence);
        let entry = self.schemas.get(known.saturating_sub(1));
        entry.map_or(&self.schema, |entry| &entry.schema)
    }

    /// The files of a kept generation.
    pub(crate) fn kept(&self, number: u64) -> Result<&[Arc<Run>]> {
        let kept = &self.archive.kept;
        match kept.get(&number) {
            Some(files) => Ok(files.as_slice()),
            None => {
                let kept: Vec<String> = kept.keys().map(u64::to_string).collect();
                Err(Error::NoGeneration {
                    number,
                    kept: kept.join(", "),
                })
            }
        }
    }
}

impl Live {
    /// Shows these counts instead of all others.
    pub(crate) fn show(&self, snapshot: Snapshot) {
        let schema = Arc::clone(&snapshot.schema);
        let heavy = Heavy::new(schema.counted_namespaces(), snapshot.ring.today());
        let next = Newest::new(snapshot, heavy);
        // Files that no view reads any more are closed without a lock.
        let _before = mem::replace(&mut *self.newest.write(), next);
        *self.schema.write() = schema;
        self.advanced.notify_waiters();
    }
}

/// The newest snapshot, and the heavy keys of recent hours.
pub(super) struct Newest {
    snapshot: Arc<Snapshot>,
    /// Heavy keys of recent hours.
    pub heavy: Heavy,
    /// True when `heavy` covers everything that is counted.
    pub knows_heavy: bool,
}

impl Newest {
    /// Begins with this snapshot. Its heavy keys are not known yet.
    pub(super) fn new(snapshot: Snapshot, heavy: Heavy) -> Self {
        Self {
            snapshot: Arc::new(snapshot),
            heavy,
            knows_heavy: false,
        }
    }

    /// The newest snapshot.
    pub(super) fn snapshot(&self) -> Arc<Snapshot> {
        Arc::clone(&self.snapshot)
    }

    /// The newest snapshot, to change. Held snapshots stay as they are.
    pub(super) fn snapshot_mut(&mut self) -> &mut Snapshot {
        Arc::make_mut(&mut self.snapshot)
    }
}
