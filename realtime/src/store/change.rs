//! Changes of the manifest that move counts from memory into runs: flush and cut.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tallyring_archive::merge::{Horizon, merge};
use tallyring_archive::{
    IdRunEntry, IdsEntry, Manifest, Partition, ProducerEntry, RunEntry, RunSpec, RunWriter,
    StoreEntry, names, remove_leftovers_of_flush,
};
use tallyring_records::{Offset, Position, Record, StoreId};

use super::files::Files;
use super::{Root, Store, Writer};
use crate::delta::{Delta, DeltaStore, FlushTarget, OpenRun, write_runs};
use crate::error::{Error, Result};
use crate::ids::{self, IdRun};

/// Runs of one store, month and shard above which they are merged into one.
const RUNS_MAX: usize = 8;

pub(super) const HOUR_MS: i64 = 3_600_000;

impl Store {
    /// Writes every memory delta and all ids in memory as runs, and names them in a new manifest.
    /// Serving goes on meanwhile.
    ///
    /// # Errors
    /// When the disk refuses; what was to be flushed stays in memory and counts.
    pub fn flush(&self) -> Result<()> {
        let mut root = self.root();
        self.flush_locked(&mut root)
    }

    /// Closes the stores that are due (every day before today, late stores that count something)
    /// and flushes. Returns the manifest to rebuild from.
    ///
    /// # Errors
    /// When the log takes no more writes or the disk refuses.
    pub fn cut(&self) -> Result<Arc<Manifest>> {
        let mut root = self.root();
        root.check()?;
        {
            let mut writer = self.writer();
            let stores = self.view().ring.due();
            if !stores.is_empty() {
                let record = Record::Cut { stores };
                let after = self.append_one(&mut writer, &record)?;
                let mut live = self.live_mut();
                let view = live.view_mut();
                view.ring.follow(&record, after);
                view.applied = after;
            }
        }
        self.flush_locked(&mut root)?;
        Ok(Arc::new(root.manifest.clone()))
    }

    /// True when memory, or what a restart would replay, is above its limit.
    pub fn wants_flush(&self) -> bool {
        let unflushed = self.writer().unflushed;
        unflushed >= self.options.replay_records_max
            || self.unflushed_bytes() >= self.options.delta_bytes_max
    }

    /// True when memory is so far above its limit that writing must wait for a flush.
    pub fn must_flush(&self) -> bool {
        self.unflushed_bytes() >= 2 * self.options.delta_bytes_max
    }

    /// Memory of deltas and ids, bytes.
    pub(super) fn unflushed_bytes(&self) -> u64 {
        let ids = self.writer().ids.bytes() as u64;
        let view = self.view();
        let deltas = view.ring.stores().flat_map(DeltaStore::deltas);
        ids + deltas.map(|delta| delta.bytes() as u64).sum::<u64>()
    }

    pub(super) fn flush_locked(&self, root: &mut Root) -> Result<()> {
        root.check()?;
        let flushed = self.write_and_name(root);
        // Where a manifest may name them they stay. Else the next try makes others, and the disk may be full.
        if flushed.is_err() && root.uncertain.is_none() {
            let disk = &*self.world.disk;
            root.files.forget_unnamed(&root.manifest);
            if let Err(error) = remove_leftovers_of_flush(disk, &root.manifest) {
                tracing::debug!(%error, "what a failed flush left could not be removed");
            }
        }
        flushed
    }

    fn write_and_name(&self, root: &mut Root) -> Result<()> {
        let frozen = self.freeze()?;
        let written = self.write_frozen(root, &frozen)?;
        let mut next = self.next_manifest(root)?;
        self.describe(&mut next, &frozen, &written);
        next.newest_events = frozen.newest_events.clone();
        next.ids = self.remembered(&next.ids, &frozen, written.ids.as_ref())?;
        let fresh = self.open_fresh_ids(&next.ids.runs)?;
        self.commit_manifest(root, next)?;
        let made = written.made.iter().map(String::as_str);
        root.files
            .remove_unnamed(&*self.world.disk, made, &root.manifest);
        let mut writer = self.writer();
        let mut live = self.live_mut();
        let view = live.view_mut();
        for (id, runs) in written.stores {
            if let Some(store) = view.ring.store_mut(id) {
                store.frozen.clear();
                store.runs = runs.into();
            }
        }
        for store in view.ring.stores_mut() {
            store.flushed = store.flushed.max(frozen.until);
        }
        view.schemas = Arc::new(root.manifest.schemas.clone());
        view.manifest = Arc::new(root.manifest.clone());
        let applied = view.applied.sequence;
        drop(live);
        let runs = &root.manifest.ids.runs;
        let known_from_ms = self.known_from_ms(&writer);
        writer.ids.adopt(fresh, runs, known_from_ms);
        writer.unflushed = applied.saturating_sub(frozen.until.sequence);
        Ok(())
    }

