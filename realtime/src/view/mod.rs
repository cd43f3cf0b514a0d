//! The state that queries see: the newest view, every change of it, and every read.
//!
//! [`Live`] owns the counts: the ring, the memory of its delta stores, the open files, and the ranking of keys in
//! recent hours. A query takes a [`View`] in constant time and reads it without any lock. Everything that an answer
//! needs is asked of its view.
//!
//! [`Live`] has three locks, that of the open books and that of remembered rankings, and none of them leaves this
//! folder. `folding` is held for as long as layers of memory are folded, and is taken before `newest`. `newest` is held
//! for a moment only. No other lock is taken while `recent` or the lock of the open books or of remembered rankings is
//! held.
//!
//! This folder knows nothing of the log, of ids, or of how manifests are made.

mod actions;
mod books;
mod candidates;
mod count;
mod counted_keys;
mod everyone;
mod finals;
mod first;
pub(crate) mod found_keys;
mod frozen;
mod gather;
mod lateness;
mod learning;
mod less;
mod less_actions;
mod lists;
mod loaded;
mod minutes;
mod part_lists;
mod parts;
mod person;
mod points;
mod ranking;
mod read;
mod recent;
mod remembered;
mod rules;
mod scan;
mod snapshot;
mod tally;
mod top;
mod top_listed;
mod trial;
mod users;
mod values;

use std::sync::atomic::AtomicBool;
use std::sync::{Arc, PoisonError};

use tallyring_archive::{Blobs, BlockCache, Erasures, Manifest, Run, SchemaEntry};
use tallyring_records::{LongKeys, Offset, Record, Schema, StoreId, UserKey, breakdowns_from};
use tokio::sync::Notify;

use crate::budget::ReadBudget;
use crate::delta::{Delta, DeltaStore, Form, OpenRun};
use crate::heavy::Heavy;
use crate::identity::Identity;
use crate::options::Options;
use crate::ring::Add;
use crate::sync::{Mutex, MutexGuard, RwLock, give_way};

pub use actions::{Did, UserActions, VisitAction};
pub use books::BooksView;
pub use finals::{State, States};
pub use frozen::View;
pub use ranking::{CountedSpan, Ranking, TopKey};
pub use read::{Read, Series, ValuePoint};
pub use recent::{RECENT_SECONDS_MAX, Seconds};
pub use users::UsersView;

pub(crate) use count::LoggedFrame;
pub(crate) use lateness::Watermarks;
pub(crate) use rules::Rules;
pub(crate) use snapshot::{ArchiveFiles, Snapshot, to_name};
pub(crate) use trial::LogFiles;

use books::OpenBooks;
use finals::Counted;
use recent::Recent;
use remembered::Remembered;
use snapshot::Newest;

/// The newest counts of one data directory.
pub struct Live {
    keys: LongKeys,
    cache: BlockCache,
    /// Files of final days that reads have opened.
    books: OpenBooks,
    form: Form,
    /// Hours of breakdowns by minute before the present one.
    breakdown_hours: u32,
    /// The schema in force, as the newest snapshot has it: those who only ask for it do not wait for a group that is
    /// being counted.
    schema: RwLock<Arc<Schema>>,
    newest: RwLock<Newest>,
    /// Wakes those who wait for an offset. To wake nobody takes no longer than a lock that nobody holds.
    advanced: Notify,
    /// Only the holder of this lock merges or removes layers of memory.
    folding: Mutex<()>,
    /// False when no delta store has layers to fold. Changed under the lock of `newest` only.
    has_arrived: AtomicBool,
    /// Counts of the last minute by the second.
    recent: RwLock<Recent>,
    /// Rankings that were made lately.
    remembered: Remembered,
    /// Memory of all running reads.
    read_budget: Arc<ReadBudget>,
}

/// Memory of all delta stores, frozen at one offset to be flushed. It counts until [`Live::flushed`].
pub(crate) struct FrozenStores {
    /// The frozen memory and the runs together hold everything before this offset.
    pub until: Offset,
    /// The delta stores with counts to flush.
    pub stores: Vec<FrozenStore>,
    /// Time of the newest event of each type, as a manifest holds it.
    pub newest_events: std::collections::BTreeMap<String, i64>,
}

/// Open files of a manifest that another node committed.
pub(crate) struct NewFiles {
    /// Files of the archive.
    pub archive: Arc<ArchiveFiles>,
    /// The delta stores with their runs, and the offset before which these hold everything.
    pub stores: Vec<(StoreId, Vec<OpenRun>, Offset)>,
}

/// Frozen memory of one delta store.
pub(crate) struct FrozenStore {
    pub id: StoreId,
    pub deltas: Vec<Arc<Delta>>,
    /// Runs that the delta store had flushed before.
    pub runs: Vec<OpenRun>,
}

