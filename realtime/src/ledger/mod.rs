//! The root: which files count, and every change of that.
//!
//! [`Ledger`] owns the manifest and the open files that it names. Each change of what is counted where (flush, cut, publish,
//! adopt, drop, roll back, put in the place of) is one new manifest, committed under the lock of the root. The ledger owns
//! the [`Intake`], whose locks are therefore taken after its own; the lock of the names of damaged files is taken alone.
//!
//! This folder knows nothing of how increments are judged or how queries are answered.

mod datasets;
mod files;
mod flush;
mod publish;
mod recount_store;
mod scrub;

use std::collections::BTreeSet;
use std::mem;
use std::sync::PoisonError;

use tallyring_archive::{Blobs, Manifest, names};

use crate::error::{Error, Result};
use crate::intake::Intake;
use crate::sync::{Mutex, MutexGuard};

pub use datasets::check_dataset_name;

pub(crate) use files::Files;

/// The root of one data directory.
pub struct Ledger {
    blobs: Blobs,
    root: Mutex<Root>,
    /// Names of files that were found damaged.
    damaged: Mutex<BTreeSet<String>>,
    intake: Intake,
}

/// The manifest as it is committed, and the open files it names.
struct Root {
    manifest: Manifest,
    files: Files,
    /// Why this process must not change the manifest any more.
    uncertain: Option<String>,
    /// Whether commits are noted in the log: not while it is replayed, when its end must stay where it is.
    notes_commits: bool,
}

impl Ledger {
    /// The root as a manifest says; `files` are open.
    pub(crate) fn new(manifest: Manifest, files: Files, intake: Intake) -> Self {
        Self {
            blobs: intake.world().blobs(),
            damaged: Mutex::new(files.lost()),
            root: Mutex::new(Root {
                manifest,
                files,
                uncertain: None,
                notes_commits: false,
            }),
            intake,
        }
    }

    /// The way in.
    pub fn intake(&self) -> &Intake {
        &self.intake
    }

    /// Why this process can change the manifest no more, if so: it must be restarted.
    pub fn must_restart(&self) -> Option<String> {
        match self.root.try_lock() {
            Ok(root) => root.uncertain.clone(),
            // A holder of the lock changes the manifest, which it could not begin otherwise.
            Err(_) => None,
        }
    }

    /// Removes log segments that nothing needs any more: flushed, out of the id window, old enough. Returns how many.
    ///
    /// # Errors
    /// When the disk refuses.
    pub fn expire_log(&self) -> Result<usize> {
        let needed = self.root().manifest.intake.log_from();
        self.intake.expire_log(needed)
    }

    /// The way in, while nobody else uses the store.
    pub(crate) fn intake_mut(&mut self) -> &mut Intake {
        &mut self.intake
    }

    /// Notes every commit in the log from now on.
    pub(crate) fn note_commits(&self) {
        self.root().notes_commits = true;
    }

    /// The manifest that follows, still as the one before: they are numbered without gaps.
    ///
    /// # Errors
    /// When this process must not change it any more.
    fn next_manifest(&self, root: &Root) -> Result<Manifest> {
        root.check()?;
        let now_ms = self.intake.world().clock.now_ms();
        Ok(Manifest {
            number: root.manifest.number + 1,
            written_at_ms: now_ms,
            plausible_at_ms: self.intake.plausible_before(now_ms),
            ..root.manifest.clone()
        })
    }

    /// Commits `next`, notes that in the log, and removes the files that only the manifest before named.
    fn commit_manifest(&self, root: &mut Root, next: Manifest) -> Result<()> {
        let blobs = &self.blobs;
        assert!(
            root.files.serve(&next),
            "BUG: a manifest names only files that are open"
        );
        if let Err(error) = next.commit(blobs) {
            // If the name may be taken, this process can no longer tell which manifest counts.
            let unnamed = blobs.list(names::MANIFESTS).is_ok_and(|files| {
                !files
                    .iter()
                    .any(|file| names::manifest_number(file) == Some(next.number))
            });
            if unnamed {
                let _ = blobs.remove_unfinished(names::MANIFESTS);
            } else {
                root.uncertain = Some(error.to_string());
            }
            return Err(error.into());
        }
        let before = mem::replace(&mut root.manifest, next);
        if root.notes_commits {
            self.intake.note_manifest(root.manifest.number);
        }
        let before = before.files().map(|entry| entry.name.as_str());
        root.files.remove_unnamed(blobs, before, &root.manifest);
        Ok(())
    }

    fn root(&self) -> MutexGuard<'_, Root> {
        // As the locks of the way in.
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