    /// Sets memory aside at one durable offset.
    fn freeze(&self) -> Result<Frozen> {
        let mut writer = self.writer();
        writer.log()?.sync()?;
        let ids = writer.ids.freeze();
        let oldest_ms = self.believed_now_ms(&writer) - self.log_hours() * HOUR_MS;
        writer.producers.forget(oldest_ms);
        let producers = writer.producers.entries();
        // What few layers there are makes few runs.
        self.fold();
        let _folding = self.folding();
        let mut live = self.live_mut();
        let view = live.view_mut();
        // In service the log's end; in a replay what was read of it.
        let until = view.applied;
        let mut stores = Vec::new();
        for store in view.ring.stores_mut() {
            store.frozen.extend(store.layers.take());
            if !store.frozen.is_empty() {
                stores.push((store.id, store.frozen.clone(), store.runs.to_vec()));
            }
        }
        Ok(Frozen {
            until,
            stores,
            ids,
            producers,
            newest_events: view.watermarks.entries(&self.schema),
        })
    }

    fn write_frozen(&self, root: &mut Root, frozen: &Frozen) -> Result<Written> {
        let disk = &*self.world.disk;
        let (mut stores, mut made) = (Vec::new(), Vec::new());
        for (id, deltas, runs) in &frozen.stores {
            let target = FlushTarget {
                disk,
                store: id.to_string(),
                level: self.options.flush_level,
            };
            let mut runs = runs.clone();
            for delta in deltas {
                for entry in write_runs(&target, delta)? {
                    runs.push(root.files.open(disk, &entry)?);
                    made.push(entry.name);
                }
            }
            stores.push((*id, self.compact(&mut root.files, *id, runs)?));
        }
        let ids = match &frozen.ids {
            Some(ids) => ids::write_run(disk, ids, self.options.flush_level)?,
            None => None,
        };
        made.extend(ids.iter().map(|ids| ids.run.name.clone()));
        Ok(Written { stores, ids, made })
    }

    /// Merges the runs of each month and shard that has too many.
    fn compact(&self, files: &mut Files, id: StoreId, runs: Vec<OpenRun>) -> Result<Vec<OpenRun>> {
        let disk = &*self.world.disk;
        let mut groups: BTreeMap<(Partition, u16, u16), Vec<OpenRun>> = BTreeMap::new();
        for run in runs {
            let meta = run.run.meta();
            groups
                .entry((meta.partition, meta.shard, meta.shards))
                .or_default()
                .push(run);
        }
        let mut kept = Vec::new();
        for ((partition, shard, shards), group) in groups {
            if group.len() <= RUNS_MAX {
                kept.extend(group);
                continue;
            }
            let level = self.options.flush_level;
            let spec = RunSpec {
                directory: names::DELTAS,
                what: id.to_string(),
                partition,
                shard,
                shards,
                level,
            };
            let inputs: Vec<_> = group.iter().map(|run| Arc::clone(&run.run)).collect();
            let merged =
                RunWriter::create(disk, spec).and_then(|out| merge(&inputs, out, Horizon::ALL));
            match merged {
                Ok(entry) => {
                    disk.sync_directory(names::DELTAS)
                        .map_err(tallyring_archive::Error::io("sync", names::DELTAS))?;
                    if let Some(entry) = entry {
                        kept.push(files.open(disk, &entry)?);
                    }
                }
                // To be few is not worth a flush: were it to fail, memory would fill up.
                Err(error) => {
                    tracing::error!(%error, store = %id, "runs stay as many as they are");
                    kept.extend(group);
                }
            }
        }
        Ok(kept)
    }

    /// Fills in what the ring and the ids are after a flush.
    fn describe(&self, next: &mut Manifest, frozen: &Frozen, written: &Written) {
        let view = self.view();
        next.today = view.ring.today();
        next.stores = view
            .ring
            .stores()
            .map(|store| flushed_entry(store, frozen, written))
            .collect();
        // All of them: a recount begins where the log does.
        next.schemas.clone_from(&view.schemas);
    }

    /// Ids are known for their window; what became of them is told as long as the log is kept.
    fn remembered(
        &self,
        before: &IdsEntry,
        frozen: &Frozen,
        new: Option<&IdRunEntry>,
    ) -> Result<IdsEntry> {
        let (disk, level) = (&*self.world.disk, self.options.flush_level);
        let now_ms = self.believed_now_ms(&self.writer());
        let oldest_ms = now_ms.saturating_sub(self.log_hours() * HOUR_MS);
        let kept = before.runs.iter().filter(|run| run.newest_ms >= oldest_ms);
        let runs = kept.chain(new).cloned().collect();
        let window_ms = i64::from(self.options.id_hours) * HOUR_MS;
        Ok(IdsEntry {
            // A replay may begin before, at what a store lacks.
            flushed: Position::single(before.flushed.offset(0).max(frozen.until)),
            runs: ids::compact(disk, runs, now_ms, window_ms, level)?,
            producers: frozen.producers.clone(),
        })
    }

