//! The intake: batches are judged, written to the log, made durable, and counted.
//!
//! [`Intake`] owns the log, the remembered ids and the producers, under one lock that a group commit holds from its
//! first batch until everything is counted. [`Intake`] also owns the [`Live`] counts, so the locks of [`Live`] are
//! taken after this one. The lock is not held while a record of an earlier batch is read from the log.
//!
//! This folder knows nothing of which files count, or of how queries are answered.

mod api_keys;
mod batch;
mod bounds;
mod changes;
mod commit;
mod consumed;
mod deletes;
mod duties;
mod expiry;
mod follow;
mod freeze;
mod group;
mod handed;
mod history;
mod ids;
mod judge;
mod log_copy;
mod open_ids;
mod owned;
mod pack;
mod part;
mod plausible;
mod producers;
mod queue;
mod replay;
mod rules;
mod verdict;
mod voids;

use std::sync::{Arc, PoisonError};

use tallyring_archive::{ERASURES_MAX, IdRunEntry, Manifest};
use tallyring_records::{Accepted, Offset, Record, Schema, UserKey};

use crate::delta::OpenRun;
use crate::error::{Error, Refusal, Result};
use crate::holds::Holds;
use crate::oplog::{Log, LogCopy, LogCopyStatus, LogForecast};
use crate::options::{Options, World};
use crate::role::NodeStatus;
use crate::sync::{Mutex, MutexGuard};
use crate::view::Live;

pub use batch::{Batch, BatchKey, Counted, RefusedItem};
pub use consumed::Advance;
pub use handed::{SchemaHashes, decode_outcome, encode_outcome};
pub use history::{ID_COUNTS_MAX, IdCount, IdHistory, Logged};
pub use judge::{ListStatus, RulesStatus};
pub use rules::store_list;
pub use voids::{VoidOrder, Voided};

pub(crate) use expiry::{is_after, log_reaches_back};
pub(crate) use follow::Followed;
pub(crate) use freeze::Frozen;
pub(crate) use ids::{IdRun, Ids, compact, oldest_ms, write_run};
pub(crate) use open_ids::OpenIds;
pub(crate) use owned::{id_bits, voided_bits};
pub(crate) use queue::{DeclaredGrowth, Queue, QueueLimits, Taker};
pub(crate) use rules::content as list_content;

use api_keys::ApiKeys;
use bounds::Bounds;
use consumed::NextOffsets;
use deletes::Deletes;
use judge::Judge;
pub use part::Part;
use part::PartCell;
use plausible::Doubt;
use producers::Producers;

pub(crate) const HOUR_MS: i64 = 3_600_000;

/// The intake of one data directory.
pub struct Intake {
    world: World,
    options: Options,
    writer: Mutex<Writer>,
    /// Held while a segment of the log is packed; taken before `writer`.
    packing: Mutex<pack::Redactions>,
    /// Held while another schema is checked and put in force; taken before `writer`.
    declaring: Mutex<()>,
    /// The second copy of the log. Its locks are taken after `writer`, or without it.
    log_copy: Option<LogCopy>,
    live: Live,
    /// Its locks are taken after `writer`, or without it.
    holds: Holds,
    /// Its lock is taken after `writer`, or without it.
    keys: ApiKeys,
    /// Its lock is taken after `writer`, or without it.
    deletes: Deletes,
    part: PartCell,
}

/// The state that the lock of the intake protects.
struct Writer {
    /// None when the store is open for reading only.
    log: Option<Box<dyn Log>>,
    ids: Ids,
    producers: Producers,
    consumed: NextOffsets,
    judge: Judge,
    payload: Vec<u8>,
    bounds: Bounds,
    answered: AnswerCache,
    /// Records since the last flush.
    unflushed: u64,
    /// Why the last group could not be written; none where it was written.
    refused: Option<Refusal>,
    /// The time since when the clock is doubted; none while the clock is plausible.
    doubt: Option<Doubt>,
    /// Time of the last appended record, or of the opening of the log, Unix milliseconds.
    last_append_ms: i64,
    /// Elapsed time at the last look whether another node took the log over, milliseconds.
    looked_ms: i64,
}

/// Bodies and answers of recent batches, by the sequence number of the [`Record::Batch`] that holds them. Retries come
/// soon and often together, so the log is not read for each of them.
type AnswerCache = quick_cache::unsync::Cache<u64, (u128, Accepted)>;
/// Batches that the cache of answers holds, at most.
const ANSWERED_MAX: usize = 1_024;

