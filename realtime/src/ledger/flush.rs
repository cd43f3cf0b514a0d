//! Flush and cut: changes of the manifest that move counts from memory into runs.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use tallyring_archive::merge::{Horizon, merge_erasing};
use tallyring_archive::{
    Erasures, IdRunEntry, IdsEntry, Manifest, Origin, Partition, RunEntry, RunSpec, RunWriter,
    SchemaEntry, StoreEntry,
};
use tallyring_records::StoreId;

use super::files::Files;
use super::{Ledger, Root};
use crate::delta::{DeltaStore, FlushTarget, OpenRun, write_runs};
use crate::error::{Error, Result};
use crate::intake::{self, Frozen, HOUR_MS, Intake};
use crate::seldom::Seldom;
use crate::view::to_name;

/// Runs of one delta store, month and shard above which they are merged into one.
const RUNS_MAX: usize = 8;

/// Memory of a merge for each plain byte of its inputs' largest blocks: a line is decoded, its values are summed with
/// 24 bytes beside each text, and the sum is written as text and as a block.
const MERGE_FACTOR: u64 = 6;
/// Memory that every merge may take, bytes: the number of runs with blocks of usual size stays bounded.
const MERGE_BYTES_LEAST: u64 = 8 << 20;

/// How memory is frozen.
type Freeze = fn(&Intake) -> Result<Frozen>;

/// The line of the log about runs that are not merged.
static APART: Seldom = Seldom::untold();

impl Ledger {
    /// Writes every delta and all ids in memory as runs, and names the runs in a new manifest. The store stays in
    /// service. After an error the counts and ids stay in memory, and count.
    pub fn flush(&self) -> Result<()> {
        let mut root = self.root();
        self.flush_locked(&mut root)
    }

    /// True where the last flush failed, and this process still writes: counts stay in memory, which is bounded.
    pub fn has_failed_to_flush(&self) -> bool {
        let failed = self.flush_failed.load(Ordering::Relaxed);
        failed > 0
            && self
                .intake
                .epoch()
                .is_some_and(|epoch| u64::from(epoch) + 1 == failed)
    }

    /// Closes the delta stores that are due (every day before today, late stores that count something) and flushes.
    /// Returns the manifest to rebuild from. Fails when the log takes no more writes.
    pub fn cut(&self) -> Result<Arc<Manifest>> {
        let mut root = self.root();
        root.check()?;
        self.intake.cut_due()?;
        self.flush_locked(&mut root)?;
        Ok(Arc::new(root.manifest.clone()))
    }

    /// Flushes at the beginning of a reconcile, and returns the manifest to reconcile by. Late increments of from here
    /// on go to a late store of their own, so that the users who come after the version are known apart. Fails as
    /// [`Ledger::flush`] does.
    pub fn begin_reconcile(&self) -> Result<Arc<Manifest>> {
        let mut root = self.root();
        self.flush_frozen(&mut root, Intake::freeze_apart)?;
        Ok(Arc::new(root.manifest.clone()))
    }

    /// Names the schema in force in the manifest, if only the log has it. A process that reads the manifest alone, such
    /// as a load that sorts beside a server, uses that schema. After an error the schema is in force all the same, and
    /// the next flush names it.
    pub(crate) fn name_schema(&self) -> Result<()> {
        let live = self.intake.live();
        let manifest = live.manifest();
        let named = &manifest.intake.schemas;
        let is_named = named
            .last()
            .is_some_and(|named| named.schema == *live.schema());
        let is_logged = |schemas: &[SchemaEntry]| schemas.first().map(|first| first.is_logged);
        if is_named && is_logged(named) == is_logged(&live.snapshot().schemas) {
            return Ok(());
        }
        self.flush()
    }

    pub(super) fn flush_locked(&self, root: &mut Root) -> Result<()> {
        self.flush_frozen(root, Intake::freeze)
    }

