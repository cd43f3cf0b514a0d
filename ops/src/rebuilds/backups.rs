//! Backups: after rebuilds, and where the one that there is lacks what rebuilds made.
//!
//! Invariant: a node tells of backups that ended since it began to write, and of none before, because another node may
//! have made newer ones. Nothing is kept: the backup itself tells whether it is whole.
//!
//! A directory may hang, as one of a network file system does whose server is gone. No lock is held while a thread
//! looks at it, and a child that copies there keeps files from changing for an hour at most.

use std::collections::BTreeSet;
use std::panic::resume_unwind;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::thread;
use std::time::Duration;

use parking_lot::MutexGuard;
use tallyring_api::{BackupOutcome, BackupState};
use tallyring_archive::{Blobs, Manifest, Origin, names};
use tallyring_realtime::Lock;
use tallyring_realtime::catalog::JobProgress;
use tallyring_rebuild::backup::Copied;
use tallyring_rebuild::orders::HUNG_MS;

use super::Rebuilds;
use crate::child::{Leash, follow_on};
use crate::error::{CommandError, Result, doing};
use crate::strands;
use crate::worker::Work;

/// Pause after a backup that failed, milliseconds.
const RETRY_AFTER_MS: i64 = 600_000;

/// How often it is seen that another process writes to the backup no more.
const LOOK: Duration = Duration::from_secs(1);
/// How often it is seen that a child has ended, or hangs.
const LOOK_AT_CHILD: Duration = Duration::from_millis(100);

/// How backups stand in one epoch of the log. In another one another node may have made newer ones.
#[derive(Default)]
pub(super) struct Backups {
    epoch: Option<u32>,
    /// How many run, or wait to, in whatever epoch they began.
    pub(super) running: usize,
    state: BackupState,
}

/// A backup that runs, or is about to; it tells how it ended.
#[must_use]
pub(super) struct Begun {
    epoch: Option<u32>,
}

/// The work of a child that copies.
type Child<'c, T> = dyn Fn(&Leash, &(dyn Fn(JobProgress) + Sync)) -> Result<T> + Sync + 'c;

impl Rebuilds {
    /// How backups stand; none where none is to be made, or another node writes and makes them.
    pub(crate) fn last_backup(&self) -> Option<BackupState> {
        self.backup.as_ref()?;
        let epoch = self.store.intake().epoch()?;
        Some(self.backups_of(Some(epoch)).state.clone())
    }

