//! The root: which files count, and every change of that.
//!
//! [`Ledger`] owns the manifest and the open files that the manifest names. Each change of what is counted where
//! (flush, cut, publish, adopt, correct, drop, roll back, replace) is one new manifest, committed under the lock of the
//! root. The ledger owns the [`Intake`], so the locks of [`Intake`] are taken after its own. No other lock is taken
//! while the lock of the names of damaged files is held.
//!
//! This folder knows nothing of how increments are judged or how queries are answered.

mod datasets;
mod files;
mod finals;
mod fixes;
mod flush;
mod follow;
mod logged;
mod publish;
mod recount_store;
mod scrub;
mod shown;
mod sweep;

use std::collections::BTreeSet;
use std::mem;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicBool, AtomicU64};

use tallyring_archive::{Blobs, Manifest, Swept, manifest, names};
use tallyring_records::Day;

use crate::error::{Error, Result};
use crate::intake::{Intake, is_after};
use crate::oplog::event_days;
use crate::sync::{Mutex, MutexGuard};

pub use datasets::{broken_final, check_dataset_name, check_final_load};
pub use finals::Final;
pub use fixes::Fix;

pub(crate) use files::{Files, remove_copies};
pub(crate) use follow::Newer;
pub(crate) use shown::find_whole;

pub use shown::Waiting;
pub use sweep::ObjectsStay;

use logged::FinalsInLog;
use sweep::Sweeps;

/// The root of one data directory.
pub struct Ledger {
    blobs: Blobs,
    root: Mutex<Root>,
    /// Names of files that were found damaged.
    damaged: Mutex<BTreeSet<String>>,
    /// The state of the files that a store without a log cannot show.
    waiting: Mutex<Option<Waiting>>,
    /// Set when a read met damage that was not known.
    found_by_reads: AtomicBool,
    /// One more than the epoch in which the last flush failed; 0 where it did not.
    flush_failed: AtomicU64,
    /// Old objects that go. Its lock is taken before that of the root.
    sweeps: Mutex<Sweeps>,
    swept: Mutex<Swept>,
    /// Times from which on objects stay, Unix milliseconds: one for each [`ObjectsStay`].
    staying: Mutex<Vec<i64>>,
    intake: Intake,
}

/// The committed manifest and the open files that it names.
struct Root {
    manifest: Manifest,
    files: Files,
    /// The reason why this process must not change the manifest any more.
    uncertain: Option<String>,
    /// Whether commits are noted in the log. They are not while the log is replayed, when its end must not move.
    notes_commits: bool,
    finals: FinalsInLog,
}

impl Ledger {
    /// Begins with a manifest and its open files.
    pub(crate) fn new(manifest: Manifest, files: Files, intake: Intake) -> Self {
        Self {
            blobs: intake.world().blobs(),
            damaged: Mutex::new(files.lost()),
            waiting: Mutex::new(None),
            found_by_reads: AtomicBool::new(false),
            flush_failed: AtomicU64::new(0),
            sweeps: Mutex::new(Sweeps::default()),
            swept: Mutex::new(Swept::default()),
            staying: Mutex::default(),
            root: Mutex::new(Root {
                finals: FinalsInLog::of(&manifest),
                manifest,
                files,
                uncertain: None,
                notes_commits: false,
            }),
            intake,
        }
    }

    /// The intake.
    pub fn intake(&self) -> &Intake {
        &self.intake
    }

    /// The reason why this process must be restarted, if it can no longer change the manifest.
    pub fn must_restart(&self) -> Option<String> {
        match self.root.try_lock() {
            Ok(root) => root.uncertain.clone(),
            // The holder of the lock is changing the manifest, so it may change it.
            Err(_) => None,
        }
    }

    /// Removes log segments that are flushed, outside of the window of ids, and old enough. Returns the number of
    /// removed segments.
    pub fn expire_log(&self) -> Result<usize> {
        // It can be packed, or go, once a restart needs nothing of it.
        let flushed = match self.intake.end_segment_with_persons()? {
            true => self.flush(),
            false => Ok(()),
        };
        // A full disk may be why nothing can be flushed.
        let removed = self.make_room_in_log()?;
        flushed.map(|()| removed)
    }

    /// As [`Self::expire_log`], but ends no segment, so the call can be repeated within seconds.
    pub fn make_room_in_log(&self) -> Result<usize> {
        let needed = self.root().manifest.intake.log_from();
        self.intake.expire_log(needed, &|first, behind_ms| {
            self.note_days_that_leave(first, behind_ms)
        })
    }

