//! Remembered ids at a start: of their runs, or of the log, which holds every id that is known.

use tallyring_archive::{Blobs, IdsEntry};
use tallyring_records::Offset;

use super::ids::Ids;
use crate::error::Result;
use crate::oplog::{Segment, segments};

/// Ids of runs, and from which record on the log has the others.
pub(crate) struct OpenIds {
    pub ids: Ids,
    /// What is known from here on: without runs, ids are read from the log again.
    pub entry: IdsEntry,
}

impl OpenIds {
    /// Those that a manifest names. Where a run is damaged or gone, none of them: the log is kept for longer than ids are.
    ///
    /// # Errors
    /// When they cannot be read now.
    pub fn new(blobs: &Blobs, entry: &IdsEntry, known_from_ms: i64) -> Result<Self> {
        match Ids::open(blobs, &entry.runs, known_from_ms) {
            Ok(ids) => Ok(Self {
                ids,
                entry: entry.clone(),
            }),
            Err(error) if error.is_damage() => {
                let segments = segments(blobs.disk())?;
                let oldest = segments.first().map(Segment::first_sequence);
                if oldest != Some(0) {
                    // A log that begins later may lack ids that are still known, and they would be forgotten.
                    return Err(error.into());
                }
                tracing::error!(%error, "a run of ids is damaged or gone: they are read from the log again");
                let from = Offset {
                    sequence: 0,
                    ..entry.flushed
                };
                Ok(Self {
                    ids: Ids::open(blobs, &[], known_from_ms)?,
                    entry: IdsEntry {
                        runs: Vec::new(),
                        flushed: from,
                        ..entry.clone()
                    },
                })
            }
            Err(error) => Err(error.into()),
        }
    }
}
