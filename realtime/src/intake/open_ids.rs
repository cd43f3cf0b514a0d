//! Remembered ids at a start: from their runs, or from the log, which holds every remembered id.

use tallyring_archive::{Blobs, IdsEntry, RunEntry};
use tallyring_records::Offset;

use super::Intake;
use super::ids::{IdRun, Ids};
use crate::error::Result;
use crate::oplog::{Segment, segments};

/// Ids of runs, and the offset from which the log has the others.
pub(crate) struct OpenIds {
    pub ids: Ids,
    /// The ids as a manifest would name them: without runs, all ids are read from the log again.
    pub entry: IdsEntry,
}

impl OpenIds {
    /// Opens the id runs that a manifest names. If one of the window is damaged or missing, and the log has all
    /// records, no run is used and all ids are read from the log. An older one decides of no new id, and is left out of
    /// answers until it is healed. Fails when the runs cannot be read now, or when one of the window is damaged while
    /// the log does not reach back to its beginning.
    pub(crate) fn new(blobs: &Blobs, entry: &IdsEntry, known_from_ms: i64) -> Result<Self> {
        let damage = match Ids::open(blobs, entry, known_from_ms) {
            Err(error) if error.is_damage() => error,
            opened => {
                let ids = opened?;
                for file in ids.lost() {
                    tracing::error!(
                        file,
                        "a run of old ids is damaged or missing: answers about ids leave it out; heal it with \
                         `tallyring verify --repair`, or restore a backup"
                    );
                }
                let entry = entry.clone();
                return Ok(Self { ids, entry });
            }
        };
        let segments = segments(blobs.disk())?;
        if segments.first().map(Segment::first_sequence) != Some(0) {
            // A log that begins later may lack ids that are still remembered, and these would be forgotten.
            return Err(damage.into());
        }
        tracing::error!(
            %damage,
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

impl Intake {
    /// Opens a run of ids anew whose file was healed; does nothing for another file. Fails when the run cannot be read.
    pub(crate) fn reopen_ids(&self, file: &RunEntry) -> Result<()> {
        let (entry, known_from_ms) = {
            let writer = self.writer();
            (writer.ids.entry(&file.name), self.known_from_ms(&writer))
        };
        if let Some(entry) = entry {
            let run = IdRun::open(&self.world.blobs(), entry, known_from_ms)?;
            self.writer().ids.replace(run);
        }
        Ok(())
    }

    /// Names of runs of ids that could not be opened.
    pub(crate) fn lost_ids(&self) -> Vec<String> {
        let writer = self.writer();
        writer.ids.lost().map(str::to_owned).collect()
    }
}
