//! Remembered ids at a start: from their runs, or from the log, which holds every remembered id.

use tallyring_archive::{Blobs, IdsEntry};
use tallyring_records::Offset;

use super::ids::Ids;
use crate::error::Result;
use crate::oplog::{Segment, segments};

/// Ids of runs, and the offset from which the log has the others.
pub(crate) struct OpenIds {
    pub ids: Ids,
    /// The ids as a manifest would name them: without runs, all ids are read from the log again.
    pub entry: IdsEntry,
}

impl OpenIds {
    /// Opens the id runs that a manifest names. If one of them is damaged or missing, and the log has all records, no
    /// run is used and all ids are read from the log. Fails when the runs cannot be read now, or when one of the window
    /// is damaged while the log does not reach back to its beginning.
    pub(crate) fn new(blobs: &Blobs, entry: &IdsEntry, known_from_ms: i64) -> Result<Self> {
        let opened = Ids::open(blobs, entry, known_from_ms);
        let damage = match &opened {
            Ok(ids) => ids.lost().map(str::to_owned),
            Err(error) => error.is_damage().then(|| error.to_string()),
        };
        let Some(damage) = damage else {
            return Ok(Self {
                ids: opened?,
                entry: entry.clone(),
            });
        };
        let segments = segments(blobs.disk())?;
        if segments.first().map(Segment::first_sequence) != Some(0) {
            // A log that begins later may lack ids that are still remembered, and these would be forgotten.
            let ids = opened?;
            tracing::error!(
                damage,
                "a run of old ids is damaged or missing: no id can be looked up"
            );
            return Ok(Self {
                ids,
                entry: entry.clone(),
            });
        }
        tracing::error!(
            damage,
            "a run of ids is damaged or missing: all ids are read from the log again"
        );
        let from = Offset {
            sequence: 0,
            ..entry.flushed
        };
        let entry = IdsEntry {
            runs: Vec::new(),
            flushed: from,
            ..entry.clone()
        };
        Ok(Self {
            ids: Ids::open(blobs, &entry, known_from_ms)?,
            entry,
        })
    }
}
