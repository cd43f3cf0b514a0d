//! `tallyring cluster init --from`: moves the store of one machine to the bucket and the topic of several nodes.

use std::path::Path;
use std::sync::Arc;

use tallyring_archive::{Blobs, OsDisk, names};
use tallyring_cluster::{ClusterSettings, Partition};
use tallyring_realtime::catalog::Catalog;
use tallyring_realtime::oplog::Owner;
use tallyring_realtime::{Options, Store, SystemClock};
use tallyring_rebuild::share::{Share, Shared, is_shared};

use super::{bucket, open_topic};
use crate::config::Config;
use crate::data_directory::{busy, options, random, try_lock_even_moved, world};
use crate::error::{CommandError, Result, doing};
use crate::progress::{bytes_bar, on};

/// Moves the store of a data directory, which is there; none where it was moved before. Fails when a server has it, a
/// file is damaged, bucket or topic have something else, or any of them fails. The directory still serves then, or says
/// that this command is to be run again.
pub(super) fn move_in(
    from: &Path,
    config: &Config,
    settings: &ClusterSettings,
) -> Result<Option<Shared>> {
    let _lock = try_lock_even_moved(from)?.map_err(|holder| busy(from, &holder))?;
    let disk = OsDisk::new(from).map_err(doing(format!("open {}", from.display())))?;
    let disk = Arc::new(disk);
    let local = Blobs::new(disk.clone());
    let shared = Blobs::over(disk, bucket(&settings.files.s3)?);
    let place = place(settings);
    match local.read_if_there(names::MOVED)? {
        None => settle(from, config)?,
        Some(moved) if moved != place.as_bytes() => {
            return Err(CommandError::Usage(format!(
                "{} was moved to {}, and the configuration names {place}; use the one of then",
                from.display(),
                String::from_utf8_lossy(&moved)
            )));
        }
        Some(_) if is_shared(&local, &shared)? => return Ok(None),
        Some(_) => {}
    }
    let topic = open_topic(&settings.log, settings.log.topic.as_str(), Partition::ONLY)?;
    let share = Share::prepare(&local, &shared, topic)?;
    let bar = bytes_bar("moving");
    let sent = share.run(Owner::draw(random), &place, &on(&bar))?;
    bar.finish_and_clear();
    Ok(Some(sent))
}

/// Where the store goes.
fn place(settings: &ClusterSettings) -> String {
    let bucket = String::from(settings.files.s3.clone());
    format!("the topic `{}` and {bucket}", settings.log.topic.as_str())
}

/// Starts the store as a server does, tells its log of all API keys, writes its memory as files, and closes it in good
/// order.
fn settle(from: &Path, config: &Config) -> Result<()> {
    let world = world(from, Arc::new(SystemClock))?;
    let catalog = Catalog::open(&from.join(names::CATALOG))?;
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
    store.intake().adopt_keys(&catalog.keys()?)?;
    store.ledger().flush()?;
    Ok(store.intake().seal()?)
}
