//! Puts a store together from the manifest and the log.
//!
//! The log is open and whole before anything is counted. One thread reads it, decodes its records and frees them; others
//! count them, each in shards of its own, in the log's order. Memory has the limits that it has in service: when it is
//! full, what was replayed so far is flushed and named in a manifest. So a start takes no more memory than service does,
//! and one that is killed leaves less to the next.

use std::panic::resume_unwind;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use rayon::ThreadPoolBuilder;
use tallyring_archive::{BlockCache, Manifest, SchemaEntry};
use tallyring_records::{LongKeys, Offset, Origin, Position, Record, RecordError, decode_all};

use super::bounds::Bounds;
use super::change::HOUR_MS;
use super::files::Files;
use super::lateness::Watermarks;
use super::open::{AGAIN_DOMAIN, BATCH_KEY_DOMAIN, ID_DOMAIN, REFUSED_DOMAIN};
use super::open_ids::OpenIds;
use super::recent::Recent;
use super::view::{Live, View};
use super::{ANSWERED_MAX, Answered, Root, Store, Writer};
use crate::budget::ReadBudget;
use crate::delta::{Delta, DeltaStore};
use crate::error::{Error, Result};
use crate::heavy::Heavy;
use crate::identity::Identity;
use crate::ids::{Ids, Seen};
use crate::oplog::{ApplyError, Frame, OplogError, ReadFrom};
use crate::options::{Options, World};
use crate::producers::Producers;
use crate::ring::{Add, Ring};
use crate::sync::{Mutex, RwLock, channel, scope, sync_channel};

/// Records that are handed over together; a frame is not divided.
const PART_RECORDS: usize = 16_384;
/// The same in bytes of the log, of which five parts are in memory at once, each several times as large when it is
/// decoded: so small a part of the memory of deltas, within bounds.
const PARTS_OF_MEMORY: u64 = 64;
const PART_BYTES_MIN: u64 = 1 << 10;
const PART_BYTES_MAX: u64 = 4 << 20;
/// Parts that wait to be counted.
const PARTS_WAITING: usize = 2;
/// Records that are worth more than one thread that counts.
const MANY_RECORDS: usize = 1_024;

/// Takes the frames of a log.
type Apply<'a> = &'a mut dyn FnMut(Frame<'_>) -> std::result::Result<(), ApplyError>;

/// A store that is filled from the log.
pub(super) struct Replay<'s> {
    store: &'s mut Store,
    /// Ids and producers are as of this record.
    ids_from: u64,
    /// Stores and declarations are as of this record.
    counts_from: u64,
    from: u64,
    /// Records of the log that were read.
    pub replayed: u64,
    /// Nothing could be flushed, so that memory grows.
    flush_failed: bool,
}

impl Store {
    /// What the manifest says, with nothing in memory.
    ///
    /// # Errors
    /// When a run cannot be opened, or no declaration is there.
    pub(super) fn of_manifest(
        world: World,
        options: Options,
        identity: &Identity,
        manifest: Manifest,
    ) -> Result<Self> {
        let disk = &*world.disk;
        // The log is not read yet: what is remembered for too long goes with the next flush.
        let now_ms = world.clock.now_ms();
        let believed_ms = now_ms.min(manifest.plausible_ms());
        let known_from_ms = believed_ms.saturating_sub(i64::from(options.id_hours) * HOUR_MS);
        let mut files = Files::default();
        files.open_what_is_whole(disk, &manifest)?;
        let mut stores = Vec::new();
        for entry in &manifest.stores {
            stores.push(DeltaStore::from_entry(entry, options.shards, |run| {
                files.open(disk, run)
            })?);
        }
        let ids = OpenIds::new(disk, &manifest.ids, known_from_ms)?;
        let manifest = Manifest {
            ids: ids.entry,
            ..manifest
        };
        let archive = files.archive(disk, &manifest)?;
        let from = manifest.counts_from().unwrap_or(manifest.log_from());
        let in_force = |entry: &SchemaEntry| entry.since.offset(0).sequence <= from;
        let known = manifest.schemas.partition_point(in_force).max(1);
        let schemas: Vec<_> = manifest.schemas.iter().take(known).cloned().collect();
        let first = schemas
            .last()
            .ok_or_else(|| Error::Missing("the manifest declares no namespaces".into()))?;
        let schema = Arc::new(first.schema.clone());
        let writer = writer_of(&manifest, ids.ids, now_ms);
        let heavy = Heavy::new(schema.namespaces.len(), manifest.today);
        let lost = files.lost();
        let view = View {
            ring: Ring::restore(manifest.today, options.shards, stores),
            schemas: Arc::new(schemas),
            archive: Arc::new(archive),
            watermarks: Watermarks::restore(&manifest.newest_events),
            manifest: Arc::new(manifest.clone()),
            applied: Offset::default(),
        };
        Ok(Self {
            cache: BlockCache::new(options.cache_bytes),
            keys: LongKeys::new(identity.hash_key),
            root: Mutex::new(Root {
                manifest,
                files,
                uncertain: None,
                notes_commits: false,
            }),
            writer: Mutex::new(writer),
            log_copy: None,
            live: RwLock::new(Live::new(view, heavy, false)),
            schema,
            recent: RwLock::new(Recent::new(now_ms.div_euclid(1_000))),
            read_budget: ReadBudget::new(options.read_bytes_max),
            folding: Mutex::new(()),
            has_arrived: AtomicBool::new(false),
            damaged: Mutex::new(lost),
            world,
            options,
        })
    }

