//! Opens a data directory: its lock, its files, its store.

use std::collections::{BTreeMap, BTreeSet};
use std::io::ErrorKind;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use tallyring_archive::{Blobs, Manifest, OsDisk, PartCache, names};
use tallyring_realtime::{
    Clock, Holder, Lock, Options, Recovery, Store, SystemClock, World, memory,
};
use tallyring_records::Schema;

#[cfg(feature = "cluster")]
use crate::cluster::{blobs_of_node, bring_up};
use crate::config::Config;
use crate::error::{CommandError, Result, doing};
use crate::lists;
use crate::out::note;
use crate::strands;

/// How often, and after which pauses, [`lock`] looks again: five seconds.
const LOOKS: u32 = 100;
const PAUSE: Duration = Duration::from_millis(50);

/// Takes the lock; an error names the process that holds it. A command such as `load` holds the lock for a moment, so
/// the lock of a process that is no server is waited for. Fails when another process holds it, or the directory cannot
/// be written.
pub(crate) fn lock(data: &Path) -> Result<Lock> {
    let mut taken = try_lock(data)?;
    for _ in 0..LOOKS {
        match taken {
            Err(Holder { url: None, .. }) => std::thread::sleep(PAUSE),
            _ => break,
        }
        taken = try_lock(data)?;
    }
    match taken {
        Ok(lock) => Ok(lock),
        Err(holder) => Err(busy(data, &holder)),
    }
}

/// The error for a directory that another process holds.
pub(crate) fn busy(data: &Path, holder: &Holder) -> CommandError {
    CommandError::Failed(format!(
        "{} is held by process {}{}; stop it, or use another --data directory",
        data.display(),
        holder.pid,
        holder
            .url
            .as_ref()
            .map(|url| format!(" ({url})"))
            .unwrap_or_default()
    ))
}

/// Takes the lock, or returns the process that holds it. Fails when the directory cannot be written, is a copy that
/// must not be changed, or went to a cluster.
pub(crate) fn try_lock(data: &Path) -> Result<Result<Lock, Holder>> {
    refuse_moved(data)?;
    try_lock_even_moved(data)
}

/// As [`try_lock`], also of a directory that went to a cluster.
pub(crate) fn try_lock_even_moved(data: &Path) -> Result<Result<Lock, Holder>> {
    let copies = [
        (
            names::BACKUP,
            "is a backup; `tallyring restore` makes a data directory of it",
        ),
        (
            names::RESTORING,
            "is half restored; run `tallyring restore` again",
        ),
    ];
    for (marker, what) in copies {
        if data.join(marker).exists() {
            return Err(CommandError::Usage(format!("{} {what}", data.display())));
        }
    }
    Lock::take(data).map_err(doing(format!(
        "write to the data directory {}",
        data.display()
    )))
}

/// Fails for a directory whose store went to a cluster, and where that cannot be told.
pub(crate) fn refuse_moved(data: &Path) -> Result<()> {
    let mark = data.join(names::MOVED);
    match std::fs::read_to_string(&mark) {
        Ok(place) => Err(CommandError::Usage(format!(
            "{} is served no more: `tallyring cluster init --from` moved its store to {place}, and its nodes serve it; \
             if that command did not end well, run it again",
            data.display(),
        ))),
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {
            Ok(())
        }
        Err(error) => Err(doing(format!("read {}", mark.display()))(error)),
    }
}

/// Returns the URL of the server that holds the directory; `None` when no server holds it. Changes nothing.
pub(crate) fn server_of(data: &Path) -> Option<String> {
    Lock::holder(data).ok().flatten()?.url
}

/// The disk, clock and randomness of this process.
pub(crate) fn world(data: &Path, clock: Arc<dyn Clock>) -> Result<World> {
    refuse_node(data)?;
    refuse_moved(data)?;
    strands::refuse_whole(data)?;
    let disk =
        OsDisk::new(data).map_err(doing(format!("make the data directory {}", data.display())))?;
    Ok(World {
        disk: Arc::new(disk),
        objects: None,
        clock,
        random,
    })
}

/// Fails for the directory of a node.
pub(crate) fn refuse_node(data: &Path) -> Result<()> {
    match is_of_node(data) {
        false => Ok(()),
        true => Err(CommandError::Usage(format!(
            "{} is the directory of a node of a cluster, whose store several nodes share: ask one of them, or start it \
             with its section [cluster]",
            data.display()
        ))),
    }
}

