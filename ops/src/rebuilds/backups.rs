//! Backups after rebuilds, and those that no rebuild of this process made.

use std::path::Path;
use std::sync::Arc;

use tallyring_realtime::Lock;
use tallyring_rebuild::backup::Copied;

use super::Rebuilds;
use crate::backup;
use crate::error::Result;
use crate::strands;
use crate::worker::Work;

impl Rebuilds {
    /// Makes the backup in a thread of its own where it lacks files of a rebuild: that backup failed, or the node that
    /// rebuilt was lost before it was made. The newest job tells how it ended; the log does where this node had none.
    pub(crate) fn start_missing_backup(self: &Arc<Self>) {
        self.start_thread("backup", |this| {
            if this.lacks_backup() {
                this.back_up_again();
            }
        });
    }

    /// Forgets how the last backup of this node ended, while another node makes them.
    pub(crate) fn forget_backup(&self) {
        if let Some(job) = self.last.lock().as_mut() {
            job.backup = None;
        }
    }

    /// True where the backup is behind, and nothing runs that will make one, here or on another node.
    pub(super) fn lacks_backup(&self) -> bool {
        let Some(place) = &self.backup else {
            return false;
        };
        // Held to the end, so that a directory which does not answer lets one thread wait.
        let Some(_one_at_a_time) = self.backing_up.try_lock() else {
            return false;
        };
        let is_free = self.recompressing.try_lock().is_some() && !self.is_busy();
        if !is_free || is_written_to(&self.data, place) {
            return false;
        }
        let last = self.last().and_then(|job| job.backup);
        let has_failed = last.is_some_and(|backup| backup.error.is_some());
        // A backup that cannot be read fails when it is made, which is told.
        let is_behind = || backup::is_behind(&self.data, place, &self.store.manifest());
        has_failed || is_behind().unwrap_or(true)
    }

    /// Makes a backup that no rebuild asked for; false when it failed. A rebuild that ends meanwhile makes a backup of
    /// its own.
    pub(super) fn back_up_again(&self) -> bool {
        const NO_JOB: u64 = 0;
        let Some(backup) = &self.backup else {
            return true;
        };
        let _one_at_a_time = self.backing_up.lock();
        let result = self.back_up(NO_JOB, backup);
        let is_done = result.is_ok();
        self.end_backup(NO_JOB, result);
        is_done
    }

    pub(super) fn back_up(&self, number: u64, backup: &Path) -> Result<Copied> {
        let work = Work::BackUp(backup.to_owned());
        self.in_child(number, &work, &mut Vec::new())
    }

    pub(super) fn end_backup(&self, number: u64, result: Result<Copied>) {
        let mut last = self.last.lock();
        let outcome = backup::outcome(self.store.world().clock.now_ms(), &result);
        match &result {
            Ok(copied) => tracing::info!(
                generation = copied.generation,
                files = copied.files,
                bytes = copied.bytes,
                "backup done"
            ),
            Err(error) => {
                tracing::error!(%error, "backup failed; the backup before it is still valid")
            }
        }
        if let Some(job) = last.as_mut() {
            // A rebuild that began meanwhile will make a backup of its own.
            if job.job == number {
                job.backing_up = false;
                job.progress = None;
            }
            job.backup = Some(outcome);
            self.remember(job);
        }
    }
}

/// True while a process writes to the backup `place` of the data directory `data`.
fn is_written_to(data: &Path, place: &Path) -> bool {
    let place = strands::place_of(data, place);
    place.is_ok_and(|place| Lock::holder(&place).is_ok_and(|holder| holder.is_some()))
}