/// State of the intake, for people and metrics.
pub(crate) struct IntakeStatus {
    /// Records before this sequence number are durable.
    pub durable: u64,
    pub unflushed: u64,
    pub oplog_bytes: u64,
    pub forecast: LogForecast,
    pub log_copy: Option<LogCopyStatus>,
    pub ids_in_memory: usize,
    pub ids_bytes: usize,
    pub is_clock_doubted: bool,
    /// Last time at which the clock was plausible, Unix milliseconds.
    pub plausible_ms: Option<i64>,
}

impl Intake {
    /// Begins with the state that a manifest names. [`Intake::open_log`] then opens the log for writing.
    pub(crate) fn new(
        world: World,
        options: Options,
        manifest: &Manifest,
        ids: Ids,
        live: Live,
        holds: Holds,
    ) -> Self {
        let mut bounds = Bounds::new();
        let runs = manifest.intake.stores.iter().flat_map(|store| &store.runs);
        let runs = runs.chain(manifest.archive.all_sources());
        runs.for_each(|run| bounds.add_run(run));
        let writer = Writer {
            log: None,
            ids,
            producers: Producers::restore(&manifest.intake.ids.producers),
            consumed: NextOffsets::of(manifest),
            judge: Judge::default(),
            payload: Vec::new(),
            bounds,
            answered: AnswerCache::new(ANSWERED_MAX),
            unflushed: 0,
            refused: None,
            doubt: None,
            last_append_ms: world.clock.now_ms(),
            looked_ms: i64::MIN,
        };
        Self {
            world,
            options,
            writer: Mutex::new(writer),
            packing: Mutex::default(),
            declaring: Mutex::default(),
            log_copy: None,
            live,
            holds,
            keys: ApiKeys::of(manifest),
            deletes: Deletes::of(manifest),
            part: PartCell::new(),
        }
    }