impl Live {
    /// Begins with the counts of a snapshot, whose files are these blobs. `now` is in Unix seconds.
    pub(crate) fn new(
        options: &Options,
        identity: &Identity,
        (snapshot, blobs): (Snapshot, Blobs),
        now: i64,
    ) -> Self {
        let schema = Arc::clone(&snapshot.schema);
        let heavy = Heavy::new(schema.counted_namespaces(), snapshot.ring.today());
        Self {
            keys: LongKeys::new(identity.hash_key),
            cache: BlockCache::new(options.cache_bytes),
            books: OpenBooks::new(blobs),
            form: options.form(),
            breakdown_hours: options.breakdown_hours,
            schema: RwLock::new(schema),
            newest: RwLock::new(Newest::new(snapshot, heavy)),
            advanced: Notify::new(),
            folding: Mutex::new(()),
            has_arrived: AtomicBool::new(false),
            recent: RwLock::new(Recent::new(now)),
            remembered: Remembered::new(),
            read_budget: ReadBudget::new(options.read_bytes_max),
        }
    }

    /// The schema in force. Increments that were checked by it say so ([`Batch::declared`](crate::Batch)).
    pub fn schema(&self) -> Arc<Schema> {
        Arc::clone(&self.schema.read())
    }

    /// The budget of all running reads.
    pub fn read_budget(&self) -> &Arc<ReadBudget> {
        &self.read_budget
    }

    /// Number of blocks of runs that reads had to read from files since the start.
    pub fn blocks_decoded(&self) -> u64 {
        self.cache.decoded()
    }

    /// The offset before which everything is counted. It moves with every increment.
    pub fn applied(&self) -> Offset {
        self.snapshot().applied()
    }

    /// Resolves once views that are taken then count everything before `offset`; never where the log does not come to
    /// it.
    pub async fn wait_for(&self, offset: Offset) {
        loop {
            // It begins to listen before the look, so what is counted in between wakes it.
            let advanced = self.advanced.notified();
            if offset <= self.applied() {
                return;
            }
            advanced.await;
        }
    }

    /// The manifest in the newest view.
    pub fn manifest(&self) -> Arc<Manifest> {
        Arc::clone(&self.snapshot().manifest)
    }

    /// True when a day before today waits for its export, or was closed and is not published yet. Further
    /// increments for yesterday wait for the next rebuild.
    pub fn has_due_day(&self) -> bool {
        self.snapshot().ring.has_due_day()
    }

    /// The keyed hashes of this data directory.
    pub(crate) fn keys(&self) -> &LongKeys {
        &self.keys
    }

    /// The cache of decoded blocks.
    pub(crate) fn cache(&self) -> &BlockCache {
        &self.cache
    }

    /// The newest snapshot.
    pub(crate) fn snapshot(&self) -> Arc<Snapshot> {
        self.newest.read().snapshot()
    }

    /// Bytes of all memory that is not flushed.
    pub(crate) fn unflushed_bytes(&self) -> u64 {
        let snapshot = self.snapshot();
        let deltas = snapshot.ring.stores().flat_map(DeltaStore::deltas);
        deltas.map(|delta| delta.bytes() as u64).sum()
    }

    /// Applies a record that turns the ring or closes delta stores. `after` is the offset behind the record.
    pub(crate) fn follow(&self, record: &Record, after: Offset) {
        let mut newest = self.newest.write();
        let snapshot = newest.snapshot_mut();
        snapshot.ring.follow(record, after);
        snapshot.apply_until(after);
        let today = snapshot.ring.today();
        let is_empty = snapshot.ring.stores().all(DeltaStore::is_empty);
        // Hours outside the old ring are held from here on only.
        newest.knows_heavy &= is_empty || !matches!(record, Record::Turn { .. });
        newest.heavy.turn(today);
        drop(newest);
        self.advanced.notify_waiters();
    }

    /// Shows no action of these users that was counted before their record in the log, which ends at `after`.
    pub(crate) fn erase(&self, users: &[UserKey], after: Offset) {
        let mut newest = self.newest.write();
        let snapshot = newest.snapshot_mut();
        snapshot.ring.erase(users);
        Arc::make_mut(&mut snapshot.erasures).add(users, after.sequence - 1);
        snapshot.apply_until(after);
        drop(newest);
        self.advanced.notify_waiters();
    }

    /// True when a file or the log may hold something of an erased user.
    pub fn has_erased(&self) -> bool {
        !self.erasures().is_empty()
    }