    /// Names days in a manifest of which the segment of the log that begins with the record `first` has events, where
    /// the segments behind it, the earliest begun at `behind_ms`, may not tell that they leave the log: the clock was
    /// set back. Days of a segment that cannot be read are not known.
    fn note_days_that_leave(&self, first: u64, behind_ms: i64) -> Result<()> {
        let days = match event_days(self.blobs.disk(), first) {
            Ok(days) => days,
            Err(error) => {
                tracing::warn!(%error, "a segment leaves the log, and cannot be read");
                return Ok(());
            }
        };
        let hidden = |day: &Day| is_after(behind_ms, *day);
        let mut left: BTreeSet<Day> = days.into_iter().filter(hidden).collect();
        let mut root = self.root();
        if left.is_subset(&root.manifest.intake.left_log) {
            return Ok(());
        }
        let mut next = self.next_manifest(&root)?;
        next.intake.left_log.append(&mut left);
        self.commit_manifest(&mut root, next)?;
        self.intake.live().name(&root.manifest);
        Ok(())
    }

    /// First record of the oldest segment of the log that can be packed, from the record `from` on: one that is written
    /// no more and that a restart would not replay. Fails when the store is open for reading only.
    pub fn to_pack(&self, from: u64) -> Result<Option<u64>> {
        let needed = self.root().manifest.intake.log_from();
        self.intake.to_pack(from, needed)
    }

    /// Packs the segment of the log that begins with this record, which [`Self::to_pack`] named. Returns false when the
    /// segment is gone. After an error the log is as it was. Fails soon after `stop` is set, when the segment is
    /// damaged, and when the disk fails or is full.
    pub fn pack(&self, first_sequence: u64, stop: &AtomicBool) -> Result<bool> {
        self.intake.pack(first_sequence, stop)
    }

    /// First record of the oldest packed segment of the log in which erased users are to be looked for on this day, a
    /// number of UTC days. Fails when the store is open for reading only.
    pub fn to_redact(&self, day: i64) -> Result<Option<u64>> {
        self.intake.to_redact(day)
    }

    /// Takes erased users out of the segment of the log that begins with this record, which [`Self::to_redact`] named.
    /// Returns false when it has none, or is gone. After an error, log and second copy each have the segment as it was
    /// or without these users. Fails soon after `stop` is set, when the segment is damaged, and when a disk fails or is
    /// full.
    pub fn redact(&self, first_sequence: u64, day: i64, stop: &AtomicBool) -> Result<bool> {
        self.intake.redact(first_sequence, day, stop)
    }

    /// The intake, while nothing else uses the store.
    pub(crate) fn intake_mut(&mut self) -> &mut Intake {
        &mut self.intake
    }

    /// Notes every commit in the log from now on.
    pub(crate) fn note_commits(&self) {
        self.root().notes_commits = true;
    }

    /// The next manifest, with the content of the current one. Manifests are numbered without gaps. Fails when this
    /// process must not change the manifest any more.
    fn next_manifest(&self, root: &Root) -> Result<Manifest> {
        root.check()?;
        let now_ms = self.intake.world().clock.now_ms();
        let mut next = Manifest {
            number: root.manifest.number + 1,
            written_at_ms: now_ms,
            plausible_at_ms: self.intake.plausible_before(now_ms),
            ..root.manifest.clone()
        };
        root.finals.tell(&mut next);
        next.intake.keys = self.intake.keys();
        next.intake.deletes = self.intake.deletes();
        // While the log is replayed, a later record may tell that a dataset counts.
        if root.notes_commits {
            next.archive.leave_out_beside_lost();
        }
        Ok(next)
    }

    /// Commits `next`, notes the commit in the log, and removes the files that only the manifest before named.
    fn commit_manifest(&self, root: &mut Root, next: Manifest) -> Result<()> {
        let blobs = &self.blobs;
        assert!(
            root.files.serve(&next),
            "BUG: a manifest names a file that is not open"
        );
        self.ensure_objects(root, &next)?;
        if let Err(error) = next.commit(blobs) {
            if self.intake.world().objects.is_some() {
                // A manifest that came all the same takes the number of the next try, which then follows it.
                if matches!(error, tallyring_archive::Error::Conflict { .. }) {
                    self.follow_taken(root, next.number);
                }
                return Err(error.into());
            }
            // If the name may be taken, this process cannot tell which manifest counts.
            let unnamed =
                manifest::numbers(blobs).is_ok_and(|numbers| !numbers.contains(&next.number));
            if unnamed {
                let _ = blobs.remove_unfinished(names::MANIFESTS);
            } else {
                root.uncertain = Some(error.to_string());
            }
            return Err(error.into());
        }
        let before = mem::replace(&mut root.manifest, next);
        root.finals.committed(&root.manifest);
        if root.notes_commits {
            self.note_commit(root);
        }
        let before = before.files().map(|entry| entry.name.as_str());
        root.files.remove_unnamed(blobs, before, &root.manifest);
        Ok(())
    }

    fn root(&self) -> MutexGuard<'_, Root> {
        // A poisoned lock is handled as in the intake.
        self.root.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn damaged(&self) -> MutexGuard<'_, BTreeSet<String>> {
        self.damaged.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Root {
    fn check(&self) -> Result<()> {
        match &self.uncertain {
            Some(cause) => Err(Error::Uncertain(cause.clone())),
            None => Ok(()),
        }
    }
}
