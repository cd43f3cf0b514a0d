//! The store: one data directory, live.
//!
//! Locks, always taken in this order: `root` (a change of the manifest, from its first file to
//! its commit), `writer` (the log and the ids, for one group commit), `folding` (for as long as layers of memory
//! are folded), `live` (the newest view, for as long as it is changed). A query takes a view under `live`, in constant time,
//! and reads memory and files of it after.

mod bounds;
mod change;
mod commit;
mod datasets;
mod duties;
mod files;
mod gather;
mod group;
mod heavy;
mod history;
mod lateness;
mod log_copy;
mod minutes;
mod open;
mod open_ids;
mod plausible;
mod points;
mod publish;
mod ranking;
mod read;
mod reader;
mod recent;
mod recount;
mod recount_store;
mod replay;
mod rules;
mod scrub;
mod show;
mod standing;
mod status;
mod top;
mod users;
mod verdict;
mod view;

use std::collections::BTreeSet;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, PoisonError};

use tallyring_archive::{BlockCache, Manifest};
use tallyring_records::{Accepted, LongKeys, Schema, StoreId};

use crate::budget::ReadBudget;
use crate::delta::DeltaStore;
use crate::error::{Error, Refusal, Result};
use crate::ids::Ids;
use crate::oplog::{LogCopy, Oplog};
use crate::options::{Options, World};
use crate::producers::Producers;
use crate::sync::{Mutex, MutexGuard, RwLock, RwLockWriteGuard};

pub use commit::{Batch, BatchKey, RefusedItem};
pub use datasets::check_dataset_name;
pub use history::{IdHistory, Logged};
pub use open::Recovery;
pub use ranking::{NamespaceTotals, Ranking, TopKey};
pub use read::{Read, Series, ValuePoint};
pub use reader::Reader;
pub use recent::{RECENT_SECONDS_MAX, Seconds};
pub use recount::Recount;
pub use standing::SteppedBack;
pub use status::{Status, StoreStatus};
pub use users::UsersView;

use bounds::Bounds;
use files::Files;
use plausible::Doubt;
use recent::Recent;
use view::{Live, View};

/// One data directory: increments in, counts out.
pub struct Store {
    world: World,
    options: Options,
    keys: LongKeys,
    cache: BlockCache,
    root: Mutex<Root>,
    writer: Mutex<Writer>,
    /// Its locks are taken after `writer`, or without it.
    log_copy: Option<LogCopy>,
    live: RwLock<Live>,
    /// The declaration in force: no other while it is open.
    schema: Arc<Schema>,
    /// The last minute by the second; locked without `live`, and last.
    recent: RwLock<Recent>,
    /// Memory of all reads on their way.
    read_budget: Arc<ReadBudget>,
    /// Layers of memory are merged and taken away by its holder alone; locked after `writer` and before `live`.
    folding: Mutex<()>,
    /// False when no store has anything to fold. Changed under the lock of `live`.
    has_arrived: AtomicBool,
    /// Names of files that were found damaged; locked alone.
    damaged: Mutex<BTreeSet<String>>,
}

/// The manifest as it is committed, and the open files it names.
struct Root {
    manifest: Manifest,
    files: Files,
    /// Why this process must not change the manifest any more.
    uncertain: Option<String>,
    /// Whether commits are noted in the log: not while it is replayed, when its end must stay where it is.
    notes_commits: bool,
}

/// The way in.
struct Writer {
    /// None when the store is open for reading only.
    log: Option<Oplog>,
    ids: Ids,
    producers: Producers,
    payload: Vec<u8>,
    bounds: Bounds,
    /// By the number of its record, lately asked for or written: a batch's body and what it was answered.
    answered: Answered,
    /// Records since the last flush.
    unflushed: u64,
    /// Why the last group could not be written, if it could not.
    refused: Option<Refusal>,
    /// Since when the clock has not been plausible.
    doubt: Option<Doubt>,
    /// When the last record was appended (Unix milliseconds), or the log was opened.
    last_append_ms: i64,
}

/// Retries come soon, and often together: the log is then not read for each.
type Answered = quick_cache::unsync::Cache<u64, (u128, Accepted)>;
/// Batches of which that is kept.
const ANSWERED_MAX: usize = 1_024;

impl Store {
    /// The declaration in force.
    pub fn schema(&self) -> Arc<Schema> {
        Arc::clone(&self.schema)
    }

    /// Blocks of runs that reads had to read from files since the start.
    pub fn blocks_decoded(&self) -> u64 {
        self.cache.decoded()
    }

    /// The outside world it was opened with.
    pub fn world(&self) -> &World {
        &self.world
    }

    /// What all reads may hold, and what they hold.
    pub fn read_budget(&self) -> &Arc<ReadBudget> {
        &self.read_budget
    }

    /// Its limits.
    pub fn options(&self) -> &Options {
        &self.options
    }

    /// True when it was opened with [`Store::open_read_only`].
    pub fn is_read_only(&self) -> bool {
        self.writer().log.is_none()
    }

    /// True when a day before today waits for its export, or was closed and is not published yet.
    pub fn has_due_day(&self) -> bool {
        let is_day = |id: &StoreId| matches!(id, StoreId::Day(_));
        let view = self.view();
        view.ring.due().iter().any(is_day)
            || view
                .ring
                .stores()
                .any(|store| is_day(&store.id) && store.cut.is_some())
    }

    /// Why this process can change the manifest no more, if so: it must be restarted.
    pub fn must_restart(&self) -> Option<String> {
        match self.root.try_lock() {
            Ok(root) => root.uncertain.clone(),
            // Whoever holds it for longer changes the manifest, which nobody begins who cannot.
            Err(_) => None,
        }
    }

    /// True when everything that was counted before `instant` (Unix seconds) is in the active generation: no day before
    /// it has a store any more, and nothing that came late waits to be merged.
    pub fn is_archived(&self, instant: i64) -> bool {
        let view = self.view();
        let waits = |store: &DeltaStore| match store.id {
            StoreId::Day(day) => day.start() < instant,
            StoreId::Late(_) => !store.is_empty(),
        };
        let pending_from = view.archive.pending_from;
        !view.ring.stores().any(waits) && pending_from.is_none_or(|from| from >= instant)
    }

    /// Since when a kept generation has hours (Unix seconds): earlier ones are folded into days. None where it has
    /// all.
    pub fn hours_from(&self, generation: u64) -> Option<i64> {
        self.view().archive.hours_from.get(&generation).copied()
    }

    /// The committed manifest.
    pub fn manifest(&self) -> Arc<Manifest> {
        Arc::clone(&self.view().manifest)
    }

    fn root(&self) -> MutexGuard<'_, Root> {
        // A panic while the lock was held ends the process (ops sees to it); a test that goes on
        // sees the state the panic left, which is never half of a commit.
        self.root.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn writer(&self) -> MutexGuard<'_, Writer> {
        self.writer.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What is counted now.
    fn view(&self) -> Arc<View> {
        self.live.read().view()
    }

    fn folding(&self) -> MutexGuard<'_, ()> {
        self.folding.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn live_mut(&self) -> RwLockWriteGuard<'_, Live> {
        self.live.write()
    }
}

impl Writer {
    fn log(&mut self) -> Result<&mut Oplog> {
        self.log.as_mut().ok_or(Error::ReadOnly)
    }
}
