//! Opens a data directory: identity, manifest, runs, then the log from the offset where the runs end.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use tallyring_archive::{
    ArchiveEntry, Blobs, Cleared, Erasures, IdsEntry, IntakeEntry, Manifest, SchemaEntry,
    any_sorted_file, clear_at_start, names, remove_unfinished,
};
use tallyring_records::{Day, Offset, Schema};

use super::Store;
use super::replay::Replay;
use super::standing::{Notes, Standing};
use crate::delta::DeltaStore;
use crate::error::{Error, Result};
use crate::identity::Identity;
use crate::oplog::{FileLog, Log, LogOptions, LogSummary, ReadFrom, oldest_segment, scan};
use crate::options::{Options, World};
use crate::ring::Ring;

/// Findings of a start.
#[derive(Debug, Clone, Default)]
pub struct Recovery {
    /// Records that were counted from the log.
    pub replayed: u64,
    /// Files that no manifest names: how many were removed, and which were put aside.
    pub cleared: Cleared,
    /// Bytes of a torn write that were cut from the end of the log.
    pub torn_bytes: u64,
}

impl Store {
    /// Opens the data directory, which is created if it is empty, and declares `schema`, whose lists were stored
    /// ([`crate::store_list`]). The caller holds the lock of
    /// the data directory. Fails when a file is damaged, missing or of another version, or the disk fails.
    pub fn open(world: World, options: Options, schema: Schema) -> Result<(Self, Recovery)> {
        let (store, recovery) = Self::open_as_it_is(world, options, &schema)?;
        store.intake().check_rules(&schema)?;
        store.intake().tell_beginning()?;
        store.intake().declare(schema)?;
        match store.ledger.name_schema() {
            // All counts can be read all the same, and the next flush names the schema.
            Err(error) if error.is_disk_full() => {
                tracing::warn!(
                    "the disk is full: the manifest does not name the schema in force yet"
                );
            }
            named => named?,
        }
        // Contents of lists that were missing may have been stored.
        store.intake().begin_rules();
        Ok((store, recovery))
    }

    /// Opens the data directory without writing a schema record. `if_new` is the schema of a directory that is created
    /// now. Fails as [`Store::open`] does.
    pub fn open_as_it_is(
        world: World,
        options: Options,
        if_new: &Schema,
    ) -> Result<(Self, Recovery)> {
        let blobs = world.blobs();
        blobs.prepare()?;
        let (identity, mut manifest, begun) =
            match (Identity::load(&blobs)?, Manifest::load(&blobs)?) {
                (Some(identity), Some(manifest)) => (identity, manifest, None),
                (identity, None) => {
                    let (identity, manifest, log) = begin(&world, &options, identity, if_new)?;
                    (identity, manifest, Some(log))
                }
                (None, Some(_)) => return Err(no_identity()),
            };
        check_identity(&identity, &manifest)?;
        if manifest.intake.begun.is_none() {
            manifest.intake.begun = begun_in_log(&blobs)?;
        }
        // A process that died in a commit may have left the name of the manifest in memory only. If that name were lost
        // after files were removed because of it, the manifest before would name missing files.
        blobs.sync(names::MANIFESTS)?;
        // The notes are read before the log is opened for writing, which would cut a torn end and begin an epoch.
        let notes = match &begun {
            Some(_) => Notes::default(),
            None => {
                check_log_is_there(&blobs)?;
                Standing::read(&blobs, &identity, &manifest).check(&blobs, &manifest)?
            }
        };
        let now_ms = world.clock.now_ms();
        let is_newest = notes.prove_newest(manifest.number);
        let mut store = Self::of_manifest(world, options, &identity, manifest)?;
        let (log, summary) = match begun {
            Some(log) => (log, LogSummary::default()),
            None => {
                let plausible_ms = Some(store.manifest().plausible_ms());
                let log = log_options(&options, &identity, plausible_ms);
                let from = ReadFrom::Sequence(store.manifest().intake.log_from());
                FileLog::open(
                    Arc::clone(&store.world().disk),
                    log,
                    now_ms,
                    from,
                    &mut |_| Ok(()),
                )?
            }
        };
        let applied = log.end();
        store.intake().open_log(Box::new(log));
        // The log is whole up to its durable end, so replayed counts may be flushed.
        let mut replay = Replay::new(&mut store);
        let id = Some(identity.store_id);
        replay.read(|from, apply| scan(blobs.disk(), id, from, apply))?;
        let replayed = replay.replayed;
        store.intake().begin_rules();
        let recovery = Recovery {
            replayed,
            cleared: store.end_start(notes, is_newest, applied)?,
            torn_bytes: summary.torn.map_or(0, |torn| torn.bytes),
        };
        Ok((store, recovery))
    }

