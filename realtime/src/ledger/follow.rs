//! Manifests of other nodes: a node that follows the log takes each one where its note stands in the log.

use std::sync::Arc;

use tallyring_archive::Manifest;

use super::{Ledger, Root};
use crate::error::Result;
use crate::intake::IdRun;
use crate::view::NewFiles;

/// A manifest that another node committed, with its open files.
pub(crate) struct Newer {
    manifest: Manifest,
    files: NewFiles,
    fresh_ids: Vec<IdRun>,
}

impl Ledger {
    /// Opens the manifest of that number and its files, and changes no count. None where it does not come after the one
    /// that counts here, or is gone because several came since: the note of a later one says the same and more. None,
    /// too, where its runs hold records that are not counted here yet: its note comes behind them. Fails when the files
    /// cannot be read now.
    pub(crate) fn newer(&self, number: u64) -> Result<Option<Newer>> {
        self.newer_than(&mut self.root(), number)
    }

    /// Lets a manifest count that another node committed. Everything that the node knew is counted here already.
    pub(crate) fn follow(&self, newer: Newer) {
        self.follow_locked(&mut self.root(), newer);
    }

    /// Follows the manifest whose number this node wanted to take: a node that wrote the log before has come first. A
    /// node that lost the log itself follows when it reads the note.
    pub(super) fn follow_taken(&self, root: &mut Root, number: u64) {
        if self.intake.is_read_only() {
            return;
        }
        match self.newer_than(root, number) {
            Ok(Some(newer)) => self.follow_locked(root, newer),
            Ok(None) => {}
            Err(error) => {
                tracing::warn!(number, %error, "the manifest of another node cannot be followed yet");
            }
        }
    }

    fn newer_than(&self, root: &mut Root, number: u64) -> Result<Option<Newer>> {
        if number <= root.manifest.number {
            return Ok(None);
        }
        let blobs = &self.blobs;
        let manifest = match Manifest::load_number(blobs, number) {
            Err(gone) if gone.is_gone() => {
                tracing::debug!(number, "a manifest is gone before this node followed it");
                return Ok(None);
            }
            loaded => loaded?,
        };
        // A node made it that took the log over since. Its frozen memory is not frozen here, and would count twice.
        if manifest.intake.log_until() > self.intake.live().applied().sequence {
            return Ok(None);
        }
        let files = &mut root.files;
        let lost = files.lost();
        files.open_readable(blobs, &manifest)?;
        let mut stores = Vec::new();
        for store in &manifest.intake.stores {
            let runs = store.runs.iter().map(|run| files.open(blobs, run));
            let runs: tallyring_archive::Result<Vec<_>> = runs.collect();
            stores.push((store.id, runs?, store.flushed));
        }
        let archive = Arc::new(files.archive(blobs, &manifest)?);
        let lost_now = files.lost();
        let mut damaged = self.damaged();
        damaged.retain(|name| lost_now.contains(name) || !lost.contains(name));
        damaged.extend(lost_now);
        drop(damaged);
        let fresh_ids = self.intake.open_fresh_ids(&manifest.intake.ids.runs)?;
        Ok(Some(Newer {
            files: NewFiles { archive, stores },
            fresh_ids,
            manifest,
        }))
    }

    fn follow_locked(&self, root: &mut Root, newer: Newer) {
        let manifests = (&root.manifest, &newer.manifest);
        self.intake
            .follow_manifest(newer.files, newer.fresh_ids, manifests);
        let before = std::mem::replace(&mut root.manifest, newer.manifest);
        root.finals.committed(&root.manifest);
        let before = before.files().map(|entry| entry.name.as_str());
        root.files
            .remove_unnamed(&self.blobs, before, &root.manifest);
    }
}
