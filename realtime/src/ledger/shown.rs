//! The manifests that a store without a log shows: each is taken once all of its files are there.

use std::collections::BTreeSet;
use std::sync::PoisonError;

use serde::Serialize;
use tallyring_archive::{Blobs, Manifest, manifest, names};

use super::{Files, Ledger, remove_copies};
use crate::error::{Error, Result};
use crate::sync::MutexGuard;
use crate::view::Snapshot;

/// Manifests that one look tries, at most.
const TRIED_MAX: usize = 8;
/// Looks for a manifest that is whole, as long as each finds a newer one that is not.
const LOOKS_MAX: u32 = 5;

/// A state of the files that cannot be shown.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Waiting {
    /// Number of a newer manifest; none where newer ones cannot be looked for, or the files are not those of before.
    pub manifest: Option<u64>,
    /// Why not, as a sentence.
    pub error: String,
}

/// The newest manifest whose files are all there, and the one that is newer and cannot be shown.
pub(crate) struct Found {
    pub whole: Option<Manifest>,
    pub waiting: Option<Waiting>,
    /// Number of the newest manifest that is there.
    newest: Option<u64>,
}

/// Finds the newest manifest of this store with a number above this one whose files can all be opened. Fails when the
/// directory of manifests cannot be listed.
pub(crate) fn find_whole(
    files: &mut Files,
    blobs: &Blobs,
    (store_id, above): (&str, u64),
) -> Result<Found> {
    let mut numbers = manifest::numbers(blobs)?;
    for _ in 1..LOOKS_MAX {
        let found = find_among(files, blobs, (store_id, above), &numbers);
        if found.waiting.is_none() {
            return Ok(found);
        }
        // The server that writes may have committed the next one meanwhile, and removed files of this one.
        numbers = manifest::numbers(blobs)?;
        if numbers.last().copied() == found.newest {
            return Ok(found);
        }
    }
    Ok(find_among(files, blobs, (store_id, above), &numbers))
}

fn find_among(
    files: &mut Files,
    blobs: &Blobs,
    (store_id, above): (&str, u64),
    numbers: &[u64],
) -> Found {
    let mut found = Found {
        whole: None,
        waiting: None,
        newest: numbers.last().copied(),
    };
    let newer = numbers.iter().rev().take_while(|number| **number > above);
    for &number in newer.take(TRIED_MAX) {
        let error = match load_whole(files, blobs, (store_id, number)) {
            Ok(whole) => {
                found.whole = Some(whole);
                break;
            }
            Err(error) => error,
        };
        found.waiting.get_or_insert(Waiting {
            manifest: Some(number),
            error: error.to_string(),
        });
        if !error.is_damage() {
            // The disk or the object store cannot be asked now, so the one before is no better.
            break;
        }
    }
    found
}

/// Loads a manifest and opens all of its files. Fails where it is of another store.
fn load_whole(
    files: &mut Files,
    blobs: &Blobs,
    (store_id, number): (&str, u64),
) -> tallyring_archive::Result<Manifest> {
    let found = Manifest::load_number(blobs, number)?;
    if found.store_id != store_id {
        return Err(tallyring_archive::Error::Malformed {
            name: names::manifest(number),
            what: format!("it is of store {}, not of {store_id}", found.store_id),
        });
    }
    files.open_whole(blobs, &found)?;
    Ok(found)
}

impl Ledger {
    /// Shows the newest manifest whose files are all there, if it is newer than the one that is shown, or if that one
    /// lacks files. `counts` makes its counts of its open files. True where one was taken. Fails when manifests cannot
    /// be listed, when their numbers went back, or the counts not be made; all stays as it is then.
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
        let sought = (root.manifest.store_id.as_str(), above);
        let mut found = find_whole(&mut root.files, &self.blobs, sought)?;
        if found.newest < Some(shown) {
            return Err(went_back(found.newest));
        }
        // The files that it lacks are told of one by one.
        let waiting = found.waiting.take();
        let waiting = waiting.filter(|of| of.manifest > Some(shown));
        let is_other = self.note_waiting(waiting);
        let Some(next) = found.whole else {
            // Open files wait as long as their manifest does. Files of one manifest after the other would add up.
            if is_other {
                root.files.forget_unnamed(&root.manifest);
            }
            return Ok(false);
        };
        let counts = counts(&mut root.files, &next)?;
        self.intake.show(counts, &next);
        root.manifest = next;
        *self.damaged() = BTreeSet::new();
        root.files.forget_unnamed(&root.manifest);
        // A remaining copy only takes space, and the next start removes it.
        if self.intake.world().objects.is_some()
            && let Err(error) = remove_copies(&self.blobs, &root.manifest)
        {
            tracing::debug!(%error, "cannot remove copies that the manifest does not name");
        }
        Ok(true)
    }

    /// The state of the files, where it cannot be shown.
    pub(crate) fn waiting(&self) -> Option<Waiting> {
        self.locked_waiting().clone()
    }

    /// Notes a state of the files that cannot be shown, or that there is none. True where another manifest waited, or
    /// none did.
    pub(crate) fn note_waiting(&self, waiting: Option<Waiting>) -> bool {
        let mut noted = self.locked_waiting();
        if let Some(waiting) = &waiting
            && let Some(number) = waiting.manifest
            && noted.as_ref() != Some(waiting)
        {
            let error = &waiting.error;
            tracing::warn!(number, error, "a newer manifest cannot be served yet");
        }
        let number = |of: &Option<Waiting>| of.as_ref().map(|of| of.manifest);
        let is_other = number(&noted) != number(&waiting);
        *noted = waiting;
        is_other
    }

    fn locked_waiting(&self) -> MutexGuard<'_, Option<Waiting>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn went_back(newest: Option<u64>) -> Error {
    let newest = match newest {
        Some(newest) => format!("the newest manifest is {newest} now"),
        None => "no manifest is there any more".to_owned(),
    };
    Error::Missing(format!(
        "{newest}, so the store went back, as by a restore: start this server again to serve what is there"
    ))
}