    /// Ends a start whose log was read up to `applied`: clears files that no manifest names, notes the manifest that
    /// counts, and turns the ring. This comes last, when everything that the manifest names is open.
    fn end_start(&self, notes: Notes, is_newest: bool, applied: Offset) -> Result<Cleared> {
        let blobs = self.world().blobs();
        // A crash while the identity was written may leave its secret under a second name.
        blobs.remove_unfinished("")?;
        // The committed manifest is read again, because the store's own may lack missing id runs.
        let manifest = Manifest::load(&blobs)?.ok_or_else(no_manifest)?;
        let may_remove = is_newest && self.ledger.damaged_files().is_empty();
        let cleared = clear_at_start(&blobs, &manifest, may_remove)?;
        self.live().end_replay(applied);
        self.ledger.note_missing(&cleared.missing);
        self.ledger.note_commits();
        self.ledger.note_newest(notes.end_with(manifest.number));
        self.begin_turning()?;
        Ok(cleared)
    }

    /// Turns the ring, and appends what a start owes to the log. A full disk or log is no failure: all counts can be
    /// read.
    pub(super) fn begin_turning(&self) -> Result<()> {
        let turned = self.intake().turn_now();
        let logged = turned.and_then(|()| self.intake().log_holds());
        match logged.and_then(|()| self.intake().log_keys()) {
            // All counts can be read all the same; the ring turns with the first write for which there is room.
            Err(Error::Oplog(no_room)) if no_room.is_no_room() => {
                tracing::warn!(%no_room, "the ring does not turn yet");
            }
            turned => turned?,
        }
        match self.ledger.name_found_finals() {
            Err(error) if error.is_disk_full() => {
                tracing::warn!(
                    "the disk is full: the manifest does not name the final versions yet that are to be made again"
                );
            }
            named => named?,
        }
        Ok(())
    }

    /// Opens a data directory for reading only, with or without a running server. Writes nothing. Fails as
    /// [`Store::open`] does, and when the directory has no store.
    pub fn open_read_only(world: World, options: Options) -> Result<Self> {
        let blobs = world.blobs();
        let (identity, manifest) = load(&blobs)?;
        Standing::read(&blobs, &identity, &manifest).check(&blobs, &manifest)?;
        let mut store = Self::of_manifest(world, options, &identity, manifest)?;
        let id = Some(identity.store_id);
        let summary =
            Replay::new(&mut store).read(|from, apply| scan(blobs.disk(), id, from, apply))?;
        store.live().end_replay(Offset {
            epoch: summary.epoch,
            sequence: summary.end_sequence,
        });
        Ok(store)
    }
}

/// Identity and newest manifest of an existing store, which belong together. Fails when one of them is missing or
/// damaged, or the log is missing.
pub(super) fn load(blobs: &Blobs) -> Result<(Identity, Manifest)> {
    let identity = Identity::load(blobs)?.ok_or_else(no_identity)?;
    let manifest = Manifest::load(blobs)?.ok_or_else(no_manifest)?;
    check_identity(&identity, &manifest)?;
    check_log_is_there(blobs)?;
    Ok((identity, manifest))
}

/// The day on which the log began; none where its first segment is gone. Older builds did not note the day.
fn begun_in_log(blobs: &Blobs) -> Result<Option<Day>> {
    let oldest = oldest_segment(blobs.disk())?;
    let first = oldest.filter(|oldest| oldest.first_sequence() == 0);
    Ok(first.map(|first| Day::of(first.created_ms().div_euclid(1_000))))
}

