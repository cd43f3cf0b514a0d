//! Opens a data directory: identity, manifest, runs, then the log from where those end.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use tallyring_archive::disk::TEMPORARY_SUFFIX;
use tallyring_archive::{
    BlockCache, Disk, IdsEntry, Manifest, SchemaEntry, names, remove_leftovers,
};
use tallyring_records::{
    Day, LongKeys, Offset, Origin, Position, Record, RecordError, Schema, decode_all,
};

use super::change::HOUR_MS;
use super::files::{ArchiveFiles, Files};
use super::lateness::Watermarks;
use super::recent::Recent;
use super::{Live, Root, Store, Writer};
use crate::delta::DeltaStore;
use crate::error::{Error, Result};
use crate::heavy::Heavy;
use crate::identity::Identity;
use crate::ids::{Ids, Seen};
use crate::oplog::{Frame, LogSummary, Oplog, OplogOptions, ReadFrom, scan};
use crate::options::{Options, World};
use crate::producers::Producers;
use crate::ring::Ring;
use crate::sync::{Mutex, RwLock};

/// What opening found.
#[derive(Debug, Clone, Default)]
pub struct Recovery {
    /// Records applied from the log.
    pub replayed: u64,
    /// Files removed that a crash had left.
    pub leftovers: usize,
    /// Bytes of a write that a crash tore, cut from the log's end.
    pub torn_bytes: u64,
}

/// Domains of [`LongKeys::identity`].
pub(super) const ID_DOMAIN: u8 = 1;
pub(super) const BATCH_KEY_DOMAIN: u8 = 2;
pub(super) const BATCH_BODY_DOMAIN: u8 = 3;
pub(super) const REFUSED_DOMAIN: u8 = 4;
pub(super) const AGAIN_DOMAIN: u8 = 5;
pub(super) const PRODUCER_DOMAIN: u8 = 6;

impl Store {
    /// Opens the data directory, which is made if it is empty. The caller holds its lock.
    ///
    /// # Errors
    /// When a file is damaged, missing or of another version, or the disk refuses.
    pub fn open(world: World, options: Options, schema: Schema) -> Result<(Self, Recovery)> {
        let (mut store, recovery) = Self::open_as_it_is(world, options, &schema)?;
        store.declare(schema)?;
        Ok((store, recovery))
    }

    /// The same without declaring anything: `if_new` is the schema of a directory that is made now.
    ///
    /// # Errors
    /// As [`Store::open`].
    pub fn open_as_it_is(
        world: World,
        options: Options,
        if_new: &Schema,
    ) -> Result<(Self, Recovery)> {
        let disk = Arc::clone(&world.disk);
        for directory in names::DIRECTORIES {
            disk.create_directory(directory)
                .map_err(tallyring_archive::Error::io("create", directory))?;
        }
        disk.sync_directory("")
            .map_err(tallyring_archive::Error::io("sync", "."))?;
        let (identity, manifest, begun) = match (Identity::load(&*disk)?, Manifest::load(&*disk)?) {
            (Some(identity), Some(manifest)) => (identity, manifest, None),
            (identity, None) => {
                let (identity, manifest, log) = begin(&world, &options, identity, if_new)?;
                (identity, manifest, Some(log))
            }
            (None, Some(_)) => return Err(no_identity()),
        };
        check_identity(&identity, &manifest)?;
        remove_identity_leftover(&*disk)?;
        // A process that died in a commit may have left the manifest's name in memory only. Were it
        // lost after files were removed on its account, the one before would name what is gone.
        disk.sync_directory(names::MANIFESTS)
            .map_err(tallyring_archive::Error::io("sync", names::MANIFESTS))?;
        let leftovers = remove_leftovers(&*disk, Some(&manifest))?;
        let now_ms = world.clock.now_ms();
        let mut replay = Replay::new(&world, &options, &identity, &manifest)?;
        let (log, summary) = match begun {
            Some(log) => (log, LogSummary::default()),
            None => {
                check_log_is_there(&*disk)?;
                let from = ReadFrom::Sequence(replay.from);
                Oplog::open(
                    Arc::clone(&disk),
                    log_options(&options, &identity),
                    now_ms,
                    from,
                    &mut |frame| replay.frame(frame).map_err(Into::into),
                )?
            }
        };
        replay.check_reached(&summary)?;
        let recovery = Recovery {
            replayed: replay.replayed,
            leftovers,
            torn_bytes: summary.torn.map_or(0, |torn| torn.bytes),
        };
        let applied = Offset {
            epoch: log.epoch(),
            sequence: log.appended(),
        };
        let store = replay.finish(world, options, manifest, Some(log), applied)?;
        store.believe_clock()?;
        Ok((store, recovery))
    }

