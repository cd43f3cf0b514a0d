//! The manifests that a store without a log shows: each is taken once all of its files are there.

use std::collections::BTreeSet;
use std::mem;
use std::sync::PoisonError;

use serde::Serialize;
use tallyring_archive::{Blobs, Manifest, manifest};

use super::{Files, Ledger};
use crate::error::Result;
use crate::sync::MutexGuard;
use crate::view::Snapshot;

/// Manifests that one look tries, at most.
const TRIED_MAX: usize = 8;

/// A manifest that is there and cannot be shown.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Waiting {
    /// Its number.
    pub manifest: u64,
    /// Why not, as a sentence.
    pub error: String,
}

/// The newest manifest whose files are all there, and the one that is newer and cannot be shown.
pub(crate) struct Found {
    pub whole: Option<Manifest>,
    pub waiting: Option<Waiting>,
}

/// Finds the newest manifest with a number above this one whose files can all be opened. Fails when the directory of
/// manifests cannot be listed.
pub(crate) fn find_whole(files: &mut Files, blobs: &Blobs, above: u64) -> Result<Found> {
    let mut waiting = None;
    let numbers = manifest::numbers(blobs)?.into_iter().rev();
    for number in numbers.take_while(|number| *number > above).take(TRIED_MAX) {
        let loaded = Manifest::load_number(blobs, number);
        let opened = loaded.and_then(|found| files.open_whole(blobs, &found).map(|()| found));
        let error = match opened {
            Ok(found) => {
                let whole = Some(found);
                return Ok(Found { whole, waiting });
            }
            Err(error) => error,
        };
        let is_damage = error.is_damage();
        waiting.get_or_insert(Waiting {
            manifest: number,
            error: error.to_string(),
        });
        if !is_damage {
            // The disk or the object store cannot be asked now, so the one before is no better.
            break;
        }
    }
    Ok(Found {
        whole: None,
        waiting,
    })
}

impl Ledger {
    /// Shows the newest manifest whose files are all there, if it is newer than the one that is shown, or if that one
    /// lacks files. `counts` makes its counts of its open files. True where one was taken. Fails when manifests cannot
    /// be listed, or the counts not be made; all stays as it is then.
    pub(crate) fn show_newer(
        &self,
        counts: impl FnOnce(&mut Files, &Manifest) -> Result<Snapshot>,
    ) -> Result<bool> {
        let mut root = self.root();
        let root = &mut *root;
        let shown = root.manifest.number;
        root.files.forget_lost();
        let above = match root.files.serve(&root.manifest) {
            true => shown,
            false => shown.saturating_sub(1),
        };
        let mut found = find_whole(&mut root.files, &self.blobs, above)?;
        // The files that it lacks are told of one by one.
        let waiting = found.waiting.take().filter(|of| of.manifest > shown);
        self.note_waiting(waiting);
        let Some(next) = found.whole else {
            return Ok(false);
        };
        let counts = counts(&mut root.files, &next)?;
        self.intake.show(counts, &next);
        let before = mem::replace(&mut root.manifest, next);
        *self.damaged() = BTreeSet::new();
        if self.intake.world().objects.is_some() {
            let before = before.files().map(|entry| entry.name.as_str());
            root.files
                .remove_unnamed(&self.blobs, before, &root.manifest);
        }
        root.files.forget_unnamed(&root.manifest);
        Ok(true)
    }

    /// The newest manifest, where it cannot be shown yet.
    pub(crate) fn waiting(&self) -> Option<Waiting> {
        self.locked_waiting().clone()
    }

    /// Notes the newest manifest, where it cannot be shown yet.
    pub(crate) fn note_waiting(&self, waiting: Option<Waiting>) {
        let mut noted = self.locked_waiting();
        if let Some(waiting) = &waiting
            && noted.as_ref() != Some(waiting)
        {
            let (number, error) = (waiting.manifest, &waiting.error);
            tracing::warn!(number, error, "a newer manifest cannot be served yet");
        }
        *noted = waiting;
    }

    fn locked_waiting(&self) -> MutexGuard<'_, Option<Waiting>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
