//! Counts one store again while the others serve: what a lost run of it held is in the log.

use std::sync::Arc;

use tallyring_archive::{Manifest, RunEntry, SchemaEntry, StoreEntry};
use tallyring_records::{Schema, decode_all};

use super::Ledger;
use crate::delta::{Delta, DeltaStore};
use crate::error::{Error, Result};
use crate::oplog::{ApplyError, Frame, ReadFrom, scan, segments};
use crate::ring::Ring;

impl Ledger {
    /// Counts the store again of which `file` is a run, from the log, and flushes it. False when it is of none, or the log
    /// begins after the store does. Nobody may remove segments meanwhile. Memory: that store, at most `delta_bytes_max`.
    ///
    /// # Errors
    /// When the store does not fit in memory, or the log or the disk fails; all is as before then.
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
        // Equal counts have equal names: a damaged file must not be taken for what is written now.
        let damaged = self.damaged().clone();
        for run in &entry.runs {
            root.files.forget(&run.name);
            if damaged.contains(&run.name) {
                let _ = self.blobs.remove(&run.name);
            }
        }
        self.intake.live().recounted(entry.id, delta);
        // What it counts is in memory now; a crash before this is durable finds the lost run again.
        self.flush_locked(&mut root)?;
        self.damaged()
            .retain(|name| entry.runs.iter().all(|run| run.name != *name));
        Ok(true)
    }

    /// What the runs of a store hold.
    fn count_again(&self, manifest: &Manifest, entry: &StoreEntry) -> Result<Arc<Delta>> {
        let (from, until) = (entry.opened, entry.flushed);
        let options = self.intake.options();
        let (shards, bytes_max) = (options.shards, options.delta_bytes_max);
        let keys = self.intake.live().keys();
        let begun = DeltaStore {
            cut: entry.cut,
            ..DeltaStore::new(entry.id, from, shards)
        };
        let mut ring = Ring::restore(manifest.intake.today, shards, [begun]);
        let mut apply = |frame: Frame<'_>| -> std::result::Result<(), ApplyError> {
            let records = decode_all(frame.payload, frame.count)?;
            let increments = (frame.first_sequence..).zip(&records);
            for (sequence, record) in increments.filter(|(sequence, _)| *sequence < until.sequence)
            {
                if let Some((late, increment)) = record.increment() {
                    let schema = in_force(manifest, sequence);
                    let one = std::iter::once((sequence, late, increment));
                    ring.count(keys, schema, Delta::add, one);
                }
            }
            let deltas = ring.stores().flat_map(DeltaStore::deltas);
            let bytes: usize = deltas.map(Delta::bytes).sum();
            match bytes as u64 > bytes_max {
                true => Err("it is too large to be counted again while it is served: stop the server, and run `tallyring \
                             verify --repair`"
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
        let store = store.ok_or_else(|| Error::Missing(format!("{} is no store", entry.id)))?;
        // No view ever saw it, so that it has one layer.
        Ok(store
            .layers
            .take()
            .pop()
            .unwrap_or_else(|| Arc::new(Delta::new(shards))))
    }
}

/// The declaration that holds for a record.
fn in_force(manifest: &Manifest, sequence: u64) -> &Schema {
    let schemas = &manifest.intake.schemas;
    let known = schemas.partition_point(|entry| entry.since.sequence <= sequence);
    &schemas[known.saturating_sub(1)].schema
}