pub(crate) fn log_options(
    options: &Options,
    identity: &Identity,
    plausible_ms: Option<i64>,
) -> LogOptions {
    LogOptions {
        segment_bytes: options.segment_bytes,
        bytes_max: options.oplog_bytes_max,
        store_id: identity.store_id,
        plausible_ms,
        trusts_clock: options.trusts_clock,
    }
}

/// Checks that the log exists: it is begun before the first manifest, and never without a segment since.
fn check_log_is_there(blobs: &Blobs) -> Result<()> {
    if !blobs.list(names::OPLOG)?.is_empty() {
        return Ok(());
    }
    Err(Error::Missing(
        "a manifest exists but no oplog, which may have held increments that no run has: restore `oplog/`, or the whole \
         directory, from a backup"
            .into(),
    ))
}

/// Creates a store: its identity, its log, and a first manifest with an empty ring.
fn begin(
    world: &World,
    options: &Options,
    identity: Option<Identity>,
    schema: &Schema,
) -> Result<(Identity, Manifest, FileLog)> {
    schema.check_words(None)?;
    let blobs = &world.blobs();
    // A crash between log and manifest leaves a log without records.
    let log = scan(blobs.disk(), None, ReadFrom::Sequence(0), &mut |_| Ok(()));
    if !log.is_ok_and(|log| log.end_sequence == 0) {
        return Err(Error::Missing(
            "an oplog exists but no manifest, so the manifests were removed: restore `manifests/` from a backup, or make \
             them again from the log with `tallyring recount`"
                .into(),
        ));
    }
    // The log is begun before the first manifest, and sorted files come later: a new store would remove all of them.
    if let Some(file) = any_sorted_file(blobs)? {
        return Err(Error::Missing(format!(
            "{file} exists, but no manifest and no oplog: they were removed, or the disk that holds them is not mounted; \
             put `manifests/` and `oplog/` back, or restore the whole directory from a backup"
        )));
    }
    let identity = match identity {
        Some(identity) => identity,
        None => Identity::create(blobs, world.random)?,
    };
    remove_unfinished(blobs)?;
    let now_ms = world.clock.now_ms();
    let manifest = first_manifest(options, &identity, now_ms, schema);
    let (log, _) = FileLog::open(
        Arc::clone(&world.disk),
        log_options(options, &identity, None),
        now_ms,
        ReadFrom::Sequence(0),
        &mut |_| Ok(()),
    )?;
    manifest.commit(blobs)?;
    Ok((identity, manifest, log))
}

/// The first manifest of a store, with an empty ring.
pub(super) fn first_manifest(
    options: &Options,
    identity: &Identity,
    now_ms: i64,
    schema: &Schema,
) -> Manifest {
    let ring = Ring::begin(
        Day::of(now_ms.div_euclid(1_000)),
        options.form(),
        Offset::default(),
    );
    Manifest {
        number: 1,
        written_at_ms: now_ms,
        plausible_at_ms: None,
        store_id: identity.store_id_text(),
        intake: IntakeEntry {
            today: ring.today(),
            begun: Some(ring.today()),
            early: Some(BTreeSet::new()),
            left_log: BTreeSet::new(),
            schemas: vec![SchemaEntry::new(Offset::default(), schema.clone())],
            stores: ring.stores().map(DeltaStore::entry).collect(),
            ids: IdsEntry::default(),
            newest_events: BTreeMap::new(),
            erasures: Erasures::default(),
            keys: Vec::new(),
            consumed: Vec::new(),
            deletes: Vec::new(),
        },
        archive: ArchiveEntry::default(),
    }
}

pub(crate) fn no_manifest() -> Error {
    Error::Missing(
        "the data directory has no manifest; `tallyring recount` makes one from the log".into(),
    )
}

pub(crate) fn no_identity() -> Error {
    Error::Identity {
        name: names::IDENTITY,
        what: "the file is missing; restore it from a backup".into(),
    }
}

pub(super) fn check_identity(identity: &Identity, manifest: &Manifest) -> Result<()> {
    if identity.store_id_text() == manifest.store_id {
        return Ok(());
    }
    Err(Error::Identity {
        name: names::IDENTITY,
        what: format!(
            "the file is of store {}, but the manifest belongs to store {}; restore the file that belongs here",
            identity.store_id_text(),
            manifest.store_id
        ),
    })
}
