//! Opens a data directory: identity, manifest, runs, then the log from where those end.

use std::collections::BTreeMap;
use std::sync::Arc;

use tallyring_archive::{
    ArchiveEntry, Blobs, Cleared, IdsEntry, IntakeEntry, Manifest, SchemaEntry, any_sorted_file,
    clear_at_start, names, remove_unfinished,
};
use tallyring_records::{Day, Offset, Schema};

use super::Store;
use super::replay::Replay;
use super::standing::{Notes, Standing};
use crate::delta::DeltaStore;
use crate::error::{Error, Result};
use crate::identity::Identity;
use crate::oplog::{Log, LogOptions, LogSummary, OplogError, ReadFrom, scan};
use crate::options::{Options, World};
use crate::ring::Ring;

/// What opening found.
#[derive(Debug, Clone, Default)]
pub struct Recovery {
    /// Records applied from the log.
    pub replayed: u64,
    /// Files that no manifest names: how many were removed, and which were put aside.
    pub cleared: Cleared,
    /// Bytes of a write that a crash tore, cut from the log's end.
    pub torn_bytes: u64,
}

impl Store {
    /// Opens the data directory, which is made if it is empty. The caller holds its lock.
    ///
    /// # Errors
    /// When a file is damaged, missing or of another version, or the disk refuses.
    pub fn open(world: World, options: Options, schema: Schema) -> Result<(Self, Recovery)> {
        let (mut store, recovery) = Self::open_as_it_is(world, options, &schema)?;
        store.ledger.intake_mut().declare(schema)?;
        match store.ledger.name_declaration() {
            // What was counted can be read all the same; the next flush names it.
            Err(error) if error.is_disk_full() => {
                tracing::warn!("the disk is full: the manifest does not name what is declared now");
            }
            named => named?,
        }
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
        let blobs = world.blobs();
        blobs.prepare()?;
        let (identity, manifest, begun) = match (Identity::load(&blobs)?, Manifest::load(&blobs)?) {
            (Some(identity), Some(manifest)) => (identity, manifest, None),
            (identity, None) => {
                let (identity, manifest, log) = begin(&world, &options, identity, if_new)?;
                (identity, manifest, Some(log))
            }
            (None, Some(_)) => return Err(no_identity()),
        };
        check_identity(&identity, &manifest)?;
        // A process that died in a commit may have left the manifest's name in memory only. Were it
        // lost after files were removed on its account, the one before would name what is gone.
        blobs.sync(names::MANIFESTS)?;
        // Read before it is opened for writing, which would cut a torn end and begin an epoch.
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
                Log::open(
                    Arc::clone(&store.world().disk),
                    log,
                    now_ms,
                    from,
                    &mut |_| Ok(()),
                )?
            }
        };
        let applied = log.end();
        store.ledger.intake_mut().open_log(log);
        // Whole up to its end, which is durable: what is replayed may be flushed.
        let mut replay = Replay::new(&mut store);
        let id = Some(identity.store_id);
        replay.read(|from, apply| scan(blobs.disk(), id, from, apply))?;
        let replayed = replay.replayed;
        let recovery = Recovery {
            replayed,
            cleared: store.end_start(notes, is_newest, applied)?,
            torn_bytes: summary.torn.map_or(0, |torn| torn.bytes),
        };
        Ok((store, recovery))
    }

    /// Ends a start whose log was read up to `applied`: clears what no manifest names, notes the manifest that counts, and
    /// turns the ring. Only now, when everything that the manifest names is open.
    fn end_start(&self, notes: Notes, is_newest: bool, applied: Offset) -> Result<Cleared> {
        let blobs = self.world().blobs();
        // A crash while the identity was named may leave its secret under a second name.
        blobs.remove_unfinished("")?;
        // As it is committed: the store's own may lack runs of ids that are gone.
        let manifest = Manifest::load(&blobs)?.ok_or_else(no_manifest)?;
        let cleared = clear_at_start(&blobs, &manifest, is_newest)?;
        self.live().end_replay(applied);
        self.ledger.note_missing(&cleared.missing);
        self.ledger.note_commits();
        if !notes.end_with(manifest.number) {
            self.intake().note_manifest(manifest.number);
        }
        match self.intake().turn_now() {
            // What was counted can be read all the same; the ring turns with the first write that there is room for.
            Err(Error::Oplog(OplogError::Full { .. })) => {
                tracing::warn!("the disk is full: the ring keeps its day");
            }
            turned => turned?,
        }
        Ok(cleared)
    }

    /// Opens a data directory for reading, beside a server or without one. Nothing is written.
    ///
    /// # Errors
    /// As [`Store::open`]; also when there is nothing to read.
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