    /// Opens a data directory for reading, beside a server or without one. Nothing is written.
    ///
    /// # Errors
    /// As [`Store::open`]; also when there is nothing to read.
    pub fn open_read_only(world: World, options: Options) -> Result<Self> {
        let disk = Arc::clone(&world.disk);
        let identity = Identity::load(&*disk)?.ok_or_else(no_identity)?;
        let manifest = Manifest::load(&*disk)?
            .ok_or_else(|| Error::Missing("the data directory has no manifest".into()))?;
        check_identity(&identity, &manifest)?;
        check_log_is_there(&*disk)?;
        let mut replay = Replay::new(&world, &options, &identity, &manifest)?;
        let summary = scan(
            &*disk,
            Some(identity.store_id),
            ReadFrom::Sequence(replay.from),
            &mut |frame| replay.frame(frame).map_err(Into::into),
        )?;
        replay.check_reached(&summary)?;
        let applied = Offset {
            epoch: summary.epoch,
            sequence: summary.end_sequence,
        };
        replay.finish(world, options, manifest, None, applied)
    }
}

fn log_options(options: &Options, identity: &Identity) -> OplogOptions {
    OplogOptions {
        segment_bytes: options.segment_bytes,
        store_id: identity.store_id,
    }
}

/// The log of a store is begun before its first manifest, and never without a segment since.
fn check_log_is_there(disk: &dyn Disk) -> Result<()> {
    let files = disk
        .list(names::OPLOG)
        .map_err(tallyring_archive::Error::io("list", names::OPLOG))?;
    if files.iter().any(|file| !file.ends_with(TEMPORARY_SUFFIX)) {
        return Ok(());
    }
    Err(Error::Missing(
        "there is a manifest but no oplog, which may have held increments that no run has: restore `oplog/`, or the \
         whole directory from a backup"
            .into(),
    ))
}

/// A new store: its identity, its log, and a first manifest with an empty ring.
fn begin(
    world: &World,
    options: &Options,
    identity: Option<Identity>,
    schema: &Schema,
) -> Result<(Identity, Manifest, Oplog)> {
    let disk = &*world.disk;
    // A crash between log and manifest leaves a log that says nothing.
    let log = scan(disk, None, ReadFrom::Sequence(0), &mut |_| Ok(()));
    if !log.is_ok_and(|log| log.end_sequence == 0) {
        return Err(Error::Missing(
            "there is an oplog but no manifest: the manifests were removed; restore `manifests/` from a backup".into(),
        ));
    }
    let identity = match identity {
        Some(identity) => identity,
        None => Identity::create(disk, world.random)?,
    };
    remove_leftovers(disk, None)?;
    let now_ms = world.clock.now_ms();
    let ring = Ring::begin(
        Day::of(now_ms.div_euclid(1_000)),
        options.shards,
        Offset::default(),
    );
    let manifest = Manifest {
        number: 1,
        written_at_ms: now_ms,
        store_id: identity.store_id_text(),
        today: ring.today(),
        schemas: vec![SchemaEntry {
            since: Position::single(Offset::default()),
            schema: schema.clone(),
        }],
        stores: ring.stores().map(DeltaStore::entry).collect(),
        runs: Vec::new(),
        datasets: Vec::new(),
        generations: Vec::new(),
        active: 0,
        ids: IdsEntry {
            flushed: Position::single(Offset::default()),
            runs: Vec::new(),
            producers: Vec::new(),
        },
        newest_events: BTreeMap::new(),
    };
    let (log, _) = Oplog::open(
        Arc::clone(&world.disk),
        log_options(options, &identity),
        now_ms,
        ReadFrom::Sequence(0),
        &mut |_| Ok(()),
    )?;
    manifest.commit(disk)?;
    Ok((identity, manifest, log))
}

/// A crash while the identity was named leaves it a second name, under which its secret would stay.
fn remove_identity_leftover(disk: &dyn Disk) -> Result<()> {
    let temporary = format!("{}{TEMPORARY_SUFFIX}", names::IDENTITY);
    let files = disk
        .list("")
        .map_err(tallyring_archive::Error::io("list", "."))?;
    if files.contains(&temporary) {
        disk.remove(&temporary)
            .map_err(tallyring_archive::Error::io("remove", &temporary))?;
    }
    Ok(())
}

fn no_identity() -> Error {
    Error::Identity {
        name: names::IDENTITY,
        what: "is missing; restore it from a backup".into(),
    }
}

fn check_identity(identity: &Identity, manifest: &Manifest) -> Result<()> {
    if identity.store_id_text() == manifest.store_id {
        return Ok(());
    }
    Err(Error::Identity {
        name: names::IDENTITY,
        what: format!(
            "is store {}, the manifest belongs to store {}; restore the one that belongs here",
            identity.store_id_text(),
            manifest.store_id
        ),
    })
}

/// What a record makes known: a domain and a text.
pub(super) fn identity_of(record: &Record) -> Option<(u8, &str)> {
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
        | Record::Filtered { increment, .. } => increment.origin.as_ref(),
        _ => None,
    }
}

/// A store being put together from the manifest and the log.
struct Replay {
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
    replayed: u64,
    counted: u64,
}