    /// Erased users, whose actions of before runs may still hold.
    pub(crate) fn erasures(&self) -> Arc<Erasures> {
        Arc::clone(&self.snapshot().erasures)
    }

    /// Marks everything before `applied` as counted. Records up to there that count nothing were read.
    pub(crate) fn pass(&self, applied: Offset) {
        self.newest.write().snapshot_mut().apply_until(applied);
        self.advanced.notify_waiters();
    }

    /// Puts a schema in force, unless it is. `after` is the offset behind its record. The caller lets nothing be
    /// counted meanwhile.
    pub(crate) fn declare(&self, schema: Schema, after: Offset) {
        let schema = Arc::new(schema);
        let mut newest = self.newest.write();
        if *newest.snapshot().schema == *schema {
            // The record says what the store began with.
            newest.snapshot_mut().apply_until(after);
            return;
        }
        newest.heavy.make_room(schema.counted_namespaces());
        let snapshot = newest.snapshot_mut();
        let before = std::mem::replace(&mut snapshot.schema, Arc::clone(&schema));
        let entry = SchemaEntry::new(after, Schema::clone(&schema));
        Arc::make_mut(&mut snapshot.schemas).push(entry);
        snapshot.apply_until(after);
        drop(newest);
        self.recent.write().declare(&before, &schema);
        *self.schema.write() = schema;
        self.advanced.notify_waiters();
    }

    /// Notes that the log has the declaration with which the store began. `after` is the offset behind the record.
    pub(crate) fn beginning_is_logged(&self, after: Offset) {
        let mut newest = self.newest.write();
        let snapshot = newest.snapshot_mut();
        if let Some(first) = Arc::make_mut(&mut snapshot.schemas).first_mut() {
            first.is_logged = true;
        }
        snapshot.apply_until(after);
        drop(newest);
        self.advanced.notify_waiters();
    }

    /// Counts records of the log in the delta stores that took them, unless a run counts them.
    pub(crate) fn count_replayed<'i>(
        &self,
        add: Add,
        increments: impl Iterator<Item = (u64, bool, &'i tallyring_records::Increment)>,
    ) {
        let increments: Vec<_> = increments.collect();
        let counted = Counted::of(increments.iter().map(|&(at, _, increment)| (at, increment)));
        let mut newest = self.newest.write();
        let snapshot = newest.snapshot_mut();
        snapshot.finals.note(&counted);
        let (ring, schema) = (&mut snapshot.ring, &snapshot.schema);
        ring.count(&self.keys, schema, add, increments.into_iter());
    }

    /// Raises the watermarks to those of `watermarks`.
    pub(crate) fn see(&self, watermarks: &Watermarks) {
        self.newest
            .write()
            .snapshot_mut()
            .watermarks
            .merge(watermarks);
    }

    /// Ends a replay: everything before `applied` is counted.
    pub(crate) fn end_replay(&self, applied: Offset) {
        let mut newest = self.newest.write();
        newest.snapshot_mut().apply_until(applied);
        let snapshot = newest.snapshot();
        let namespaces = snapshot.schema.counted_namespaces();
        newest.heavy = Heavy::new(namespaces, snapshot.ring.today());
        newest.knows_heavy = snapshot.ring.stores().all(DeltaStore::is_empty);
    }

    /// Forgets the breakdowns by minute that are not kept at `now` (Unix seconds) any more. Returns false where a view
    /// holds memory, which then forgets nothing.
    pub fn forget_breakdowns(&self, now: i64) -> bool {
        let instant = breakdowns_from(now, self.breakdown_hours);
        let (mut is_all, mut forgotten) = (true, Vec::new());
        let mut newest = self.newest.write();
        for store in newest.snapshot_mut().ring.stores_mut() {
            is_all &= store.layers.forget_breakdowns(instant, &mut forgotten);
        }
        // The memory is freed without a lock.
        give_way(newest);
        is_all
    }

    /// Freezes all memory to be flushed. The caller lets nothing be counted meanwhile.
    pub(crate) fn freeze(&self) -> FrozenStores {
        // Few layers make few runs.
        self.fold();
        let _folding = self.folding();
        let mut newest = self.newest.write();
        let snapshot = newest.snapshot_mut();
        // In service this is the end of the log; in a replay it is the end of the records that were read.
        let until = snapshot.applied();
        let mut stores = Vec::new();
        for store in snapshot.ring.stores_mut() {
            let deltas = store.freeze(until.sequence);
            if !deltas.is_empty() {
                stores.push(FrozenStore {
                    id: store.id,
                    deltas,
                    runs: store.runs.to_vec(),
                });
            }
        }
        FrozenStores {
            until,
            stores,
            newest_events: snapshot.watermarks.entries(&snapshot.schema),
        }
    }

