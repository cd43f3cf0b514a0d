//! Counts one delta store again while the store is in service: the log has the records of a lost run.

use std::sync::Arc;

use tallyring_archive::{Manifest, RunEntry, SchemaEntry, StoreEntry};
use tallyring_records::{Record, Schema, decode_all};

use super::Ledger;
use crate::delta::{Delta, DeltaStore};
use crate::error::{Error, Result};
use crate::oplog::{ApplyError, Frame, ReadFrom, scan, segments};
use crate::ring::Ring;

impl Ledger {
    /// Counts the delta store that `file` is a run of again, from the log, and flushes it. Returns false when `file` is
    /// a run of no delta store, or when the log begins after the delta store does. The caller lets nothing remove
    /// segments meanwhile. Takes the memory of that delta store, at most `delta_bytes_max`. Fails when the delta store
    /// does not fit in memory, or the log or the disk fails.
    pub fn recount_store_of(&self, file: &RunEntry) -> Result<bool> {
        let mut root = self.root();
        root.check()?;
        let has_run = |store: &&StoreEntry| store.runs.iter().any(|run| run.name == file.name);
        let Some(entry) = root.manifest.intake.stores.iter().find(has_run).cloned() else {
            return Ok(false);
        };
        let oldest = segments(self.blobs.disk())?;
        let oldest = oldest
            .first()
            .map_or(u64::MAX, |oldest| oldest.first_sequence());
        let opened = entry.opened.sequence;
        let declared = |first: &SchemaEntry| first.since.sequence <= opened;
        if oldest > opened || !root.manifest.intake.schemas.first().is_some_and(declared) {
            return Ok(false);
        }
        let delta = self.count_again(&root.manifest, &entry)?;
        // Equal counts give equal names, so a damaged file must go before a new one is written.
        let damaged = self.damaged().clone();
        for run in &entry.runs {
            root.files.forget(&run.name);
            if damaged.contains(&run.name) {
                self.blobs.clear_way(root.manifest.number, &run.name)?;
                let _ = self.blobs.remove(&run.name);
            }
        }
        self.intake.live().recounted(entry.id, delta, entry.flushed);
        // Memory now has the counts of the runs. After a crash before the flush, the next start finds the lost run
        // again.
        if let Err(error) = self.flush_locked(&mut root) {
            // Every commit demands that the files are open that the manifest goes on to name.
            let root = &mut *root;
            if let Err(error) = root.files.open_readable(&self.blobs, &root.manifest) {
                root.uncertain = Some(error.to_string());
            }
            return Err(error);
        }
        self.damaged()
            .retain(|name| entry.runs.iter().all(|run| run.name != *name));
        Ok(true)
    }

    /// Counts the records that the runs of a delta store hold.
    fn count_again(&self, manifest: &Manifest, entry: &StoreEntry) -> Result<Arc<Delta>> {
        let (from, until) = (entry.opened, entry.flushed);
        let options = self.intake.options();
        let (form, bytes_max) = (options.form(), options.delta_bytes_max);
        let keys = self.intake.live().keys();
        let mut begun = DeltaStore::new(entry.id, from, form);
        begun.cut = entry.cut;
        let mut ring = Ring::restore(manifest.intake.today, form, [begun]);
        let mut apply = |frame: Frame<'_>| -> Result<(), ApplyError> {
            let records = decode_all(frame.payload, frame.count)?;
            let increments = (frame.first_sequence..).zip(&records);
            for (sequence, record) in increments.filter(|(sequence, _)| *sequence < until.sequence)
            {
                if let Record::Erase { users } = record {
                    ring.erase(users);
                } else if let Some((late, increment)) = record.increment() {
                    let schema = in_force(manifest, sequence);
                    let one = std::iter::once((sequence, late, increment));
                    ring.count(keys, schema, Delta::add, one);
                }
            }
            let deltas = ring.stores().flat_map(DeltaStore::deltas);
            let bytes: usize = deltas.map(Delta::bytes).sum();
            match bytes as u64 > bytes_max {
                true => Err("the delta store is too large to be counted again in service: stop the server, and run \
                             `tallyring verify --repair`"
                    .into()),
                false => Ok(()),
            }
        };
        scan(
            self.blobs.disk(),
            None,
            ReadFrom::Sequence(from.sequence),
            &mut apply,
        )?;
        let store = ring.store_mut(entry.id);
        let store =
            store.ok_or_else(|| Error::Missing(format!("there is no delta store {}", entry.id)))?;
        // No view ever saw this delta store, so it has one layer.
        let delta = store.layers.take().pop();
        Ok(delta.unwrap_or_else(|| Arc::new(Delta::new(form))))
    }
}

/// The schema that is in force for a record.
fn in_force(manifest: &Manifest, sequence: u64) -> &Schema {
    let schemas = &manifest.intake.schemas;
    let known = schemas.partition_point(|entry| entry.since.sequence <= sequence);
    &schemas[known.saturating_sub(1)].schema
}
