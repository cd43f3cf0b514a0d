//! Puts a store together from the manifest and the log.
//!
//! One thread reads the log, decodes its records and frees them; others count them, each in shards of its own, in the
//! log's order.

use std::panic::resume_unwind;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::mpsc::{channel, sync_channel};
use std::thread;

use rayon::ThreadPoolBuilder;
use tallyring_archive::{BlockCache, Manifest, SchemaEntry};
use tallyring_records::{
    LongKeys, Offset, Origin, Position, Record, RecordError, Schema, decode_all,
};

use super::bounds::Bounds;
use super::change::HOUR_MS;
use super::files::{ArchiveFiles, Files};
use super::lateness::Watermarks;
use super::open::{AGAIN_DOMAIN, BATCH_KEY_DOMAIN, ID_DOMAIN, PRODUCER_DOMAIN, REFUSED_DOMAIN};
use super::recent::Recent;
use super::view::{Live, View};
use super::{ANSWERED_MAX, Answered, Root, Store, Writer};
use crate::budget::ReadBudget;
use crate::delta::{Delta, DeltaStore};
use crate::error::{Error, Result};
use crate::heavy::Heavy;
use crate::identity::Identity;
use crate::ids::{Ids, Seen};
use crate::oplog::{ApplyError, Frame, LogSummary, Oplog, OplogError, ReadFrom};
use crate::options::{Options, World};
use crate::producers::Producers;
use crate::ring::{Add, Ring};
use crate::sync::{Mutex, RwLock};

/// Records that are handed over together; a frame is not divided.
const PART_RECORDS: usize = 16_384;
/// The same in bytes of the log: records may be large.
const PART_BYTES: usize = 4 << 20;
/// Memory for blocks of ids that duplicates and refused items are looked for in.
const CACHE_BYTES: u64 = 4 << 20;
/// Parts that wait to be counted.
const PARTS_WAITING: usize = 2;
/// Records that are worth more than one thread that counts.
const MANY_RECORDS: usize = 1_024;