    fn flush_frozen(&self, root: &mut Root, freeze: Freeze) -> Result<()> {
        let flushed = self.flush_following(root, freeze);
        let failed = match (&flushed, self.intake.epoch()) {
            (Err(_), Some(epoch)) => u64::from(epoch) + 1,
            _ => 0,
        };
        self.flush_failed.store(failed, Ordering::Relaxed);
        flushed
    }

    fn flush_following(&self, root: &mut Root, freeze: Freeze) -> Result<()> {
        loop {
            let number = root.manifest.number;
            match self.try_flush(root, freeze) {
                // The manifest of another node came first, and counts now.
                Err(Error::Archive(tallyring_archive::Error::Conflict { .. }))
                    if root.manifest.number > number => {}
                flushed => return flushed,
            }
        }
    }

    fn try_flush(&self, root: &mut Root, freeze: Freeze) -> Result<()> {
        root.check()?;
        let mut new_files = Vec::new();
        let flushed = self.write_and_name(root, freeze, &mut new_files);
        // While it is unknown which manifest counts, the new manifest may name these files.
        if root.uncertain.is_none() {
            let new_files = new_files.iter().map(String::as_str);
            root.files
                .remove_unnamed(&self.blobs, new_files, &root.manifest);
        }
        flushed
    }

    /// Writes all memory as runs, adds their names to `new_files`, and names the runs in a manifest.
    fn write_and_name(
        &self,
        root: &mut Root,
        freeze: Freeze,
        new_files: &mut Vec<String>,
    ) -> Result<()> {
        let frozen = freeze(&self.intake)?;
        self.intake.log_holds()?;
        let written = self.write_frozen(root, &frozen, new_files)?;
        let mut next = self.next_manifest(root)?;
        self.describe(&mut next, &frozen, &written);
        next.intake.newest_events = frozen.newest_events.clone();
        next.intake.consumed.clone_from(&frozen.consumed);
        next.intake.ids = self.ids_entry(&next.intake.ids, &frozen, written.ids.as_ref())?;
        new_files.extend(next.intake.ids.runs.iter().map(|ids| ids.run.name.clone()));
        let fresh_ids = self.intake.open_fresh_ids(&next.intake.ids.runs)?;
        self.commit_manifest(root, next)?;
        let (stores, until) = (written.stores, frozen.until);
        self.intake
            .flushed(stores, fresh_ids, until, &root.manifest);
        Ok(())
    }

    fn write_frozen(
        &self,
        root: &mut Root,
        frozen: &Frozen,
        new_files: &mut Vec<String>,
    ) -> Result<Written> {
        let (blobs, options) = (&self.blobs, self.intake.options());
        let level = options.flush_level;
        let now = self.intake.believed_ms().div_euclid(1_000);
        let breakdowns_from = options.breakdowns_from(now);
        let group = blobs.group();
        let erasures = self.intake.live().erasures();
        let mut stores = Vec::new();
        for store in &frozen.stores {
            let target = FlushTarget {
                group: &group,
                origin: Origin::Flush(store.id),
                level,
                breakdowns_from,
            };
            let mut runs = store.runs.clone();
            for delta in &store.deltas {
                write_runs(&target, delta, &mut |mut entry| {
                    if !erasures.is_empty() {
                        entry.erased_until = frozen.until.sequence;
                    }
                    new_files.push(entry.name.clone());
                    runs.push(root.files.open(blobs, &entry)?);
                    Ok(())
                })?;
            }
            let runs = self.compact(&mut root.files, store.id, runs, breakdowns_from)?;
            new_files.extend(runs.iter().map(|run| run.entry.name.clone()));
            stores.push((store.id, runs));
        }
        group.commit()?;
        let ids = match &frozen.ids {
            Some(ids) => intake::write_run(blobs, ids, level)?,
            None => None,
        };
        new_files.extend(ids.iter().map(|ids| ids.run.name.clone()));
        Ok(Written { stores, ids })
    }

