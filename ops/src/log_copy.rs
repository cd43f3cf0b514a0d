//! The second copy of the log, as a server takes it.

use std::path::Path;
use std::sync::Arc;

use tallyring_archive::OsDisk;
use tallyring_realtime::oplog::LogCopy;
use tallyring_realtime::{Lock, World};

use crate::backup::check_place;
use crate::config::LogCopyConfig;
use crate::error::{CommandError, Result, doing};

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

/// Opens the second copy, and begins to bring it up to the log.
pub(crate) fn open_log_copy(config: &LogCopyConfig, world: &World) -> Result<LogCopy> {
    let path = config.path.display().to_string();
    let disk = OsDisk::new(&config.path).map_err(doing(format!("open {path}")))?;
    let (log, now_ms) = (Arc::clone(&world.disk), world.clock.now_ms());
    LogCopy::open(log, Arc::new(disk), path.clone(), config.ack, now_ms)
        .map_err(|error| CommandError::Failed(format!("{path}: {error}")))
}