    /// Everything was replayed, up to `applied`.
    pub(super) fn end_replay(&mut self, applied: Offset) {
        let namespaces = self.schema.namespaces.len();
        let mut live = self.live_mut();
        live.view_mut().applied = applied;
        let view = live.view();
        live.heavy = Heavy::new(namespaces, view.ring.today());
        live.knows_heavy = view.ring.stores().all(DeltaStore::is_empty);
    }
}

impl<'s> Replay<'s> {
    /// Into a store that is as its manifest says.
    pub fn new(store: &'s mut Store) -> Self {
        let manifest = store.manifest();
        Self {
            ids_from: manifest.ids.flushed.offset(0).sequence,
            counts_from: manifest.counts_from().unwrap_or(manifest.log_from()),
            from: manifest.log_from(),
            store,
            replayed: 0,
            flush_failed: false,
        }
    }

    /// Reads the log from where runs end, by what hands out its frames from there on.
    ///
    /// # Errors
    /// Those of `read`; when memory is full, and what was replayed cannot be flushed.
    pub fn read<T>(
        &mut self,
        read: impl FnOnce(ReadFrom, Apply<'_>) -> std::result::Result<T, OplogError>,
    ) -> Result<T> {
        let from = self.from;
        let part_bytes = self.store.options.delta_bytes_max / PARTS_OF_MEMORY;
        let part_bytes = part_bytes.clamp(PART_BYTES_MIN, PART_BYTES_MAX) as usize;
        scope(|scope| {
            let (hand_over, decoded) = sync_channel::<Vec<Decoded>>(PARTS_WAITING);
            let (give_back, counted) = channel();
            let counting = scope.spawn(move || -> Result<()> {
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
                    // It failed or panicked, as this thread does when it waits for it.
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

    /// Flushes as service does when memory is full: a manifest names what was replayed so far, and the next start goes
    /// on from there. Where nothing can be flushed memory grows up to half of what there is.
    ///
    /// # Errors
    /// When that is reached; when it is not known which manifest counts.
    fn make_room(&mut self) -> Result<()> {
        let memory_bytes = self.store.options.memory_bytes;
        let bytes = self.store.unflushed_bytes();
        let is_over = bytes >= memory_bytes / 2;
        if self.store.is_read_only() {
            return match is_over {
                true => Err(Error::Memory {
                    bytes,
                    memory_bytes,
                }),
                false => Ok(()),
            };
        }
        if !self.store.wants_flush() || self.flush_failed && !is_over {
            return Ok(());
        }
        match self.store.flush() {
            Ok(()) => {
                self.flush_failed = false;
                tracing::info!(replayed = self.replayed, "memory was full, and is flushed");
            }
            Err(error) if is_over || self.store.must_restart().is_some() => return Err(error),
            Err(error) => {
                self.flush_failed = true;
                tracing::warn!(%error, "cannot flush what was replayed: it stays in memory");
            }
        }
        Ok(())
    }

    /// Counts a part of the log.
    fn count(&mut self, part: &[Decoded], add: Add) {
        let Some(last) = part.last() else {
            return;
        };
        self.replayed += part.len() as u64;
        self.know(part);
        // What decides where records count applies from the next one on.
        for together in part.split_inclusive(|decoded| decides(&decoded.record)) {
            let increments = together.iter().filter_map(|decoded| {
                let (late, increment) = decoded.record.increment()?;
                Some((decoded.at.sequence, late, increment))
            });
            let store = &*self.store;
            let mut live = store.live_mut();
            let ring = &mut live.view_mut().ring;
            ring.count(&store.keys, &store.schema, add, increments);
            drop(live);
            if let Some(last) = together.last() {
                self.decide(last);
            }
        }
        self.store.live_mut().view_mut().applied = after(last);
    }

    /// Notes what records make known, wherever they count.
    fn know(&self, part: &[Decoded]) {
        let store = &*self.store;
        let mut writer = store.writer();
        let mut live = store.live_mut();
        let view = live.view_mut();
        writer.unflushed += part.len() as u64;
        for decoded in part {
            if decoded.at.sequence >= self.ids_from {
                know_identity(store, &mut writer, decoded);
            }
            if let Some((_, increment)) = decoded.record.increment() {
                view.watermarks.see(increment);
                writer.bounds.add(increment.at, increment.n);
            }
        }
    }

    /// Changes where records count, if this one says so.
    fn decide(&mut self, decoded: &Decoded) {
        // Where ids are read from further back: it was decided when the manifest was written, and perhaps otherwise since.
        if decoded.at.sequence < self.counts_from {
            return;
        }
        let after = after(decoded);
        match &decoded.record {
            Record::Schema(schema) => {
                self.store.schema = Arc::new(schema.clone());
                let mut live = self.store.live_mut();
                Arc::make_mut(&mut live.view_mut().schemas).push(SchemaEntry {
                    since: Position::single(after),
                    schema: schema.clone(),
                });
            }
            record => {
                let mut live = self.store.live_mut();
                live.view_mut().ring.follow(record, after);
            }
        }
    }
}

/// The way in of a store whose log is not open yet.
fn writer_of(manifest: &Manifest, ids: Ids, now_ms: i64) -> Writer {
    let mut bounds = Bounds::new();
    let runs = manifest.stores.iter().flat_map(|store| &store.runs);
    let runs = runs.chain(manifest.all_sources());
    runs.for_each(|run| bounds.add_run(run));
    Writer {
        log: None,
        ids,
        producers: Producers::restore(&manifest.ids.producers),
        payload: Vec::new(),
        bounds,
        answered: Answered::new(ANSWERED_MAX),
        unflushed: 0,
        refused: None,
        doubt: None,
        last_append_ms: now_ms,
    }
}

/// Notes the id and the producer of a record.
fn know_identity(store: &Store, writer: &mut Writer, decoded: &Decoded) {
    let Decoded {
        at,
        arrived_ms,
        record,
    } = decoded;
    if let Some((domain, text)) = identity_of(record) {
        let seen = Seen {
            sequence: at.sequence,
            arrived_ms: *arrived_ms,
        };
        let id = store.keys.identity(domain, text.as_bytes());
        // Of these the first one counts, also one that runs hold.
        let is_noted = matches!(domain, AGAIN_DOMAIN | REFUSED_DOMAIN)
            && matches!(writer.ids.find(&store.cache, id), Ok(Some(_)));
        if !is_noted {
            writer.ids.insert(id, seen);
        }
    }
    if let Some(origin) = origin_of(record) {
        let id = store.producer(origin);
        writer.producers.follow(id, origin, *arrived_ms);
    }
}

/// A record of the log.
struct Decoded {
    at: Offset,
    arrived_ms: i64,
    record: Record,
}

/// The offset behind it.
fn after(decoded: &Decoded) -> Offset {
    Offset {
        sequence: decoded.at.sequence + 1,
        ..decoded.at
    }
}

/// Adds the records of a frame to `part`, from the one numbered `from` on.
fn decode(
    frame: Frame<'_>,
    from: u64,
    part: &mut Vec<Decoded>,
) -> std::result::Result<(), RecordError> {
    let records = decode_all(frame.payload, frame.count)?;
    for (sequence, record) in (frame.first_sequence..).zip(records) {
        if sequence >= from {
            part.push(Decoded {
                at: Offset {
                    epoch: frame.epoch,
                    sequence,
                },
                arrived_ms: frame.written_ms,
                record,
            });
        }
    }
    Ok(())
}

/// True for what changes where records count.
fn decides(record: &Record) -> bool {
    matches!(
        record,
        Record::Rotate { .. } | Record::Turn { .. } | Record::Cut { .. } | Record::Schema(_)
    )
}

/// What a record makes known: a domain and a text.
fn identity_of(record: &Record) -> Option<(u8, &str)> {
    match record {
        Record::Increment(increment) | Record::Late(increment) => {
            increment.id.as_deref().map(|id| (ID_DOMAIN, id))
        }
        Record::Filtered { increment, .. } => increment.id.as_deref().map(|id| (ID_DOMAIN, id)),
        Record::Duplicate { id, .. } => Some((AGAIN_DOMAIN, id)),
        Record::Refused { id, .. } => Some((REFUSED_DOMAIN, id)),
        Record::Batch { key, .. } => Some((BATCH_KEY_DOMAIN, key)),
        Record::Rotate { .. }
        | Record::Turn { .. }
        | Record::Cut { .. }
        | Record::Schema(_)
        | Record::Manifest { .. } => None,
    }
}

/// The number that its producer gave a record.
fn origin_of(record: &Record) -> Option<&Origin> {
    match record {
        Record::Increment(increment)
        | Record::Late(increment)
        | Record::Filtered { increment, .. } => increment.origin.as_deref(),
        _ => None,
    }
}
