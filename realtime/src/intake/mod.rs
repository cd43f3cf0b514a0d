//! The way in: what comes is judged, written to the log, made durable, and counted.
//!
//! [`Intake`] owns the log, the ids and the producers that are known, and one lock over them, which a group commit holds
//! from its first batch until everything is counted. It owns the [`Live`] counts too, whose locks are therefore taken after
//! its own. No lock of it is held while the log is read.
//!
//! This folder knows nothing of manifests, of how runs are written, or of how queries are answered.

mod batch;
mod bounds;
mod commit;
mod duties;
mod group;
mod history;
mod ids;
mod log_copy;
mod open_ids;
mod plausible;
mod producers;
mod queue;
mod replay;
mod verdict;

use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use hashbrown::HashMap;
use tallyring_archive::{IdRunEntry, Manifest, ProducerEntry};
use tallyring_records::{Accepted, Offset, Record};

use crate::delta::OpenRun;
use crate::error::{Error, Refusal, Result};
use crate::oplog::{Log, LogCopy, LogCopyStatus};
use crate::options::{Options, World};
use crate::sync::{Mutex, MutexGuard};
use crate::view::{FrozenStore, Live};

pub use batch::{Batch, BatchKey, RefusedItem};
pub use history::{IdHistory, Logged};

pub(crate) use ids::{IdRun, Ids, compact, write_run};
pub(crate) use open_ids::OpenIds;
pub(crate) use queue::{Queue, Taker};

use bounds::Bounds;
use ids::Seen;
use plausible::Doubt;
use producers::Producers;

/// Domains of [`LongKeys::identity`](tallyring_records::LongKeys::identity).
const ID_DOMAIN: u8 = 1;
const BATCH_KEY_DOMAIN: u8 = 2;
const BATCH_BODY_DOMAIN: u8 = 3;
const REFUSED_DOMAIN: u8 = 4;
const AGAIN_DOMAIN: u8 = 5;
const PRODUCER_DOMAIN: u8 = 6;

const HOUR_MS: i64 = 3_600_000;

/// The way in of one data directory.
pub struct Intake {
    world: World,
    options: Options,
    writer: Mutex<Writer>,
    /// Its locks are taken after `writer`, or without it.
    log_copy: Option<LogCopy>,
    live: Live,
}

/// What one lock protects.
struct Writer {
    /// None when the store is open for reading only.
    log: Option<Log>,
    ids: Ids,
    producers: Producers,
    payload: Vec<u8>,
    bounds: Bounds,
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

/// Bodies of batches and what they were answered, by the number of the record that says so. Retries come soon, and often
/// together: the log is then not read for each.
type Answered = quick_cache::unsync::Cache<u64, (u128, Accepted)>;
/// Batches of which that is kept.
const ANSWERED_MAX: usize = 1_024;

/// Everything in memory, set aside at one durable offset to be flushed.
pub(crate) struct Frozen {
    /// Everything before this offset is in what was set aside or in runs.
    pub until: Offset,
    /// Memory of counts.
    pub stores: Vec<FrozenStore>,
    /// Ids that are in no run.
    pub ids: Option<Arc<HashMap<u128, Seen>>>,
    /// How far all producers have come.
    pub producers: Vec<ProducerEntry>,
    /// Time of the newest event of each type.
    pub newest_events: BTreeMap<String, i64>,
}

/// The state of the way in, for people.
pub(crate) struct IntakeStatus {
    /// Records before this number are durable.
    pub durable: u64,
    pub unflushed: u64,
    pub oplog_bytes: u64,
    pub log_copy: Option<LogCopyStatus>,
    pub ids_in_memory: usize,
    pub ids_bytes: usize,
    pub is_clock_doubted: bool,
    /// When the clock was plausible last, Unix milliseconds.
    pub plausible_ms: Option<i64>,
}

impl Intake {
    /// The way in as a manifest says, whose log is not open yet. It is opened for writing by [`Intake::open_log`].
    pub(crate) fn new(
        world: World,
        options: Options,
        manifest: &Manifest,
        ids: Ids,
        live: Live,
    ) -> Self {
        let mut bounds = Bounds::new();
        let runs = manifest.intake.stores.iter().flat_map(|store| &store.runs);
        let runs = runs.chain(manifest.archive.all_sources());
        runs.for_each(|run| bounds.add_run(run));
        let writer = Writer {
            log: None,
            ids,
            producers: Producers::restore(&manifest.intake.ids.producers),
            payload: Vec::new(),
            bounds,
            answered: Answered::new(ANSWERED_MAX),
            unflushed: 0,
            refused: None,
            doubt: None,
            last_append_ms: world.clock.now_ms(),
        };
        Self {
            world,
            options,
            writer: Mutex::new(writer),
            log_copy: None,
            live,
        }
    }