    /// The holds of all users.
    pub fn holds(&self) -> &Holds {
        &self.holds
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

    /// True when the store was opened for reading only, or follows the log of another node.
    pub fn is_read_only(&self) -> bool {
        self.epoch().is_none()
    }

    /// The epoch in which the store writes its log; none where it does not. Waits for nobody.
    pub fn epoch(&self) -> Option<u32> {
        self.part.epoch()
    }

    /// The part of the store in its log. Waits for nobody.
    pub(crate) fn part(&self) -> Part {
        self.part.part()
    }

    /// The live nodes that share the store, as this one heard about a second ago, by name; empty for a store of one
    /// server.
    pub fn nodes(&self) -> Arc<[NodeStatus]> {
        self.part.nodes()
    }

    /// Notes the live nodes.
    pub(crate) fn note_nodes(&self, nodes: Vec<NodeStatus>) {
        self.part.note_nodes(nodes);
    }

    /// True while a rebuild that this node ordered waits for a node that claims it.
    pub(crate) fn has_order(&self) -> bool {
        self.part.has_order()
    }

    /// Notes whether a rebuild that this node ordered waits for a node that claims it: the others are told within some
    /// two seconds, and look for orders only then.
    pub fn note_order(&self, waits: bool) {
        self.part.note_order(waits);
    }

    /// Notes the address of the node that writes the log that this one follows.
    pub(crate) fn note_writer(&self, address: Option<&str>) {
        self.part.note_writer(address);
    }

    /// Notes the declaration that this node makes each time it begins to write the log; none leaves the one in force.
    /// A list that is put in force later has its new content there, too.
    pub fn intend(&self, schema: Option<Schema>) {
        self.part.intend(schema);
    }

    /// The declaration that this node makes when it begins to write the log.
    pub(crate) fn intended(&self) -> Option<Schema> {
        self.part.intended()
    }

    /// True when memory, or the number of records that a restart would replay, is above its limit.
    pub fn wants_flush(&self) -> bool {
        let unflushed = self.writer().unflushed;
        unflushed >= self.options.replay_records_max
            || self.unflushed_bytes() >= self.options.delta_bytes_max
    }

    /// True when memory would come so far above its limit by `growth` bytes more that writing must wait for a flush.
    pub(crate) fn must_flush(&self, growth: usize) -> bool {
        let unflushed = self.unflushed_bytes();
        let is_above = unflushed >= 2 * self.options.delta_bytes_max;
        let grown = unflushed.saturating_add(growth as u64);
        is_above || (unflushed > 0 && grown > self.options.unflushed_bytes_max())
    }

    /// Memory of counts and ids that no run holds, bytes.
    pub(crate) fn unflushed_bytes(&self) -> u64 {
        let ids = self.writer().ids.bytes() as u64;
        ids + self.live.unflushed_bytes()
    }

    /// State of the intake, where the disk has `free_bytes`.
    pub(crate) fn status(&self, free_bytes: Option<u64>) -> IntakeStatus {
        let now_ms = self.world.clock.now_ms();
        let writer = self.writer();
        let log = writer.log.as_deref();
        IntakeStatus {
            durable: log.map_or(0, |log| log.durable()),
            unflushed: writer.unflushed,
            oplog_bytes: log.map_or(0, |log| log.segments().bytes()),
            forecast: log.map_or(LogForecast::default(), |log| {
                let segments = log.segments();
                let held = self.held(&segments.list()[0], now_ms);
                segments.forecast((now_ms, self.options.log_days()), held, free_bytes)
            }),
            log_copy: (self.log_copy.as_ref().zip(log)).map(|(copy, log)| copy.status(log, now_ms)),
            ids_in_memory: writer.ids.in_memory(),
            ids_bytes: writer.ids.bytes(),
            is_clock_doubted: writer.doubt.is_some(),
            plausible_ms: log.and_then(|log| log.clock().last_ms()),
        }
    }

    /// Closes the delta stores that are due: every day before today, and late stores that count something. Fails when
    /// the log takes no more writes.
    pub(crate) fn cut_due(&self) -> Result<()> {
        let mut writer = self.writer();
        let stores = self.live.snapshot().ring.due();
        if stores.is_empty() {
            return Ok(());
        }
        self.append_and_follow(&mut writer, &Record::Cut { stores })?;
        // Yesterday gets a further store before anything else is counted.
        self.turn(&mut writer)
    }

    /// Erases users: none of their actions counts from here on, and those that come later count anew. Counts and
    /// estimates of users stay. Files lose the actions with the rebuilds that follow. Returns the offset behind the
    /// erasure. Fails when too many users wait to
    /// leave the files, or when the log takes no more writes; nothing is erased then.
    pub fn erase(&self, users: &[String]) -> Result<Offset> {
        let key = |user: &String| UserKey::of(self.live.keys(), user);
        let users: Vec<UserKey> = users.iter().map(key).collect();
        let mut writer = self.writer();
        let waiting = self.live.erasures().len();
        if waiting + users.len() > ERASURES_MAX {
            return Err(Error::Erasures { waiting });
        }
        let record = Record::Erase { users };
        let after = self.append_one(&mut writer, &record)?;
        if let Record::Erase { users } = &record {
            self.live.erase(users, after);
        }
        Ok(after)
    }

    /// Lets the runs of `manifest` count instead of the memory that was frozen before `until`, in one step.
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
        (writer.ids).adopt(fresh_ids, runs, until.sequence, known_from_ms);
        writer.unflushed = applied.sequence.saturating_sub(until.sequence);
    }

    /// Opens the id runs that are not open yet. They are read without the lock, because filters take a moment to build.
    pub(crate) fn open_fresh_ids(&self, entries: &[IdRunEntry]) -> Result<Vec<IdRun>> {
        let (new, known_from_ms) = {
            let writer = self.writer();
            (writer.ids.not_open(entries), self.known_from_ms(&writer))
        };
        let blobs = self.world.blobs();
        let open = |entry: &IdRunEntry| IdRun::open(&blobs, entry.clone(), known_from_ms);
        let opened: tallyring_archive::Result<Vec<IdRun>> = new.into_iter().map(open).collect();
        Ok(opened?)
    }

    /// The arrival of the newest id of no identity, where a manifest cannot tell that by these runs.
    pub(crate) fn unowned_until_ms(&self, runs: &[IdRunEntry]) -> Option<i64> {
        self.writer().ids.unowned_until_ms(runs)
    }

    /// Raises the bounds of counters by the counts of `runs`, before these counts are added.
    pub(crate) fn raise_bounds(&self, runs: &[tallyring_archive::RunEntry]) {
        let mut writer = self.writer();
        runs.iter().for_each(|run| writer.bounds.add_run(run));
    }

