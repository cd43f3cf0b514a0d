//! Builds a store from the manifest and the log.
//!
//! The log is open and whole before anything is counted. One thread reads the log, decodes its records and frees them.
//! Other threads count the records, each in shards of its own, in the order of the log. Memory has the same limits as
//! in service: when memory is full, the replayed counts are flushed and named in a manifest. So a start takes no more
//! memory than service does, and a start that is killed leaves less to do for the next one.

use std::panic::resume_unwind;

use rayon::ThreadPoolBuilder;
use tallyring_archive::Manifest;
use tallyring_records::{Offset, Record, RecordError, decode_all};
use tracing::Span;

use super::Store;
use crate::delta::Delta;
use crate::error::{Error, Result};
use crate::holds::Holds;
use crate::identity::Identity;
use crate::intake::{HOUR_MS, Ids, Intake, Logged, OpenIds};
use crate::ledger::{Files, Ledger};
use crate::oplog::{ApplyError, Frame, OplogError, ReadFrom};
use crate::options::{Options, World};
use crate::ring::Add;
use crate::sync::{channel, scope, sync_channel};
use crate::view::{Live, Snapshot};

/// Records that are handed over together; a frame is not divided.
const PART_RECORDS: usize = 16_384;
/// Share of the memory of deltas that one part may take, in bytes of the log: one in so many, within bounds. Five parts
/// are in memory at once, and each is several times as large when it is decoded.
const PARTS_OF_MEMORY: u64 = 64;
const PART_BYTES_MIN: u64 = 1 << 10;
const PART_BYTES_MAX: u64 = 4 << 20;
/// Parts that wait to be counted, at most.
const PARTS_WAITING: usize = 2;
/// Records from which on several threads count them.
const MANY_RECORDS: usize = 1_024;

/// A function that takes the frames of a log.
type Apply<'a> = &'a mut dyn FnMut(Frame<'_>) -> Result<(), ApplyError>;

/// A store that is being filled from the log.
pub(super) struct Replay<'s> {
    store: &'s mut Store,
    /// Sequence number from which on ids and producers are learned from the log.
    ids_from: u64,
    /// Sequence number from which on delta stores and schemas are learned from the log.
    counts_from: u64,
    from: u64,
    /// Number of records that were read from the log.
    pub replayed: u64,
    /// Number of the last manifest that the log notes, 0 without a note.
    pub noted: u64,
    /// Whether memory is frozen at the marks of another node.
    is_following: bool,
    /// True when the last flush failed, so that memory grows.
    flush_failed: bool,
}

impl Store {
    /// Opens the files that the manifest names, with nothing in memory. Fails when a run cannot be opened, or the
    /// manifest has no schema.
    pub(super) fn of_manifest(
        world: World,
        options: Options,
        identity: &Identity,
        manifest: Manifest,
    ) -> Result<Self> {
        let blobs = &world.blobs();
        // The log is not read yet, so ids may be remembered for too long; the next flush forgets them.
        let now_ms = world.clock.now_ms();
        let believed_ms = now_ms.min(manifest.plausible_ms());
        let known_from_ms = believed_ms.saturating_sub(i64::from(options.id_hours) * HOUR_MS);
        let mut files = Files::default();
        files.open_readable(blobs, &manifest)?;
        let ids = OpenIds::new(blobs, &manifest.intake.ids, known_from_ms)?;
        let mut manifest = manifest;
        manifest.intake.ids = ids.entry;
        let from = manifest
            .intake
            .counts_from()
            .unwrap_or(manifest.intake.log_from());
        let counts = files.counts(blobs, options.form(), (&manifest, from))?;
        Ok(Self::of_parts(
            (world, options),
            identity,
            (manifest, files),
            (counts, ids.ids),
        ))
    }

