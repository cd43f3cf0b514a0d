//! Backups: after rebuilds, and where the one that there is lacks what rebuilds made.
//!
//! Invariant: a node tells of backups since it began to write, and of none before, because another node may have made
//! newer ones. Nothing is kept: the backup itself tells whether it is whole.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use tallyring_api::{BackupOutcome, BackupState};
use tallyring_archive::{Blobs, Manifest, Origin, names};
use tallyring_realtime::Lock;
use tallyring_rebuild::backup::Copied;

use super::Rebuilds;
use crate::error::{Result, doing};
use crate::worker::Work;
use crate::{child, strands};

/// Pause after a backup that failed, milliseconds.
const RETRY_AFTER_MS: i64 = 600_000;

/// How often it is seen that another process writes to the backup no more.
const LOOK: Duration = Duration::from_secs(1);

/// How backups stand in one epoch of the log. In another one another node may have made newer ones.
#[derive(Default)]
pub(super) struct Backups {
    epoch: Option<u32>,
    /// How many run, or wait to.
    running: usize,
    state: BackupState,
}

impl Rebuilds {
    /// How backups stand; none where none is to be made, or another node writes and makes them.
    pub(crate) fn last_backup(&self) -> Option<BackupState> {
        self.backup.as_ref()?;
        let epoch = self.store.intake().epoch()?;
        let backups = self.backups.lock();
        Some(match backups.epoch == Some(epoch) {
            true => backups.state.clone(),
            false => BackupState::default(),
        })
    }

    /// Looks in a thread of its own whether the backup lacks files of a rebuild, and makes it then: the node that
    /// rebuilt was lost before, or the backup failed.
    pub(crate) fn start_missing_backup(self: &Arc<Self>) {
        if self.backup.is_some() && self.is_backup_due() {
            self.start_thread("backup", Self::make_missing_backup);
        }
    }

    pub(super) fn make_missing_backup(&self) {
        let Some(place) = &self.backup else {
            return;
        };
        let Some(_one_at_a_time) = self.backing_up.try_lock() else {
            return;
        };
        let is_other_work = self.recompressing.try_lock().is_none() || self.is_busy();
        // The backup of a rebuild may have ended since the look.
        if is_other_work || !self.is_backup_due() {
            return;
        }
        // A directory that does not answer is told of as a backup that runs.
        self.begin_backup();
        self.end_backup(self.missing_backup(place));
    }

    /// The outcome of the backup that there is, or else of the one that is made; none while another process makes it,
    /// and where a single server has none yet: its first comes with a rebuild, because a disk may be mounted later.
    fn missing_backup(&self, place: &Path) -> Option<BackupOutcome> {
        if is_written_to(&self.data, place) {
            return None;
        }
        let has_failed = (self.last_backup()).is_some_and(|backup| backup.ended.is_some());
        let is_single = self.store.world().objects.is_none();
        if is_single && !has_failed && !place.join(names::BACKUP).exists() {
            return None;
        }
        let current = current(&self.data, place, &self.store.manifest());
        match current {
            Ok(Some(current)) if !has_failed => Some(current),
            // One that cannot be read fails when it is made, which is told.
            _ => Some(self.back_up(place)),
        }
    }

    /// True where no backup is known to have ended well since this node began to write, and none failed a moment ago.
    /// Each rebuild of this node makes its own.
    fn is_backup_due(&self) -> bool {
        let ended = self.last_backup().and_then(|backup| backup.ended);
        ended.is_none_or(|ended| {
            let passed_ms = self.store.world().clock.now_ms() - ended.ended_ms;
            ended.error.is_some() && passed_ms >= RETRY_AFTER_MS
        })
    }

    /// Makes a backup that no rebuild asked for; false when it failed, or this node writes no more.
    pub(super) fn back_up_again(&self) -> bool {
        let Some(place) = &self.backup else {
            return true;
        };
        self.begin_backup();
        let outcome = self.back_up_in_turn(place);
        let is_done = (outcome.as_ref()).is_some_and(|outcome| outcome.error.is_none());
        self.end_backup(outcome);
        is_done
    }

