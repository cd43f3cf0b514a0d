//! One state of everything that is counted.
//!
//! A snapshot is taken in constant time, whatever is counted: it shares everything with the store. A change copies first
//! what a held snapshot would share, which is little: counts themselves go to another layer
//! (`realtime/src/delta/layers.rs`). Invariant: a snapshot never changes.

use std::collections::BTreeMap;
use std::sync::Arc;

use tallyring_archive::{Manifest, Run, SchemaEntry};
use tallyring_records::Offset;

use super::lateness::Watermarks;
use crate::error::{Error, Result};
use crate::heavy::Heavy;
use crate::ring::Ring;

/// One state of everything that is counted. A clone shares it.
#[derive(Clone)]
pub(crate) struct Snapshot {
    pub ring: Ring,
    /// All declarations, the one in force last.
    pub schemas: Arc<Vec<SchemaEntry>>,
    pub archive: Arc<ArchiveFiles>,
    pub manifest: Arc<Manifest>,
    /// Everything before this offset is applied.
    applied: Offset,
    /// Until when events are expected.
    pub watermarks: Watermarks,
}

/// What queries read of the archive: the active generation and the source runs it lacks.
pub(crate) struct ArchiveFiles {
    /// Number of the active generation, 0 before the first.
    pub generation: u64,
    /// Its files and the pending source runs.
    pub runs: Vec<Arc<Run>>,
    /// Unix seconds from which on the pending source runs count something; none where none is pending. Kept here because
    /// every answer asks for it.
    pub pending_from: Option<i64>,
    /// Files of every kept generation, as it was.
    pub kept: BTreeMap<u64, Vec<Arc<Run>>>,
    /// Since when each kept generation has minutes, Unix seconds; those not listed have all.
    pub minutes_from: BTreeMap<u64, i64>,
    /// Since when each kept generation has hours, Unix seconds: earlier ones are folded into days. Those not listed have
    /// all.
    pub hours_from: BTreeMap<u64, i64>,
}

impl Snapshot {
    /// A snapshot in which nothing of the log is applied yet.
    pub fn new(
        ring: Ring,
        schemas: Vec<SchemaEntry>,
        archive: ArchiveFiles,
        manifest: &Manifest,
    ) -> Self {
        Self {
            ring,
            schemas: Arc::new(schemas),
            archive: Arc::new(archive),
            watermarks: Watermarks::restore(&manifest.intake.newest_events),
            manifest: Arc::new(manifest.clone()),
            applied: Offset::default(),
        }
    }

    /// Everything before this offset is applied.
    pub fn applied(&self) -> Offset {
        self.applied
    }

    /// Everything before this offset is applied now. It never falls.
    pub fn apply_until(&mut self, applied: Offset) {
        let before = self.applied;
        assert!(
            before <= applied,
            "BUG: {before} was applied before {applied}"
        );
        self.applied = applied;
    }

    /// The files of a kept generation.
    pub fn kept(&self, number: u64) -> Result<&[Arc<Run>]> {
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

/// The newest snapshot, and the heavy keys of recent hours.
pub(super) struct Newest {
    snapshot: Arc<Snapshot>,
    /// Heavy keys of recent hours.
    pub heavy: Heavy,
    /// Whether `heavy` knows of all that is counted.
    pub knows_heavy: bool,
}

impl Newest {
    /// Begins with this snapshot; which of its keys are heavy is not known.
    pub fn new(snapshot: Snapshot, heavy: Heavy) -> Self {
        Self {
            snapshot: Arc::new(snapshot),
            heavy,
            knows_heavy: false,
        }
    }

    /// The newest snapshot.
    pub fn snapshot(&self) -> Arc<Snapshot> {
        Arc::clone(&self.snapshot)
    }

    /// The newest snapshot, to change; snapshots that are held stay as they are.
    pub fn snapshot_mut(&mut self) -> &mut Snapshot {
        Arc::make_mut(&mut self.snapshot)
    }
}