/// Opens the files of a data directory with one strand, whether another process holds it or not.
pub(crate) fn blobs(data: &Path) -> Result<Blobs> {
    strands::refuse_whole(data)?;
    if is_of_node(data) {
        return blobs_of_node(data);
    }
    Blobs::local(data).map_err(doing(format!("open the data directory {}", data.display())))
}

/// Brings a stopped node's copy of the log up to its end, where the directory is a node's. The node cannot start while
/// the returned lock is held; none where the node runs. Fails when the log cannot be read.
pub(crate) fn bring_up_node(data: &Path) -> Result<Option<Lock>> {
    match is_of_node(data) {
        true => bring_up(data),
        false => Ok(None),
    }
}

/// True for the directory of a node, whose blobs lie in a bucket.
pub(crate) fn is_of_node(data: &Path) -> bool {
    data.join(names::NODE).exists()
}

#[cfg(not(feature = "cluster"))]
fn blobs_of_node(data: &Path) -> Result<Blobs> {
    Err(not_in_this_build(data))
}

#[cfg(not(feature = "cluster"))]
fn bring_up(data: &Path) -> Result<Option<Lock>> {
    Err(not_in_this_build(data))
}

#[cfg(not(feature = "cluster"))]
fn not_in_this_build(data: &Path) -> CommandError {
    CommandError::Usage(format!(
        "{} is the directory of a node of a cluster, and this is the build of this program for a single machine; use \
         the one with the cargo feature `cluster`",
        data.display()
    ))
}

/// Returns the newest manifest. Fails when no manifest exists, or it is damaged.
pub(crate) fn manifest(blobs: &Blobs) -> Result<Manifest> {
    Manifest::load(blobs)?.ok_or_else(|| {
        CommandError::Failed("the data directory has no manifest; restore it from a backup".into())
    })
}

/// Opens the store of a data directory for a command. The caller holds the lock for longer than the store. Fails when
/// the store is damaged.
pub(crate) fn open(data: &Path, config: &Config, _held: &Lock) -> Result<Store> {
    let world = world(data, Arc::new(SystemClock))?;
    let (store, _) = open_store(world, config)?;
    Ok(store)
}

/// The options of a store with a configuration file.
pub(crate) fn options(config: &Config) -> Options {
    Options {
        drops_evidence: !config.writes.evidence,
        ..config.options
    }
}

/// Opens the store of a data directory, and declares the schema of a configuration file. Fails when the store is
/// damaged.
pub(crate) fn open_store(world: World, config: &Config) -> Result<(Store, Recovery)> {
    let options = options(config);
    let opened = if config.declares {
        let schema = lists::declare(&world.blobs(), config, &|_| None)?;
        Store::open(world, options, schema)
    } else {
        Store::open_as_it_is(world, options, &config.schema)
    };
    Ok(opened?)
}

/// Fails where the strands of `place` are of several stores, as where the part of one was put into another's place.
pub(crate) fn check_one_store<'s>(
    place: &str,
    strands: impl IntoIterator<Item = &'s Store>,
) -> Result<()> {
    let ids = strands
        .into_iter()
        .map(|store| store.manifest().store_id.clone());
    match &*BTreeSet::from_iter(ids).into_iter().collect::<Vec<_>>() {
        [one, other, ..] => Err(CommandError::Failed(format!(
            "the strands of {place} are of several stores, such as {one} and {other}"
        ))),
        _ => Ok(()),
    }
}

/// Removes parts of files that no manifest of these strands names from the cache that they share.
pub(crate) fn keep_named(cache: &PartCache, strands: &[Arc<Store>]) {
    let manifests: Vec<_> = strands.iter().map(|store| store.manifest()).collect();
    cache.keep_only(manifests.iter().flat_map(|manifest| manifest.file_names()));
}

/// Tells the log and the manifest which settings a server without a file runs with: the declarations stay in force, and
/// `strict`, caps and the like do not. Where the log takes no record, the server says so and serves all the same.
pub(crate) fn tell_settings(store: &Store) {
    let schema = Schema {
        settings: BTreeMap::new(),
        ..Schema::clone(&store.schema())
    };
    if let Err(error) = store.declare(schema) {
        tracing::warn!(%error, "the audit trail is not told which settings hold without a configuration file");
    }
}