    /// Makes a backup once no other process writes to it: a node that was deposed may be making one still. None where
    /// this node writes no more before that.
    pub(super) fn back_up_in_turn(&self, place: &Path) -> Option<BackupOutcome> {
        let intake = self.store.intake();
        let epoch = intake.epoch();
        while is_written_to(&self.data, place) {
            if intake.epoch() != epoch {
                return None;
            }
            thread::sleep(LOOK);
        }
        let _one_at_a_time = self.backing_up.lock();
        Some(self.back_up(place))
    }

    fn back_up(&self, place: &Path) -> BackupOutcome {
        let work = Work::BackUp(place.to_owned());
        let heard = |progress| self.backups.lock().state.progress = Some(progress);
        let result: Result<Copied> = child::follow(&self.data, &work, &heard, &mut Vec::new());
        match &result {
            Ok(copied) => tracing::info!(
                generation = copied.generation,
                files = copied.files,
                bytes = copied.bytes,
                "backup done"
            ),
            Err(error) => {
                tracing::error!(%error, "backup failed; the backup before it is still valid");
            }
        }
        outcome(self.store.world().clock.now_ms(), &result)
    }

    /// True while a backup runs, or waits to.
    pub(super) fn is_backing_up(&self) -> bool {
        self.backups.lock().running > 0
    }

    /// Notes that a backup runs, or is about to.
    pub(super) fn begin_backup(&self) {
        let epoch = self.store.intake().epoch();
        let mut backups = self.backups.lock();
        if backups.epoch != epoch {
            (backups.epoch, backups.state) = (epoch, BackupState::default());
        }
        backups.running += 1;
        let now_ms = self.store.world().clock.now_ms();
        backups.state.running_since_ms.get_or_insert(now_ms);
    }

    /// Notes how a backup ended; with none, that there was nothing to do.
    pub(super) fn end_backup(&self, outcome: Option<BackupOutcome>) {
        let mut backups = self.backups.lock();
        backups.running -= 1;
        let state = &mut backups.state;
        state.ended = outcome.or(state.ended.take());
        state.progress = None;
        if backups.running == 0 {
            backups.state.running_since_ms = None;
        }
    }
}

/// True while a process writes to the backup `place` of the data directory `data`.
fn is_written_to(data: &Path, place: &Path) -> bool {
    let place = strands::place_of(data, place);
    place.is_ok_and(|place| Lock::holder(&place).is_ok_and(|holder| holder.is_some()))
}

/// The backup `place` of the data directory `data`, as if it had just been made; none where there is none yet, or where
/// it lacks files that rebuilds made up to this manifest of the directory. Fails when it cannot be read.
fn current(data: &Path, place: &Path, manifest: &Manifest) -> Result<Option<BackupOutcome>> {
    let place = strands::place_of(data, place)?;
    let copied = match place.join(names::MANIFESTS).is_dir() {
        true => Manifest::load(&Blobs::local(&place).map_err(doing("open the backup"))?)?,
        false => None,
    };
    let whole = copied.filter(|copied| rebuilt(manifest).is_subset(&rebuilt(copied)));
    Ok(whole.map(|copied| BackupOutcome {
        ended_ms: copied.written_at_ms,
        generation: Some(copied.archive.active),
        ..BackupOutcome::default()
    }))
}

/// Names of the files of a manifest that rebuilds made.
fn rebuilt(manifest: &Manifest) -> BTreeSet<&str> {
    let archive = &manifest.archive;
    let runs = archive.runs.iter();
    let exports = runs.filter(|run| matches!(run.origin, Origin::Export { .. }));
    let generations = archive.generations.iter();
    let files = generations.flat_map(|generation| &generation.files);
    files.chain(exports).map(|file| &*file.name).collect()
}

/// Describes a backup that ended; `ended_ms` is in Unix milliseconds.
fn outcome(ended_ms: i64, result: &Result<Copied>) -> BackupOutcome {
    let copied = result.as_ref().ok();
    BackupOutcome {
        ended_ms,
        generation: copied.map(|copied| copied.generation),
        files: copied.map_or(0, |copied| copied.files),
        bytes: copied.map_or(0, |copied| copied.bytes),
        error: result.as_ref().err().map(ToString::to_string),
    }
}