/// Takes the frames of a log.
type Apply<'a> = &'a mut dyn FnMut(Frame<'_>) -> std::result::Result<(), ApplyError>;

/// A store being put together from the manifest and the log.
pub(super) struct Replay {
    ring: Ring,
    /// Declarations from the one in force at the start on.
    schemas: Vec<SchemaEntry>,
    schema: Arc<Schema>,
    files: Files,
    archive: ArchiveFiles,
    ids: Ids,
    producers: Producers,
    ids_from: u64,
    from: u64,
    watermarks: Watermarks,
    keys: LongKeys,
    /// Records of the log that were read.
    pub replayed: u64,
    bounds: Bounds,
    /// Of runs of ids.
    cache: BlockCache,
}

impl Replay {
    /// What the manifest says.
    ///
    /// # Errors
    /// When a run cannot be opened, or no declaration is there.
    pub fn new(
        world: &World,
        options: &Options,
        identity: &Identity,
        manifest: &Manifest,
    ) -> Result<Self> {
        let disk = &*world.disk;
        let window_ms = i64::from(options.id_hours) * HOUR_MS;
        let known_from_ms = world.clock.now_ms().saturating_sub(window_ms);
        let mut files = Files::default();
        let mut stores = Vec::new();
        for entry in &manifest.stores {
            stores.push(DeltaStore::from_entry(entry, options.shards, |run| {
                files.open(disk, run)
            })?);
        }
        let archive = files.archive(disk, manifest)?;
        let ids_from = manifest.ids.flushed.offset(0).sequence;
        let from = manifest.log_from();
        let in_force = |entry: &&SchemaEntry| entry.since.offset(0).sequence <= from;
        let first = manifest.schemas.iter().rev().find(in_force);
        let first =
            first.ok_or_else(|| Error::Missing("the manifest declares no namespaces".into()))?;
        Ok(Self {
            ring: Ring::restore(manifest.today, options.shards, stores),
            schemas: vec![first.clone()],
            schema: Arc::new(first.schema.clone()),
            files,
            archive,
            ids: Ids::open(disk, &manifest.ids.runs, known_from_ms)?,
            producers: Producers::restore(&manifest.ids.producers),
            ids_from,
            from,
            watermarks: Watermarks::restore(&manifest.newest_events),
            keys: LongKeys::new(identity.hash_key),
            replayed: 0,
            bounds: Bounds::new(),
            cache: BlockCache::new(CACHE_BYTES),
        })
    }

    /// The log holds everything that was flushed: what is derived is never ahead of the truth.
    ///
    /// # Errors
    /// When it ends before.
    pub fn check_reached(&self, summary: &LogSummary) -> Result<()> {
        let flushed = self
            .ring
            .stores()
            .map(|store| store.flushed.sequence)
            .max()
            .unwrap_or(0)
            .max(self.ids_from);
        if summary.end_sequence >= flushed {
            return Ok(());
        }
        Err(Error::Missing(format!(
            "the oplog ends at record {}, but runs hold records up to {flushed}: the end of the oplog was lost; \
             restore `oplog/` from a backup",
            summary.end_sequence
        )))
    }

    /// Reads the log from where runs end, by what hands out its frames from there on.
    ///
    /// # Errors
    /// Those of `read`.
    pub fn read<T>(
        &mut self,
        read: impl FnOnce(ReadFrom, Apply<'_>) -> std::result::Result<T, OplogError>,
    ) -> Result<T> {
        let from = self.from;
        let read = thread::scope(|scope| {
            let (hand_over, decoded) = sync_channel::<Vec<Decoded>>(PARTS_WAITING);
            let (give_back, counted) = channel();
            let counting = scope.spawn(move || {
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
                }
            });
            let (mut part, mut bytes) = (Vec::new(), 0);
            let read = read(ReadFrom::Sequence(from), &mut |frame| {
                decode(frame, from, &mut part)?;
                bytes += frame.payload.len();
                if part.len() >= PART_RECORDS || bytes >= PART_BYTES {
                    bytes = 0;
                    let sent = hand_over.send(std::mem::take(&mut part));
                    // It panicked, as this thread does when it waits for it.
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
            counting.join().unwrap_or_else(|panic| resume_unwind(panic));
            read
        });
        Ok(read?)
    }

    /// Counts a part of the log.
    fn count(&mut self, part: &[Decoded], add: Add) {
        self.replayed += part.len() as u64;
        for decoded in part {
            self.know(decoded);
        }
        // What decides where records count applies from the next one on.
        for together in part.split_inclusive(|decoded| decides(&decoded.record)) {
            let increments = together.iter().filter_map(|decoded| {
                let (late, increment) = decoded.record.increment()?;
                Some((decoded.at.sequence, late, increment))
            });
            self.ring.count(&self.keys, &self.schema, add, increments);
            if let Some(last) = together.last() {
                self.decide(last);
            }
        }
    }

    /// Notes what a record makes known, wherever it counts.
    fn know(&mut self, decoded: &Decoded) {
        let Decoded {
            at,
            arrived_ms,
            record,
        } = decoded;
        if let Some((domain, text)) = identity_of(record)
            && at.sequence >= self.ids_from
        {
            let seen = Seen {
                sequence: at.sequence,
                arrived_ms: *arrived_ms,
            };
            let id = self.keys.identity(domain, text.as_bytes());
            // Of these the first one counts, also one that runs hold.
            let is_noted = matches!(domain, AGAIN_DOMAIN | REFUSED_DOMAIN)
                && matches!(self.ids.find(&self.cache, id), Ok(Some(_)));
            if !is_noted {
                self.ids.insert(id, seen);
            }
        }
        if let Some(origin) = origin_of(record)
            && at.sequence >= self.ids_from
        {
            let name = origin.producer.as_bytes();
            let id = self.keys.identity(PRODUCER_DOMAIN, name);
            self.producers.follow(id, origin, *arrived_ms);
        }
        if let Some((_, increment)) = record.increment() {
            self.watermarks.see(increment);
            self.bounds.add(increment.at, increment.n);
        }
    }

    /// Changes where records count, if this one says so.
    fn decide(&mut self, decoded: &Decoded) {
        let after = Offset {
            sequence: decoded.at.sequence + 1,
            ..decoded.at
        };
        match &decoded.record {
            Record::Rotate { today } => self.ring.rotate(*today, after),
            Record::Cut { stores } => self.ring.cut(stores, after),
            Record::Schema(schema) => {
                self.schema = Arc::new(schema.clone());
                self.schemas.push(SchemaEntry {
                    since: Position::single(after),
                    schema: schema.clone(),
                });
            }
            _ => {}
        }
    }

    /// The store.
    pub fn finish(
        self,
        world: World,
        options: Options,
        manifest: Manifest,
        log: Option<Oplog>,
        applied: Offset,
    ) -> Store {
        let mut bounds = self.bounds;
        let runs = manifest.stores.iter().flat_map(|store| &store.runs);
        let runs = runs.chain(manifest.all_sources());
        runs.for_each(|run| bounds.add_run(run));
        let writer = Writer {
            log,
            ids: self.ids,
            producers: self.producers,
            payload: Vec::new(),
            bounds,
            answered: Answered::new(ANSWERED_MAX),
            unflushed: self.replayed,
            refused: None,
            jumped_since_ms: None,
            last_append_ms: world.clock.now_ms(),
        };
        let is_empty = self.ring.stores().all(DeltaStore::is_empty);
        let heavy = Heavy::new(self.schema.namespaces.len(), self.ring.today());
        let view = View {
            ring: self.ring,
            schemas: Arc::new(self.schemas),
            archive: Arc::new(self.archive),
            manifest: Arc::new(manifest.clone()),
            applied,
            watermarks: self.watermarks,
        };
        let recent = Recent::new(world.clock.now_ms().div_euclid(1_000));
        Store {
            cache: BlockCache::new(options.cache_bytes),
            keys: self.keys,
            root: Mutex::new(Root {
                manifest,
                files: self.files,
                uncertain: None,
            }),
            writer: Mutex::new(writer),
            live: RwLock::new(Live::new(view, heavy, is_empty)),
            schema: self.schema,
            recent: RwLock::new(recent),
            read_budget: ReadBudget::new(options.read_bytes_max),
            folding: Mutex::new(()),
            has_arrived: AtomicBool::new(false),
            damaged: Mutex::default(),
            world,
            options,
        }
    }
}

/// A record of the log.
struct Decoded {
    at: Offset,
    arrived_ms: i64,
    record: Record,
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
        Record::Rotate { .. } | Record::Cut { .. } | Record::Schema(_)
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
        Record::Rotate { .. } | Record::Cut { .. } | Record::Schema(_) => None,
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
