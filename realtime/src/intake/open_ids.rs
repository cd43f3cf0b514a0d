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
    /// Opens the id runs that a manifest names. If one of them is damaged or missing, no run is used and all ids are
    /// read from the log, which is kept for longer than ids are. Fails when the runs cannot be read now, or are damaged
    /// while the log does not reach back to its beginning.
    pub(crate) fn new(blobs: &Blobs, entry: &IdsEntry, known_from_ms: i64) -> Result<Self> {
        match Ids::open(blobs, entry, known_from_ms) {
            Ok(ids) => Ok(Self {
                ids,
                entry: entry.clone(),
            }),
            Err(error) if error.is_damage() => {
                let segments = segments(blobs.disk())?;
                let oldest = segments.first().map(Segment::first_sequence);
                if oldest != Some(0) {
                    // A log that begins later may lack ids that are still remembered, and these would be forgotten.
                    return Err(error.into());
                }
                tracing::error!(%error, "a run of ids is damaged or missing: all ids are read from the log again");
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
            Err(error) => Err(error.into()),
        }
    }
}