impl Replay {
    fn new(
        world: &World,
        options: &Options,
        identity: &Identity,
        manifest: &Manifest,
    ) -> Result<Self> {
        let disk = &*world.disk;
        let window_ms = i64::from(options.id_hours) * HOUR_MS;
        let window_ms = world.clock.now_ms().saturating_sub(window_ms);
        let mut files = Files::default();
        let mut stores = Vec::new();
        for entry in &manifest.stores {
            stores.push(DeltaStore::from_entry(entry, options.shards, |run| {
                files.open(disk, run)
            })?);
        }
        let archive = files.archive(disk, manifest)?;
        let ids_from = manifest.ids.flushed.offset(0).sequence;
        let from = stores
            .iter()
            .filter_map(DeltaStore::replay_from)
            .min()
            .unwrap_or(ids_from)
            .min(ids_from);
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
            ids: Ids::open(disk, &manifest.ids.runs, window_ms)?,
            producers: Producers::restore(&manifest.ids.producers),
            ids_from,
            from,
            watermarks: Watermarks::restore(&manifest.newest_events),
            keys: LongKeys::new(identity.hash_key),
            replayed: 0,
            counted: 0,
        })
    }

    /// The log holds everything that was flushed: what is derived is never ahead of the truth.
    fn check_reached(&self, summary: &LogSummary) -> Result<()> {
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

    fn frame(&mut self, frame: Frame<'_>) -> std::result::Result<(), RecordError> {
        for (index, record) in decode_all(frame.payload, frame.count)?
            .into_iter()
            .enumerate()
        {
            let at = Offset {
                epoch: frame.epoch,
                sequence: frame.first_sequence + index as u64,
            };
            if at.sequence >= self.from {
                self.record(at, frame.written_ms, record);
                self.replayed += 1;
            }
        }
        Ok(())
    }

    fn record(&mut self, at: Offset, arrived_ms: i64, record: Record) {
        let after = Offset {
            sequence: at.sequence + 1,
            ..at
        };
        let late = matches!(record, Record::Late(_));
        if let Some((domain, text)) = identity_of(&record)
            && at.sequence >= self.ids_from
        {
            let seen = Seen {
                sequence: at.sequence,
                arrived_ms,
            };
            self.ids
                .insert(self.keys.identity(domain, text.as_bytes()), seen);
        }
        if let Some(origin) = origin_of(&record)
            && at.sequence >= self.ids_from
        {
            let name = origin.producer.as_bytes();
            let id = self.keys.identity(PRODUCER_DOMAIN, name);
            self.producers.follow(id, origin, arrived_ms);
        }
        match record {
            Record::Increment(increment) | Record::Late(increment) => {
                self.watermarks.see(&increment);
                self.counted = self.counted.saturating_add(increment.n);
                self.ring
                    .count(&self.keys, &self.schema, late, at.sequence, &increment);
            }
            Record::Duplicate { .. }
            | Record::Filtered { .. }
            | Record::Refused { .. }
            | Record::Batch { .. } => {}
            Record::Rotate { today } => self.ring.rotate(today, after),
            Record::Cut { stores } => self.ring.cut(&stores, after),
            Record::Schema(schema) => {
                self.schema = Arc::new(schema.clone());
                self.schemas.push(SchemaEntry {
                    since: Position::single(after),
                    schema,
                });
            }
        }
    }

    fn finish(
        self,
        world: World,
        options: Options,
        manifest: Manifest,
        log: Option<Oplog>,
        applied: Offset,
    ) -> Result<Store> {
        // No counter can be above the sum of all totals; breakdowns and ids are not totals.
        let runs = manifest
            .stores
            .iter()
            .flat_map(|store| &store.runs)
            .chain(manifest.all_sources());
        let totals = runs
            .flat_map(|entry| &entry.meta.sums)
            .filter(|(section, _)| !section.contains('.'));
        let stored: u128 = totals.map(|(_, &sum)| sum).sum();
        let count_bound = self
            .counted
            .saturating_add(u64::try_from(stored).unwrap_or(u64::MAX));
        let writer = Writer {
            log,
            ids: self.ids,
            producers: self.producers,
            payload: Vec::new(),
            count_bound,
            unflushed: self.replayed,
            jumped_since_ms: None,
            last_append_ms: world.clock.now_ms(),
        };
        let is_empty = self.ring.stores().all(DeltaStore::is_empty);
        let live = Live {
            heavy: Heavy::new(self.schema.namespaces.len(), self.ring.today()),
            knows_heavy: is_empty,
            ring: self.ring,
            schemas: self.schemas,
            archive: Arc::new(self.archive),
            manifest: Arc::new(manifest.clone()),
            applied,
            watermarks: self.watermarks,
        };
        let recent = Recent::new(world.clock.now_ms().div_euclid(1_000));
        Ok(Store {
            cache: BlockCache::new(options.cache_bytes),
            keys: self.keys,
            root: Mutex::new(Root {
                manifest,
                files: self.files,
                uncertain: None,
            }),
            writer: Mutex::new(writer),
            live: RwLock::new(live),
            schema: self.schema,
            recent: RwLock::new(recent),
            folding: Mutex::new(()),
            has_arrived: AtomicBool::new(false),
            world,
            options,
        })
    }
}
