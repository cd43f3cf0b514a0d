//! `tallyring cluster init --from`: moves the store of one machine to the bucket and the topic of several nodes.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use tallyring_archive::{Blobs, OsDisk, names};
use tallyring_cluster::{ClusterSettings, Partition};
use tallyring_realtime::catalog::Catalog;
use tallyring_realtime::oplog::Owner;
use tallyring_realtime::{Lock, Options, Store, SystemClock, is_same_store};
use tallyring_rebuild::share::{Share, Shared, is_shared};

use super::strands::Strand;
use super::{bucket, open_topic};
use crate::config::Config;
use crate::data_directory::{busy, options, random, try_lock_even_moved, world};
use crate::error::{CommandError, Result, doing};
use crate::progress::{bytes_bar, on};

/// Moves the store of a data directory, which is there, with all its strands; none where it was moved before. Fails
/// when a server has it, a file is damaged, bucket or topic have something else, or any of them fails. The directory
/// still serves then, or says that this command is to be run again.
pub(super) fn move_in(
    (from, strands): (&Path, &[Strand]),
    config: &Config,
    settings: &ClusterSettings,
) -> Result<Option<Shared>> {
    let _lock = try_lock_even_moved(from)?.map_err(|holder| busy(from, &holder))?;
    let place = place(settings);
    let whole = Blobs::local(from).map_err(doing(format!("open {}", from.display())))?;
    check_moved(&whole, from, &place)?;
    let moving = strands.iter().map(|strand| Moving::open(from, strand));
    let moving = moving.collect::<Result<Vec<_>>>()?;
    check_restored_together(from, moving.iter().map(|strand| &strand.local))?;
    for (strand, moving) in strands.iter().zip(&moving) {
        strand
            .division
            .map_or(Ok(()), |division| division.put(&moving.shared))?;
    }
    let mut left = Vec::new();
    for strand in moving.iter() {
        if !is_shared(&strand.local, &strand.shared)? {
            left.push(strand);
        }
    }
    if left.is_empty() {
        return Ok(None);
    }
    for strand in &left {
        strand.settle((from, config), &place)?;
    }
    let mut shares = Vec::new();
    for strand in left {
        let partition = strand.partition;
        let topic = open_topic(&settings.log, settings.log.topic.as_str(), partition)?;
        shares.push(Share::prepare(&strand.local, &strand.shared, topic)?);
    }
    // Nodes start once all strands are there, and the directory serves no more once one is.
    if strands.len() > 1 {
        whole.put(names::MOVED, place.as_bytes())?;
    }
    let bar = bytes_bar("moving");
    let mut sent = Shared::default();
    for share in shares {
        let more = share.run(Owner::draw(random), &place, &on(&bar))?;
        sent = Shared {
            files: sent.files + more.files,
            bytes: sent.bytes + more.bytes,
            kept: sent.kept + more.kept,
            records: sent.records + more.records,
            store: more.store,
        };
    }
    bar.finish_and_clear();
    Ok(Some(sent))
}

/// Fails for a directory that was moved elsewhere.
fn check_moved(local: &Blobs, from: &Path, place: &str) -> Result<()> {
    match local.read_if_there(names::MOVED)? {
        Some(moved) if moved != place.as_bytes() => Err(CommandError::Usage(format!(
            "{} was moved to {}, and the configuration names {place}; use the one of then",
            from.display(),
            String::from_utf8_lossy(&moved)
        ))),
        _ => Ok(()),
    }
}

/// Fails where the strands of a directory are of several stores, as where the part of one was put into another's place:
/// no node would start on them, and the directory would serve no more.
fn check_restored_together<'s>(
    from: &Path,
    strands: impl IntoIterator<Item = &'s Blobs>,
) -> Result<()> {
    let mut strands = strands.into_iter().enumerate();
    let Some((_, first)) = strands.next() else {
        return Ok(());
    };
    match strands.find(|(_, strand)| !is_same_store(first, strand)) {
        None => Ok(()),
        Some((number, _)) => Err(CommandError::Failed(format!(
            "strand {number} of {} is not of the store of strand 0: restore all of them from one backup",
            from.display()
        ))),
    }
}