    /// Notes durably in the log that a manifest is committed, and final versions that it names, in one frame. Where the
    /// log takes no more writes, the note is missing, and only the loss of that manifest would stay unnoticed; the next
    /// commit or start notes again. Returns true where it is noted.
    pub(crate) fn note_manifest(&self, number: u64, finals: Vec<Record>) -> bool {
        let mut writer = self.writer();
        // A note is found by the first record of a frame.
        let mut records = vec![Record::Manifest { number }];
        let tells_of_finals = !finals.is_empty();
        records.extend(finals);
        match self.append_all(&mut writer, &records) {
            Ok(after) => self.live.pass(after),
            Err(error) => {
                tracing::warn!(number, %error, "the commit of this manifest could not be noted in the log");
                return false;
            }
        }
        if tells_of_finals && let Err(error) = self.copy_now(&mut writer, u64::MAX) {
            tracing::warn!(number, %error, "the second copy of the log lacks a record of final numbers for now");
        }
        true
    }

    /// Tells the log of something that changes no count. One frame holds the records, and the second copy has them at
    /// once where it can. Fails when the log takes no more writes.
    pub(crate) fn tell(&self, records: &[Record]) -> Result<()> {
        let mut writer = self.writer();
        let after = self.append_all(&mut writer, records)?;
        self.live.pass(after);
        if let Err(error) = self.copy_now(&mut writer, u64::MAX) {
            tracing::warn!(%error, "the second copy of the log lacks a record of final numbers for now");
        }
        Ok(())
    }

    /// Lets a segment take no more records that is to go, or to get pseudonyms, before it is full: one with records
    /// from before an erasure, and where there is a journal, one that is a day old. Returns true where one ended.
    pub(crate) fn end_segment_with_persons(&self) -> Result<bool> {
        let mut writer = self.writer();
        let now_ms = self.world.clock.now_ms();
        let day_ago_ms = self.believed_now_ms(&writer) - 24 * HOUR_MS;
        let log = writer.log()?;
        let begun_ms = log.segments().list().last().map(|newest| newest.created_ms);
        let is_for_journal =
            self.options.journal_days > 0 && begun_ms.is_some_and(|begun| begun < day_ago_ms);
        let has_erased = self.live.erasures().until() > log.durable_end().newest;
        if !has_erased && !is_for_journal {
            return Ok(false);
        }
        match log.begin_segment(now_ms) {
            // Old segments make room; the next night tries again.
            Err(error) if error.is_no_room() => Ok(false),
            begun => begun.map(|()| true).map_err(Into::into),
        }
    }

    /// The time since when runs of ids are kept (Unix milliseconds): for as long as the log has records of their ids,
    /// and longer where the configuration wants that.
    pub(crate) fn ids_from_ms(&self) -> i64 {
        let writer = self.writer();
        let kept_days = i64::from(self.options.ids_days);
        let kept_ms = self.believed_now_ms(&writer) - kept_days * 24 * HOUR_MS;
        // A clock may have been ahead when the oldest segment was begun.
        let segments = writer.log.iter().flat_map(|log| log.segments().list());
        let begun_ms = segments.map(|segment| segment.created_ms).min();
        let from_ms = self.oldest_known_ms(&writer).min(kept_ms);
        begun_ms.map_or(from_ms, |begun_ms| begun_ms.min(from_ms))
    }

    /// The time since when the log is kept (Unix milliseconds). A batch's answer is read from the log for as long as
    /// its key is remembered.
    pub(crate) fn log_from_ms(&self) -> i64 {
        self.oldest_known_ms(&self.writer())
    }

    fn oldest_known_ms(&self, writer: &Writer) -> i64 {
        let log_hours = i64::from(self.options.log_days()) * 24;
        let now_ms = self.believed_now_ms(writer);
        now_ms.saturating_sub(log_hours * HOUR_MS)
    }

    /// The time since when ids are remembered, Unix milliseconds.
    fn known_from_ms(&self, writer: &Writer) -> i64 {
        self.believed_now_ms(writer) - i64::from(self.options.id_hours) * HOUR_MS
    }

    fn writer(&self) -> MutexGuard<'_, Writer> {
        // A panic while the lock was held ends the process (`ops/` sees to it). A test that goes on sees the state that
        // the panic left, which is never half of a commit.
        self.writer.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn declaring(&self) -> MutexGuard<'_, ()> {
        self.declaring
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

impl Writer {
    fn log(&mut self) -> Result<&mut dyn Log> {
        match &mut self.log {
            Some(log) => Ok(&mut **log),
            None => Err(Error::ReadOnly),
        }
    }
}