    /// Lets runs that `manifest` names count instead of the memory that was frozen before `until`. Returns the offset
    /// before which everything is counted.
    pub(crate) fn flushed(
        &self,
        written: Vec<(StoreId, Vec<OpenRun>)>,
        until: Offset,
        manifest: &Manifest,
    ) -> Offset {
        let mut newest = self.newest.write();
        let snapshot = newest.snapshot_mut();
        for (id, runs) in written {
            if let Some(store) = snapshot.ring.store_mut(id) {
                store.flushed(runs.into(), until);
            }
        }
        for store in snapshot.ring.stores_mut() {
            store.flushed = store.flushed.max(until);
        }
        // The manifest lists all that were known when it was written, but for those that nothing holds any more.
        let listed = &manifest.intake.erasures;
        Arc::make_mut(&mut snapshot.erasures)
            .retain(|user, at| at >= until.sequence || listed.erased_at(user).is_some());
        snapshot.manifest = Arc::new(manifest.clone());
        snapshot.applied()
    }

    /// Lets the files of a manifest that another node committed count, instead of memory that was frozen before its
    /// runs were written, and of delta stores that it cleared.
    pub(crate) fn follow_manifest(&self, files: NewFiles, manifest: &Manifest) {
        let mut newest = self.newest.write();
        let snapshot = newest.snapshot_mut();
        let written_until = manifest.intake.log_until();
        let named: Vec<StoreId> = files.stores.iter().map(|(id, ..)| *id).collect();
        // The other node did not know a delta store that was opened later.
        let stores = snapshot.ring.stores();
        let cleared = stores.filter(|store| store.opened.sequence < written_until);
        let cleared = cleared
            .map(|store| store.id)
            .filter(|id| !named.contains(id));
        for id in cleared.collect::<Vec<_>>() {
            snapshot.ring.remove(id);
        }
        for (id, runs, flushed) in files.stores {
            if let Some(store) = snapshot.ring.store_mut(id) {
                store.flushed(runs.into(), flushed);
                store.flushed = store.flushed.max(flushed);
            }
        }
        let listed = &manifest.intake.erasures;
        Arc::make_mut(&mut snapshot.erasures)
            .retain(|user, at| at >= written_until || listed.erased_at(user).is_some());
        snapshot.archive = files.archive;
        snapshot.name(manifest);
    }

    /// Lets the archive of `manifest` count instead of the delta stores in `cleared`, in one step.
    pub(crate) fn publish(
        &self,
        archive: Arc<ArchiveFiles>,
        manifest: &Manifest,
        cleared: &[StoreId],
    ) {
        let mut newest = self.newest.write();
        let snapshot = newest.snapshot_mut();
        for id in cleared {
            snapshot.ring.remove(*id);
        }
        snapshot.archive = archive;
        snapshot.name(manifest);
    }

    /// Shows a manifest that changes no count.
    pub(crate) fn name(&self, manifest: &Manifest) {
        self.newest.write().snapshot_mut().name(manifest);
    }

    /// Reads `open` instead of the run with the same name.
    pub(crate) fn reopened(&self, open: &OpenRun, archive: Arc<ArchiveFiles>) {
        self.books.forget(&open.entry.name);
        let mut newest = self.newest.write();
        let snapshot = newest.snapshot_mut();
        snapshot.archive = archive;
        for store in snapshot.ring.stores_mut() {
            let runs = store.runs.iter().cloned();
            let reopened = runs.map(|run| match run.entry.name == open.entry.name {
                true => open.clone(),
                false => run,
            });
            store.runs = reopened.collect();
        }
    }

    /// Replaces all runs of a delta store by memory that holds the same counts, which are those before `until`.
    pub(crate) fn recounted(&self, id: StoreId, delta: Arc<Delta>, until: Offset) {
        let mut newest = self.newest.write();
        let snapshot = newest.snapshot_mut();
        // The records of later erasures were not read.
        delta.erase(&snapshot.erasures.from(until.sequence));
        if let Some(store) = snapshot.ring.store_mut(id) {
            store.runs = Arc::default();
            store.put_frozen(delta, until.sequence);
        }
    }

    fn folding(&self) -> MutexGuard<'_, ()> {
        // A panic while the lock was held ends the process (`ops/` sees to it). A test that goes on sees the state that
        // the panic left, which is never half of a commit.
        self.folding.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The flushed runs of all stores in a snapshot.
fn flushed_runs(snapshot: &Snapshot) -> Vec<Arc<Run>> {
    let stores = snapshot.ring.stores();
    let runs = stores.flat_map(|store| store.runs.iter());
    runs.map(|run| Arc::clone(&run.run)).collect()
}