/// A strand on its way.
struct Moving {
    partition: Partition,
    directory: PathBuf,
    local: Blobs,
    shared: Blobs,
    /// The lock of the directory of a strand; the caller has that of the store.
    _lock: Option<Lock>,
}

impl Moving {
    fn open(from: &Path, strand: &Strand) -> Result<Self> {
        let directory = strand.directory(from);
        let lock = strand.division.map(|division| {
            if crate::strands::of(&directory)? != Some(division) {
                return Err(CommandError::Failed(format!(
                    "{} does not have strand {} of the store: restore it from a backup",
                    directory.display(),
                    strand.partition.number
                )));
            }
            try_lock_even_moved(&directory)?.map_err(|holder| busy(&directory, &holder))
        });
        let lock = lock.transpose()?;
        let disk =
            OsDisk::new(&directory).map_err(doing(format!("open {}", directory.display())))?;
        let disk = Arc::new(disk);
        let shared = Blobs::over(disk.clone(), bucket(&strand.s3)?);
        Ok(Self {
            partition: strand.partition,
            local: Blobs::new(disk),
            shared,
            directory,
            _lock: lock,
        })
    }

    /// Has the log and the files complete, unless the directory was marked before. API keys are in the directory `from`
    /// of the whole store.
    fn settle(&self, (from, config): (&Path, &Config), place: &str) -> Result<()> {
        if self.local.read_if_there(names::MOVED)?.is_some() {
            return check_moved(&self.local, &self.directory, place);
        }
        let keys = match self.partition.number {
            0 => Some(Catalog::open(&from.join(names::CATALOG))?),
            _ => None,
        };
        settle(&self.directory, config, keys.as_ref())
    }
}

/// Where the store goes.
fn place(settings: &ClusterSettings) -> String {
    let bucket = String::from(settings.files.s3.clone());
    format!("the topic `{}` and {bucket}", settings.log.topic.as_str())
}

/// Starts a store as a server does, tells its log of all API keys, writes its memory as files, and closes it in good
/// order.
fn settle(from: &Path, config: &Config, keys: Option<&Catalog>) -> Result<()> {
    let world = world(from, Arc::new(SystemClock))?;
    // The file of a node may keep less than that of the server did. Nothing is forgotten on the way.
    let options = Options {
        oplog_days: 36_500,
        oplog_bytes_max: u64::MAX,
        id_hours: 36_500 * 24,
        breakdown_hours: 24,
        final_days: None,
        ..options(config)
    };
    let (store, _) = Store::open_as_it_is(world, options, &config.schema)?;
    if let Some(damaged) = store.status().damaged_files.first() {
        return Err(CommandError::Failed(format!(
            "{damaged} is damaged or missing: heal it with `tallyring verify --repair --data {}`, and run this command \
             again",
            from.display()
        )));
    }
    if let Some(keys) = keys {
        store.intake().adopt_keys(&keys.keys()?)?;
    }
    store.ledger().flush()?;
    Ok(store.intake().seal()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strands_of_several_stores_do_not_move() {
        let directory = tempfile::tempdir().unwrap();
        let stores = ["a", "b"].map(|name| {
            let data = directory.path().join(name);
            let world = world(&data, Arc::new(SystemClock)).unwrap();
            let blobs = world.blobs();
            Store::open_as_it_is(
                world,
                Options::default(),
                &Config::load(None).unwrap().schema,
            )
            .unwrap();
            blobs
        });
        let [a, b] = &stores;
        let from = directory.path();
        check_restored_together(from, [a]).unwrap();
        check_restored_together(from, [a, a, a]).unwrap();
        let refused = check_restored_together(from, [a, a, b])
            .unwrap_err()
            .to_string();
        assert!(refused.starts_with("strand 2 of "), "{refused}");
    }
}