/// Identity and newest manifest of a store that was begun, which belong together.
///
/// # Errors
/// When one is missing or damaged, or the log is gone.
pub(super) fn load(blobs: &Blobs) -> Result<(Identity, Manifest)> {
    let identity = Identity::load(blobs)?.ok_or_else(no_identity)?;
    let manifest = Manifest::load(blobs)?.ok_or_else(no_manifest)?;
    check_identity(&identity, &manifest)?;
    check_log_is_there(blobs)?;
    Ok((identity, manifest))
}

pub(super) fn log_options(
    options: &Options,
    identity: &Identity,
    plausible_ms: Option<i64>,
) -> LogOptions {
    LogOptions {
        segment_bytes: options.segment_bytes,
        store_id: identity.store_id,
        plausible_ms,
        trusts_clock: options.trusts_clock,
    }
}

/// The log of a store is begun before its first manifest, and never without a segment since.
fn check_log_is_there(blobs: &Blobs) -> Result<()> {
    if !blobs.list(names::OPLOG)?.is_empty() {
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
) -> Result<(Identity, Manifest, Log)> {
    let blobs = &world.blobs();
    // A crash between log and manifest leaves a log that says nothing.
    let log = scan(blobs.disk(), None, ReadFrom::Sequence(0), &mut |_| Ok(()));
    if !log.is_ok_and(|log| log.end_sequence == 0) {
        return Err(Error::Missing(
            "there is an oplog but no manifest: the manifests were removed; restore `manifests/` from a backup, or make \
             them again from the log with `tallyring recount`"
                .into(),
        ));
    }
    // The log begins before the first manifest, sorted files after it: to go on would remove them all.
    if let Some(file) = any_sorted_file(blobs)? {
        return Err(Error::Missing(format!(
            "there is {file}, but no manifest and no oplog: they were removed, or the blobs that has them is not mounted; \
             put `manifests/` and `oplog/` back, or restore the whole directory from a backup"
        )));
    }
    let identity = match identity {
        Some(identity) => identity,
        None => Identity::create(blobs, world.random)?,
    };
    remove_unfinished(blobs)?;
    let now_ms = world.clock.now_ms();
    let ring = Ring::begin(
        Day::of(now_ms.div_euclid(1_000)),
        options.shards,
        Offset::default(),
    );
    let manifest = Manifest {
        number: 1,
        written_at_ms: now_ms,
        plausible_at_ms: None,
        store_id: identity.store_id_text(),
        intake: IntakeEntry {
            today: ring.today(),
            schemas: vec![SchemaEntry {
                since: Offset::default(),
                schema: schema.clone(),
            }],
            stores: ring.stores().map(DeltaStore::entry).collect(),
            ids: IdsEntry::default(),
            newest_events: BTreeMap::new(),
        },
        archive: ArchiveEntry::default(),
    };
    let (log, _) = Log::open(
        Arc::clone(&world.disk),
        log_options(options, &identity, None),
        now_ms,
        ReadFrom::Sequence(0),
        &mut |_| Ok(()),
    )?;
    manifest.commit(blobs)?;
    Ok((identity, manifest, log))
}

fn no_manifest() -> Error {
    Error::Missing(
        "the data directory has no manifest; `tallyring recount` makes it again from the log"
            .into(),
    )
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