    /// Puts a store together that shows these counts, and knows these ids.
    pub(super) fn of_parts(
        (world, options): (World, Options),
        identity: &Identity,
        (manifest, files): (Manifest, Files),
        (counts, ids): (Snapshot, Ids),
    ) -> Self {
        let now = world.clock.now_ms().div_euclid(1_000);
        let counts = (counts, world.blobs());
        let live = Live::new(&options, identity, counts, now);
        let holds = Holds::new(options.holds_bytes_max, world.random);
        let intake = Intake::new(world, options, &manifest, ids, live, holds);
        Self {
            ledger: Ledger::new(manifest, files, intake),
        }
    }
}

impl<'s> Replay<'s> {
    /// Begins a replay into a store that has the state of its manifest.
    pub(super) fn new(store: &'s mut Store) -> Self {
        let manifest = store.manifest();
        Self {
            ids_from: manifest.intake.ids.flushed.sequence,
            counts_from: manifest
                .intake
                .counts_from()
                .unwrap_or(manifest.intake.log_from()),
            from: manifest.intake.log_from(),
            store,
            replayed: 0,
            noted: 0,
            is_following: false,
            flush_failed: false,
        }
    }

    /// As [`Self::new`], where another node writes the log.
    pub(super) fn following(store: &'s mut Store) -> Self {
        Self {
            is_following: true,
            ..Self::new(store)
        }
    }