/// Fails where [`require_store_even_moved`] does, and for a directory whose store went to a cluster.
pub(crate) fn require_store(data: &Path) -> Result<()> {
    refuse_moved(data)?;
    require_store_even_moved(data)
}

/// Checks that a data directory exists. Fails when it does not exist.
pub(crate) fn require_store_even_moved(data: &Path) -> Result<()> {
    if is_store(data)? {
        return Ok(());
    }
    Err(CommandError::Failed(format!(
        "{} is no data directory; name one with --data, or make one with `tallyring serve`",
        data.display()
    )))
}

/// Checks that a data directory exists, which may be damaged and have lost its identity.
pub(crate) fn require_some_store(data: &Path) -> Result<()> {
    match data.join(names::MANIFESTS).is_dir() {
        true => Ok(()),
        false => require_store(data),
    }
}

/// True when a data directory exists.
pub(crate) fn is_store(data: &Path) -> Result<bool> {
    if is_of_node(data) || strands::of(data)?.is_some() {
        return Ok(true);
    }
    let identity = data.join(names::IDENTITY);
    identity
        .try_exists()
        .map_err(doing(format!("read {}", identity.display())))
}

/// Opens a data directory for reading, whether another process holds it or not. Fails when it does not exist, or is
/// damaged.
pub(crate) fn open_read_only(data: &Path) -> Result<Store> {
    require_store(data)?;
    Ok(Store::open_read_only(
        world(data, Arc::new(SystemClock))?,
        Options::for_memory(memory::available()),
    )?)
}

/// As [`open_read_only`], to answer questions about all counts. Fails for a store with several strands, too, and for
/// one of them.
pub(crate) fn open_to_answer(data: &Path) -> Result<Store> {
    refuse_node(data)?;
    strands::refuse_any(data)?;
    open_read_only(data)
}

/// Fills a buffer with random bytes of the operating system.
pub(crate) fn random(bytes: &mut [u8]) {
    use std::io::Read;
    let filled =
        std::fs::File::open("/dev/urandom").and_then(|mut source| source.read_exact(bytes));
    if let Err(error) = filled {
        // Without randomness the secret of a store could be guessed, so no store is made.
        note!("error: cannot read /dev/urandom: {error}");
        std::process::exit(1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_directory_of_a_node_is_not_taken_for_that_of_a_store() {
        let directory = tempfile::tempdir().unwrap();
        let data = directory.path();
        assert!(!is_store(data).unwrap());
        std::fs::write(data.join(names::NODE), "{}").unwrap();
        assert!(is_store(data).unwrap());
        let refused = world(data, Arc::new(SystemClock)).err();
        let refused = refused.map(|error| error.to_string()).unwrap_or_default();
        assert!(refused.contains("[cluster]"), "{refused}");
        assert!(blobs(data).is_err(), "it names no bucket");
        assert!(bring_up_node(data).is_err(), "nor a topic");
    }

    #[test]
    fn a_directory_whose_store_went_to_a_cluster_says_where_it_is() {
        let directory = tempfile::tempdir().unwrap();
        let data = directory.path();
        std::fs::write(data.join(names::MOVED), "the topic `t` and s3://b").unwrap();
        let refused = [
            lock(data).map(drop).unwrap_err(),
            world(data, Arc::new(SystemClock)).map(drop).unwrap_err(),
        ];
        for refused in refused.map(|error| error.to_string()) {
            assert!(refused.contains("to the topic `t` and s3://b"), "{refused}");
        }
        assert!(try_lock_even_moved(data).unwrap().is_ok());
    }

    #[test]
    fn a_lock_that_a_command_holds_is_waited_for_and_that_of_a_server_is_not() {
        let directory = tempfile::tempdir().unwrap();
        let data = directory.path();
        let command = lock(data).unwrap();
        let taken = std::thread::scope(|scope| {
            let waiting = scope.spawn(|| lock(data));
            drop(command);
            waiting.join().unwrap()
        });
        let mut server = taken.unwrap();
        server.announce("http://127.0.0.1:1").unwrap();
        let refused = lock(data).unwrap_err().to_string();
        assert!(refused.contains("http://127.0.0.1:1"), "{refused}");
    }
}