    /// Merges the runs of each month and shard that has too many of them. Breakdowns by minute of hours before
    /// `breakdowns_from` (Unix seconds) are left out.
    fn compact(
        &self,
        files: &mut Files,
        id: StoreId,
        runs: Vec<OpenRun>,
        breakdowns_from: i64,
    ) -> Result<Vec<OpenRun>> {
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
            let (group, apart) = fitting(group, self.intake.options().delta_bytes_max);
            if !apart.is_empty()
                && let Some(times) = APART.due()
            {
                tracing::warn!(
                    times,
                    store = %id,
                    runs = apart.len(),
                    "runs of a delta store wait for the rebuild: one key has so many values in one hour that memory \
                     does not suffice to merge them"
                );
            }
            kept.extend(apart);
            if group.len() <= RUNS_MAX {
                kept.extend(group);
                continue;
            }
            let level = self.intake.options().flush_level;
            let spec = RunSpec {
                origin: Origin::Flush(id),
                partition,
                shard,
                shards,
                level,
            };
            match self.merged(&group, spec, breakdowns_from) {
                Ok(entry) => {
                    if let Some(entry) = entry {
                        kept.push(files.open(&self.blobs, &entry)?);
                    }
                }
                // A failed merge must not fail the flush: memory would fill up.
                Err(error) => {
                    self.intake.live().cache().note_damage(&error);
                    tracing::error!(%error, store = %id, "cannot merge runs of a delta store; the runs stay as they are");
                    kept.extend(group);
                }
            }
        }
        Ok(kept)
    }

    /// The merge of runs, without actions of erased users.
    fn merged(
        &self,
        runs: &[OpenRun],
        spec: RunSpec,
        breakdowns_from: i64,
    ) -> tallyring_archive::Result<Option<RunEntry>> {
        let erasures = self.intake.live().erasures();
        let inputs: Vec<_> = runs.iter().map(|run| Arc::clone(&run.run)).collect();
        let entries: Vec<_> = runs.iter().map(|run| &run.entry).collect();
        let horizon = Horizon {
            breakdowns_from,
            ..Horizon::ALL
        };
        let out = RunWriter::create(&self.blobs, spec)?;
        merge_erasing(&inputs, &entries, &erasures, out, horizon, &|_| {})
    }

    /// Writes the state of the ring and the schemas after a flush into `next`.
    fn describe(&self, next: &mut Manifest, frozen: &Frozen, written: &Written) {
        let view = self.intake.live().snapshot();
        next.intake.today = view.ring.today();
        // A ring that turned back had begun by a clock that was ahead.
        next.intake.begun = next.intake.begun.map(|day| day.min(view.ring.today()));
        next.intake.early = view.finals.early_days();
        next.intake.stores = view
            .ring
            .stores()
            .map(|store| flushed_entry(store, frozen, written))
            .collect();
        // A recount begins where the log does.
        next.intake.schemas = to_name(&view.schemas, self.intake.log_begins());
        view.finals.touch(&mut next.archive.finals);
        let mut erasures = Erasures::clone(&view.erasures);
        if !erasures.is_empty() {
            let of_files = next.files().filter(|file| file.meta.has_actions());
            let of_files = of_files.map(|file| file.erased_until);
            let clean = of_files.min().unwrap_or(u64::MAX);
            // Records before the erasure may name the user.
            let log_from = self.intake.log_begins();
            erasures.retain(|_, at| at >= clean || at >= log_from);
        }
        next.intake.erasures = erasures;
    }

    /// The ids of a manifest after a flush. Id runs are kept for as long as the log has records of their ids: they lead
    /// to the history of an id, and to its duplicates on other days.
    fn ids_entry(
        &self,
        before: &IdsEntry,
        frozen: &Frozen,
        new: Option<&IdRunEntry>,
    ) -> Result<IdsEntry> {
        let options = self.intake.options();
        let now_ms = self.intake.believed_ms();
        let oldest_ms = self.intake.ids_from_ms();
        let kept = before.runs.iter().filter(|run| run.newest_ms >= oldest_ms);
        let runs = kept.chain(new).cloned().collect();
        let window_ms = i64::from(options.id_hours) * HOUR_MS;
        // Where a merge failed, the file is left out until it is healed.
        let mut damaged = self.damaged().clone();
        let (of, level) = ((now_ms, window_ms), options.flush_level);
        let runs = intake::compact(&self.blobs, runs, of, level, &mut damaged)?;
        self.damaged().append(&mut damaged);
        Ok(IdsEntry {
            // A replay may have begun earlier, for the records that a delta store lacks.
            flushed: before.flushed.max(frozen.until),
            unowned_until_ms: self.intake.unowned_until_ms(&runs),
            runs,
            producers: frozen.producers.clone(),
        })
    }
}