    /// Reads the log from the offset where the runs end. `read` passes the frames from there on to its argument. Fails
    /// when memory is full and the replayed counts cannot be flushed.
    pub(super) fn read<T>(
        &mut self,
        read: impl FnOnce(ReadFrom, Apply<'_>) -> Result<T, OplogError>,
    ) -> Result<T> {
        let from = self.from;
        let part_bytes = self.store.options().delta_bytes_max / PARTS_OF_MEMORY;
        let part_bytes = part_bytes.clamp(PART_BYTES_MIN, PART_BYTES_MAX) as usize;
        scope(|scope| {
            let (hand_over, decoded) = sync_channel::<Vec<Logged>>(PARTS_WAITING);
            let (give_back, counted) = channel();
            let span = Span::current();
            let counting = scope.spawn(move || -> Result<()> {
                let _entered = span.entered();
                let mut threads = None;
                for part in decoded {
                    if threads.is_none() && part.len() >= MANY_RECORDS {
                        threads = ThreadPoolBuilder::new().build().ok();
                    }
                    match &threads {
                        Some(threads) => threads.install(|| self.count(&part, Delta::add_by_all)),
                        None => self.count(&part, Delta::add),
                    }
                    let _ = give_back.send(part);
                    self.make_room()?;
                }
                Ok(())
            });
            let (mut part, mut bytes) = (Vec::new(), 0);
            let read = read(ReadFrom::Sequence(from), &mut |frame| {
                decode(frame, from, &mut part)?;
                bytes += frame.payload.len();
                if part.len() >= PART_RECORDS || bytes >= part_bytes {
                    bytes = 0;
                    let sent = hand_over.send(std::mem::take(&mut part));
                    // The counting thread failed or panicked; `join` below returns its error or repeats its panic.
                    sent.map_err(|_| "the thread that counts has ended")?;
                    if let Ok(counted) = counted.try_recv() {
                        part = counted;
                        part.clear();
                    }
                }
                Ok(())
            });
            let _ = hand_over.send(part);
            drop(hand_over);
            counting
                .join()
                .unwrap_or_else(|panic| resume_unwind(panic))?;
            Ok(read?)
        })
    }

    /// Flushes as in service when memory is full: a manifest names the replayed counts, and the next start goes on from
    /// there. Where a flush fails, memory may grow up to half of the memory that this process may use. Fails when
    /// memory has grown that far, or when it is unknown which manifest counts.
    fn make_room(&mut self) -> Result<()> {
        let memory_bytes = self.store.options().memory_bytes;
        let bytes = self.store.intake().unflushed_bytes();
        let is_over = bytes >= memory_bytes / 2;
        if self.store.intake().is_read_only() {
            return match is_over {
                true => Err(Error::Memory {
                    bytes,
                    memory_bytes,
                }),
                false => Ok(()),
            };
        }
        if !self.store.intake().wants_flush() || self.flush_failed && !is_over {
            return Ok(());
        }
        match self.store.ledger().flush() {
            Ok(()) => {
                self.flush_failed = false;
                tracing::info!(
                    replayed = self.replayed,
                    "memory was full, so the replayed counts were flushed"
                );
            }
            Err(error) if is_over || self.store.ledger().must_restart().is_some() => {
                return Err(error);
            }
            Err(error) => {
                self.flush_failed = true;
                tracing::warn!(%error, "cannot flush the replayed counts; they stay in memory");
            }
        }
        Ok(())
    }

    /// Counts a part of the log.
    fn count(&mut self, part: &[Logged], add: Add) {
        let is_following = self.is_following;
        // Memory that is frozen at a mark ends there, with its ids.
        let ends = |logged: &Logged| is_following && logged.record == Record::Mark;
        for part in part.split_inclusive(ends) {
            self.count_to_mark(part, add);
        }
    }

    fn count_to_mark(&mut self, part: &[Logged], add: Add) {
        let Some(last) = part.last() else {
            return;
        };
        self.replayed += part.len() as u64;
        let now = self.store.intake().moment();
        let holds = self.store.holds();
        for logged in part {
            holds.replay(&logged.record, now);
            self.store.intake().learn_key(&logged.record);
            let (at, arrived_ms) = (logged.offset, logged.arrived_ms);
            self.store
                .intake()
                .learn_delete(at, arrived_ms, &logged.record);
            self.store.ledger().replay(&logged.record);
            if let Record::Manifest { number } = logged.record {
                self.noted = number;
            }
        }
        self.store.intake().learn(part, self.ids_from);
        // A record that decides where increments count applies from the next record on.
        for together in part.split_inclusive(|logged| decides(&logged.record)) {
            let increments = together.iter().filter_map(|logged| {
                let (late, increment) = logged.record.increment()?;
                Some((logged.offset.sequence, late, increment))
            });
            self.store.live().count_replayed(add, increments);
            if let Some(last) = together.last() {
                self.decide(last);
            }
        }
        self.store.live().pass(after(last));
        if self.is_following && last.record == Record::Mark {
            self.store.intake().follow_mark(after(last));
        }
    }

    /// Applies a record that decides where increments count.
    fn decide(&mut self, logged: &Logged) {
        // Ids may be read from further back. The manifest already has the state of the ring for those records.
        if logged.offset.sequence < self.counts_from {
            return;
        }
        decide(self.store.live(), &logged.record, after(logged));
    }
}

/// Applies a record that decides where increments count, if it does. `after` is the offset behind it.
pub(super) fn decide(live: &Live, record: &Record, after: Offset) {
    match record {
        Record::Schema(schema) => live.declare(schema.clone(), after),
        Record::BeganWith(_) => live.beginning_is_logged(after),
        Record::Erase { users } => live.erase(users, after),
        record if decides(record) => live.follow(record, after),
        _ => {}
    }
}

/// The offset behind a record.
fn after(logged: &Logged) -> Offset {
    Offset {
        sequence: logged.offset.sequence + 1,
        ..logged.offset
    }
}

/// Adds the records of a frame to `part`, from sequence number `from` on.
fn decode(frame: Frame<'_>, from: u64, part: &mut Vec<Logged>) -> Result<(), RecordError> {
    let records = decode_all(frame.payload, frame.count)?;
    for (sequence, record) in (frame.first_sequence..).zip(records) {
        if sequence >= from {
            part.push(Logged::new(&frame, sequence, record));
        }
    }
    Ok(())
}

/// True for a record that decides where later increments count, or that ends what earlier ones counted.
pub(super) fn decides(record: &Record) -> bool {
    matches!(
        record,
        Record::Rotate { .. }
            | Record::Turn { .. }
            | Record::Cut { .. }
            | Record::Reopen { .. }
            | Record::Erase { .. }
            | Record::Schema(_)
            | Record::BeganWith(_)
    )
}