    /// Reads what a new manifest names first, before it is committed and without the writer's lock:
    /// filters take a moment to build.
    fn open_fresh_ids(&self, entries: &[IdRunEntry]) -> Result<Vec<IdRun>> {
        let (new, known_from_ms) = {
            let writer = self.writer();
            let is_new = |entry: &&IdRunEntry| !writer.ids.has(entry);
            let new: Vec<&IdRunEntry> = entries.iter().filter(is_new).collect();
            (new, self.known_from_ms(&writer))
        };
        let open =
            |entry: &IdRunEntry| IdRun::open(&*self.world.disk, entry.clone(), known_from_ms);
        Ok(new
            .into_iter()
            .map(open)
            .collect::<std::result::Result<_, _>>()?)
    }

    /// Since when ids are known, Unix milliseconds.
    fn known_from_ms(&self, writer: &Writer) -> i64 {
        self.believed_now_ms(writer) - i64::from(self.options.id_hours) * HOUR_MS
    }

    /// A batch's verdict is read from the log as long as its key is remembered.
    fn log_hours(&self) -> i64 {
        i64::from(self.options.log_days()) * 24
    }

    /// The manifest that follows, still as the one before: they are numbered without gaps.
    ///
    /// # Errors
    /// When this process must not change it any more.
    pub(super) fn next_manifest(&self, root: &Root) -> Result<Manifest> {
        root.check()?;
        let now_ms = self.world.clock.now_ms();
        Ok(Manifest {
            number: root.manifest.number + 1,
            written_at_ms: now_ms,
            plausible_at_ms: self.plausible_before(now_ms),
            ..root.manifest.clone()
        })
    }

    /// Commits `next`, notes that in the log, and removes the files that only the manifest before named.
    pub(super) fn commit_manifest(&self, root: &mut Root, next: Manifest) -> Result<()> {
        let disk = &*self.world.disk;
        if let Err(error) = next.commit(disk) {
            // If the name may be taken, this process can no longer tell which manifest counts.
            let unnamed = disk.list(names::MANIFESTS).is_ok_and(|files| {
                !files
                    .iter()
                    .any(|file| names::manifest_number(file) == Some(next.number))
            });
            if unnamed {
                let _ = tallyring_archive::disk::remove_temporary_files(disk, names::MANIFESTS);
            } else {
                root.uncertain = Some(error.to_string());
            }
            return Err(error.into());
        }
        let before = std::mem::replace(&mut root.manifest, next);
        if root.notes_commits {
            self.note_manifest(root.manifest.number);
        }
        let before = before.files().map(|entry| entry.name.as_str());
        root.files.remove_unnamed(disk, before, &root.manifest);
        Ok(())
    }

    /// Removes log segments that nothing needs any more: flushed, out of the id window, old enough.
    ///
    /// # Errors
    /// When the disk refuses.
    pub fn expire_log(&self) -> Result<usize> {
        let needed = self.root().manifest.log_from();
        let now_ms = self.believed_now_ms(&self.writer());
        let older_than_ms = now_ms.saturating_sub(self.log_hours() * HOUR_MS);
        let mut removed = 0;
        loop {
            let mut writer = self.writer();
            let one = writer.log()?.delete_before(needed, older_than_ms, 1)?;
            drop(writer);
            if one == 0 {
                return Ok(removed);
            }
            removed += one;
            // Whoever waits to write goes first: each removal is a sync of the directory.
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

/// What was set aside, and up to where.
struct Frozen {
    until: Offset,
    stores: Vec<(StoreId, Vec<Arc<Delta>>, Vec<OpenRun>)>,
    ids: Option<Arc<hashbrown::HashMap<u128, ids::Seen>>>,
    producers: Vec<ProducerEntry>,
    newest_events: BTreeMap<String, i64>,
}

/// What was written of it: all runs of each store then.
struct Written {
    stores: Vec<(StoreId, Vec<OpenRun>)>,
    ids: Option<IdRunEntry>,
    /// Names of the files; what was merged at once into others is named by no manifest.
    made: Vec<String>,
}

fn flushed_entry(store: &DeltaStore, frozen: &Frozen, written: &Written) -> StoreEntry {
    let mut entry = store.entry();
    entry.flushed = Position::single(store.flushed.max(frozen.until));
    if let Some((_, runs)) = written.stores.iter().find(|(id, _)| *id == store.id) {
        entry.runs = runs
            .iter()
            .map(|run| -> RunEntry { run.entry.clone() })
            .collect();
    }
    entry
}

impl Root {
    pub(super) fn check(&self) -> Result<()> {
        match &self.uncertain {
            Some(cause) => Err(Error::Uncertain(cause.clone())),
            None => Ok(()),
        }
    }
}