/// Divides runs into those whose merge takes at most half of the memory for deltas, and the others: one key with
/// millions of values in one hour is one line, which a merge holds as a whole.
fn fitting(mut runs: Vec<OpenRun>, delta_bytes_max: u64) -> (Vec<OpenRun>, Vec<OpenRun>) {
    let bytes_max = (delta_bytes_max / 2).max(MERGE_BYTES_LEAST);
    runs.sort_by_key(|run| run.run.largest_block());
    let mut bytes = 0_u64;
    let fits = runs.iter().take_while(|run| {
        bytes = bytes.saturating_add(run.run.largest_block().saturating_mul(MERGE_FACTOR));
        bytes <= bytes_max
    });
    let fits = fits.count();
    let apart = runs.split_off(fits);
    (runs, apart)
}

/// The files of a flush: all runs of each delta store, and the run of new ids.
struct Written {
    stores: Vec<(StoreId, Vec<OpenRun>)>,
    ids: Option<IdRunEntry>,
}

fn flushed_entry(store: &DeltaStore, frozen: &Frozen, written: &Written) -> StoreEntry {
    let mut entry = store.entry();
    entry.flushed = store.flushed.max(frozen.until);
    if let Some((_, runs)) = written.stores.iter().find(|(id, _)| *id == store.id) {
        entry.runs = runs
            .iter()
            .map(|run| -> RunEntry { run.entry.clone() })
            .collect();
    }
    entry
}

#[cfg(test)]
mod tests {
    use tallyring_archive::Blobs;

    use super::*;

    #[test]
    fn runs_whose_merge_would_not_fit_in_memory_stay_apart() {
        let directory = tempfile::tempdir().expect("a directory");
        let blobs = Blobs::local(directory.path()).expect("blobs");
        blobs.prepare().expect("directories");
        let run = |number: u32, values: u32| {
            let spec = RunSpec {
                origin: "load 0123456789abcdef".parse().expect("an origin"),
                partition: "2012-04".parse().expect("a month"),
                shard: 0,
                shards: 1,
                level: 1,
            };
            let mut out = RunWriter::create(&blobs, spec).expect("a run");
            let values: Vec<String> = (0..values).map(|v| format!("{number}{v:07}:1")).collect();
            let values = values.join(" ");
            out.push(b"r.l|a.c413", values.as_bytes()).expect("a line");
            let entry = out.finish().expect("written").expect("a line");
            Files::default().open(&blobs, &entry).expect("opened")
        };
        let all = || [3, 200_000, 2, 200_000, 1].into_iter().zip(0..);
        let runs = || all().map(|(values, number)| run(number, values)).collect();
        let divided = |delta_bytes_max| {
            let (fit, apart): (Vec<OpenRun>, _) = fitting(runs(), delta_bytes_max);
            (fit.len(), apart.len())
        };
        assert_eq!(divided(1 << 30), (5, 0));
        assert_eq!(divided(0), (3, 2));
    }
}