    /// How backups stand in this epoch. Nothing is known of those that ended in another one.
    fn backups_of(&self, epoch: Option<u32>) -> MutexGuard<'_, Backups> {
        let mut backups = self.backups.lock();
        if backups.epoch != epoch {
            backups.epoch = epoch;
            backups.state.ended = None;
        }
        backups
    }

    /// Looks in a thread of its own whether the backup lacks files of a rebuild, and makes it then: the node that
    /// rebuilt was lost before, or the backup failed.
    pub(crate) fn start_missing_backup(self: &Arc<Self>) {
        if self.backup.is_some() && self.last_backup().is_some_and(|known| self.is_due(&known)) {
            self.start_thread("backup", Self::make_missing_backup);
        }
    }

    pub(super) fn make_missing_backup(&self) {
        let Some(place) = &self.backup else {
            return;
        };
        let is_other_work = self.recompressing.try_lock().is_none() || self.is_rebuilding();
        if is_other_work {
            return;
        }
        // A directory that does not answer is told of as a backup that runs.
        if let Some(begun) = self.begin_due_backup() {
            self.end_backup(begun, self.missing_backup(place));
        }
    }

    /// The outcome of the backup that there is, or else of the one that is made; none while another process makes it,
    /// and where a single server has none yet: its first comes with a rebuild, because a disk may be mounted later.
    fn missing_backup(&self, place: &Path) -> Option<BackupOutcome> {
        if is_written_to(&self.data, place) {
            return None;
        }
        let ended = self.last_backup().and_then(|backup| backup.ended);
        let has_failed = ended.is_some_and(|ended| ended.error.is_some());
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

    /// True where no backup is known to have ended well since this node began to write, none failed a moment ago, and
    /// none runs. Each rebuild of this node makes its own.
    fn is_due(&self, known: &BackupState) -> bool {
        let is_due = known.ended.as_ref().is_none_or(|ended| {
            let passed_ms = self.store.world().clock.now_ms() - ended.ended_ms;
            ended.error.is_some() && passed_ms >= RETRY_AFTER_MS
        });
        is_due && known.running_since_ms.is_none()
    }

    /// Makes a backup that no rebuild asked for; false when it failed, or this node writes no more.
    pub(super) fn back_up_again(&self) -> bool {
        let Some(place) = &self.backup else {
            return true;
        };
        let begun = self.begin_backup();
        let outcome = self.back_up_in_turn(place);
        let is_done = (outcome.as_ref()).is_some_and(|outcome| outcome.error.is_none());
        self.end_backup(begun, outcome);
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
        Some(self.back_up(place))
    }

    fn back_up(&self, place: &Path) -> BackupOutcome {
        let work = Work::BackUp(place.to_owned());
        let child: &Child<'_, Copied> =
            &|leash, heard| follow_on(leash, &self.data, &work, heard, &mut Vec::new());
        let result = self.while_files_stay(child);
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

    /// Has a child copy, after others that do, and lets other work change files once it has ended or came no further
    /// for an hour. Then it is let go, but a disk that hangs may not let it end: this waits for that.
    pub(super) fn while_files_stay<T: Send>(&self, child: &Child<'_, T>) -> Result<T> {
        let mut files_stay = Some(self.backing_up.lock());
        let (leash, clock) = (Leash::default(), &self.store.world().clock);
        let advanced_ms = AtomicI64::new(clock.elapsed_ms());
        let heard = |progress| {
            self.backups.lock().state.progress = Some(progress);
            advanced_ms.store(clock.elapsed_ms(), Ordering::Relaxed);
        };
        let copied = thread::scope(|scope| {
            let copying = scope.spawn(|| child(&leash, &heard));
            while !copying.is_finished() {
                let equal_ms = clock.elapsed_ms() - advanced_ms.load(Ordering::Relaxed);
                if files_stay.is_some() && equal_ms >= HUNG_MS {
                    tracing::error!("the backup came no further for an hour, and is given up");
                    leash.let_go();
                    files_stay = None;
                }
                thread::sleep(LOOK_AT_CHILD);
            }
            copying.join().unwrap_or_else(|panic| resume_unwind(panic))
        });
        match leash.is_let_go() {
            true => {
                let why = "it came no further for an hour: look whether its directory answers";
                Err(CommandError::Failed(why.into()))
            }
            false => copied,
        }
    }

    /// Notes that a backup runs, or is about to.
    pub(super) fn begin_backup(&self) -> Begun {
        let epoch = self.store.intake().epoch();
        self.begin_among(self.backups_of(epoch))
    }

    /// Notes that a backup runs where one is due; the one of a rebuild may have ended since the look, or begun.
    fn begin_due_backup(&self) -> Option<Begun> {
        let epoch = self.store.intake().epoch()?;
        let backups = self.backups_of(Some(epoch));
        (self.is_due(&backups.state)).then(|| self.begin_among(backups))
    }

    fn begin_among(&self, mut backups: MutexGuard<'_, Backups>) -> Begun {
        backups.running += 1;
        let now_ms = self.store.world().clock.now_ms();
        backups.state.running_since_ms.get_or_insert(now_ms);
        Begun {
            epoch: backups.epoch,
        }
    }

    /// Notes how a backup ended; with none, that there was nothing to do.
    pub(super) fn end_backup(&self, begun: Begun, outcome: Option<BackupOutcome>) {
        let mut backups = self.backups.lock();
        backups.running -= 1;
        let is_of_epoch = backups.epoch == begun.epoch;
        let state = &mut backups.state;
        state.ended = outcome.filter(|_| is_of_epoch).or(state.ended.take());
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