    /// The counts.
    pub fn live(&self) -> &Live {
        &self.live
    }

    /// The outside world.
    pub fn world(&self) -> &World {
        &self.world
    }

    /// The limits.
    pub fn options(&self) -> &Options {
        &self.options
    }

    /// True when the store was opened for reading only.
    pub fn is_read_only(&self) -> bool {
        self.writer().log.is_none()
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

    /// Memory of counts and ids that are in no run, bytes.
    pub(crate) fn unflushed_bytes(&self) -> u64 {
        let ids = self.writer().ids.bytes() as u64;
        ids + self.live.unflushed_bytes()
    }

    /// The state of the way in.
    pub(crate) fn status(&self) -> IntakeStatus {
        let now_ms = self.world.clock.now_ms();
        let writer = self.writer();
        let log = writer.log.as_ref();
        IntakeStatus {
            durable: log.map_or(0, |log| log.durable()),
            unflushed: writer.unflushed,
            oplog_bytes: log.map_or(0, |log| log.bytes()),
            log_copy: (self.log_copy.as_ref().zip(log)).map(|(copy, log)| copy.status(log, now_ms)),
            ids_in_memory: writer.ids.in_memory(),
            ids_bytes: writer.ids.bytes(),
            is_clock_doubted: writer.doubt.is_some(),
            plausible_ms: log.and_then(|log| log.plausible_ms()),
        }
    }

    /// The counts, to change a declaration while nobody reads yet.
    pub(crate) fn live_mut(&mut self) -> &mut Live {
        &mut self.live
    }

    /// Opens the way in for writing.
    pub(crate) fn open_log(&mut self, log: Log) {
        self.writer().log = Some(log);
    }

    /// Closes the stores that are due: every day before today, and late stores that count something.
    ///
    /// # Errors
    /// When the log takes no more writes.
    pub(crate) fn cut_due(&self) -> Result<()> {
        let mut writer = self.writer();
        let stores = self.live.snapshot().ring.due();
        if stores.is_empty() {
            return Ok(());
        }
        let record = Record::Cut { stores };
        let after = self.append_one(&mut writer, &record)?;
        self.live.follow(&record, after);
        Ok(())
    }

    /// Sets all memory aside at one durable offset. It counts until [`Intake::flushed`].
    ///
    /// # Errors
    /// When the log cannot be synced.
    pub(crate) fn freeze(&self) -> Result<Frozen> {
        let mut writer = self.writer();
        writer.log()?.commit()?;
        let ids = writer.ids.freeze();
        let oldest_ms = self.oldest_known_ms(&writer);
        writer.producers.forget(oldest_ms);
        let producers = writer.producers.entries();
        let frozen = self.live.freeze();
        Ok(Frozen {
            until: frozen.until,
            stores: frozen.stores,
            ids,
            producers,
            newest_events: frozen.newest_events,
        })
    }

    /// Lets the runs of `manifest` count in the place of what was set aside before `until`, in one step.
    pub(crate) fn flushed(
        &self,
        written: Vec<(tallyring_records::StoreId, Vec<OpenRun>)>,
        fresh_ids: Vec<IdRun>,
        until: Offset,
        manifest: &Manifest,
    ) {
        let mut writer = self.writer();
        let applied = self.live.flushed(written, until, manifest);
        let known_from_ms = self.known_from_ms(&writer);
        let runs = &manifest.intake.ids.runs;
        writer.ids.adopt(fresh_ids, runs, known_from_ms);
        writer.unflushed = applied.sequence.saturating_sub(until.sequence);
    }

    /// Opens those of the id runs that are not open yet. It reads them without the lock, as filters take a moment to build.
    ///
    /// # Errors
    /// When one cannot be read.
    pub(crate) fn open_fresh_ids(&self, entries: &[IdRunEntry]) -> Result<Vec<IdRun>> {
        let (new, known_from_ms) = {
            let writer = self.writer();
            let is_new = |entry: &&IdRunEntry| !writer.ids.has(entry);
            let new: Vec<&IdRunEntry> = entries.iter().filter(is_new).collect();
            (new, self.known_from_ms(&writer))
        };
        let blobs = self.world.blobs();
        let open = |entry: &IdRunEntry| IdRun::open(&blobs, entry.clone(), known_from_ms);
        let opened: tallyring_archive::Result<Vec<IdRun>> = new.into_iter().map(open).collect();
        Ok(opened?)
    }

    /// Keeps counters that `runs` will add to below their limit.
    pub(crate) fn raise_bounds(&self, runs: &[tallyring_archive::RunEntry]) {
        let mut writer = self.writer();
        runs.iter().for_each(|run| writer.bounds.add_run(run));
    }

    /// Notes in the log that a manifest is committed, durably. Where the log takes no more writes, only a step back would
    /// not be noticed: the next commit or start notes again.
    pub(crate) fn note_manifest(&self, number: u64) {
        let mut writer = self.writer();
        match self.append_one(&mut writer, &Record::Manifest { number }) {
            Ok(after) => self.live.pass(after),
            Err(error) => {
                tracing::warn!(number, %error, "the log does not note that this manifest was committed");
            }
        }
    }

    /// Removes log segments that nothing needs any more: they begin before `needed`, are out of the id window, and old
    /// enough. Returns how many.
    ///
    /// # Errors
    /// When the disk refuses.
    pub(crate) fn expire_log(&self, needed: u64) -> Result<usize> {
        let older_than_ms = self.oldest_known_ms(&self.writer());
        let mut removed = 0;
        loop {
            let one = self.writer().log()?.trim(needed, older_than_ms, 1)?;
            if one == 0 {
                return Ok(removed);
            }
            removed += one;
            // Writers that wait go first: each removal is a sync of the directory.
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Since when the log is kept and tells what became of an id, Unix milliseconds: a batch's verdict is read from the
    /// log as long as its key is remembered.
    pub(crate) fn log_from_ms(&self) -> i64 {
        self.oldest_known_ms(&self.writer())
    }

    fn oldest_known_ms(&self, writer: &Writer) -> i64 {
        let log_hours = i64::from(self.options.log_days()) * 24;
        let now_ms = self.believed_now_ms(writer);
        now_ms.saturating_sub(log_hours * HOUR_MS)
    }

    /// Since when ids are known, Unix milliseconds.
    fn known_from_ms(&self, writer: &Writer) -> i64 {
        self.believed_now_ms(writer) - i64::from(self.options.id_hours) * HOUR_MS
    }

    fn writer(&self) -> MutexGuard<'_, Writer> {
        // A panic while the lock was held ends the process (ops sees to it); a test that goes on
        // sees the state the panic left, which is never half of a commit.
        self.writer.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Writer {
    fn log(&mut self) -> Result<&mut Log> {
        self.log.as_mut().ok_or(Error::ReadOnly)
    }
}
