//! The second copy of the log, as a server takes it. Each strand of a divided store has its own, `DIR/strand-0/` and so
//! on, and the file [`names::STRANDS`] says there what it says in the data directory.

use std::path::Path;
use std::sync::Arc;

use tallyring_archive::{Blobs, OsDisk, names};
use tallyring_realtime::oplog::LogCopy;
use tallyring_realtime::{Lock, World};
use tallyring_records::how_many;

use crate::backup::check_place;
use crate::config::LogCopyConfig;
use crate::error::{CommandError, Result, doing};
use crate::strands::{self, Division};

/// Locks the second copy of the log: two servers never write to one copy.
pub(crate) fn lock_log_copy(path: &Path, data: &Path) -> Result<Lock> {
    check_place(path, data)?;
    let locked = Lock::take(path).map_err(doing(format!(
        "write the second copy of the log to {}",
        path.display()
    )))?;
    locked.map_err(|holder| {
        CommandError::Failed(format!(
            "{} is held by process {}; give each store a second copy of its own",
            path.display(),
            holder.pid
        ))
    })
}

/// Fails where the second copy is that of a store with another number of strands; `division` is none for one with one.
pub(crate) fn check_division(path: &Path, division: Option<Division>) -> Result<()> {
    let there = strands::of(path)?;
    let is_same = match there {
        None => division.is_none() || !path.join(names::OPLOG).is_dir(),
        there => there == division,
    };
    match is_same {
        true => Ok(()),
        false => Err(CommandError::Usage(format!(
            "{} has another second copy than that of the log of a store with {}: name another directory",
            path.display(),
            how_many(
                division.map_or(1, |division| division.strands) as u64,
                "strand"
            )
        ))),
    }
}

/// Where the second copy of the log of a strand is, in a directory that says so. Fails where that is of another store.
pub(crate) fn of_strand(
    copy: &LogCopyConfig,
    (whole, strand): (Division, usize),
) -> Result<LogCopyConfig> {
    let path = strands::directory(&copy.path, strand);
    for (path, division) in [(&copy.path, whole), (&path, whole.at(strand))] {
        check_division(path, Some(division))?;
        let blobs = Blobs::local(path).map_err(doing(format!("open {}", path.display())))?;
        division.put(&blobs)?;
    }
    Ok(LogCopyConfig {
        path,
        ..copy.clone()
    })
}

/// Opens the second copy, and begins to bring it up to the log.
pub(crate) fn open_log_copy(config: &LogCopyConfig, world: &World) -> Result<LogCopy> {
    let path = config.path.display().to_string();
    let disk = OsDisk::new(&config.path).map_err(doing(format!("open {path}")))?;
    let (log, now_ms) = (Arc::clone(&world.disk), world.clock.now_ms());
    LogCopy::open(log, Arc::new(disk), path.clone(), config.ack, now_ms)
        .map_err(|error| CommandError::Failed(format!("{path}: {error}")))
}
