//! Final numbers and the log: each version has a record, by which it can be made again, and so has each final dataset,
//! by which it is missed.
//!
//! A manifest names a version first. The note of that manifest and the record of the version are then one frame of the
//! log. A crash between the two leaves a version of which the manifest says that the log may lack it (`is_logged`); the
//! next start meets its record in the log behind the manifest, or writes it. A version of which only the log tells is
//! *awaited*: the manifest that named it was lost. The next manifest says so, and the version is to be made again.
//!
//! A final dataset has its record once a generation counts it, in the same way. A dataset of which only the log tells
//! is *lost*: the log has no loaded counts, so people load it again, or give it up by a record of its own, behind which
//! it is missed no more. A final dataset that waits in the place of a lost one was dropped or replaced before, and is
//! left out.

use std::collections::BTreeSet;

use tallyring_archive::{ArchiveEntry, FinalEntry, LoggedDatasets, Manifest};
use tallyring_records::{Day, LoggedDataset, LoggedFinal, Record};

use super::finals::Final;
use super::{Ledger, Root};
use crate::error::{Error, Result};

/// Final versions that the manifest and the log do not both name.
#[derive(Debug, Default)]
pub(super) struct FinalsInLog {
    /// Day and version where the log may lack the record.
    unlogged: BTreeSet<(Day, u32)>,
    /// Versions that the replay found in the log, and that no manifest names.
    found: Vec<LoggedFinal>,
    /// Records of final datasets that the manifest may not know.
    pub(super) datasets: LoggedDatasets,
}

impl FinalsInLog {
    /// Begins with a manifest, before the log is read.
    pub(super) fn of(manifest: &Manifest) -> Self {
        let unlogged = manifest.archive.finals.iter().filter(may_be_missing);
        Self {
            unlogged: unlogged.map(name_of).collect(),
            found: Vec::new(),
            datasets: LoggedDatasets::default(),
        }
    }

    /// Tells a manifest that is to be committed what is known.
    pub(super) fn tell(&self, next: &mut Manifest) {
        for version in &mut next.archive.finals {
            let is_logged = !self.unlogged.contains(&name_of(version));
            if let Some(proof) = &mut version.proof {
                proof.is_logged = is_logged;
            }
        }
        for found in &self.found {
            next.archive.await_final(found.clone());
        }
        self.datasets.tell(&mut next.archive);
    }

    /// Follows a manifest that is committed.
    pub(super) fn committed(&mut self, manifest: &Manifest) {
        *self = Self::of(manifest);
    }
}

fn name_of(version: &FinalEntry) -> (Day, u32) {
    (version.day, version.version)
}

fn may_be_missing(version: &&FinalEntry) -> bool {
    version.proof.as_ref().is_some_and(|proof| !proof.is_logged)
}

impl Ledger {
    /// Publishes a version again that is awaited: the log has its record, and no manifest names it. All is checked as
    /// by [`Ledger::publish_final`], and the content, `upto`, rules and sums must be those of the record. Fails with
    /// [`Error::Final`] where they are others, or the version is not the first awaited one of its day, and as
    /// [`Ledger::publish_final`] does.
    pub fn publish_again(&self, closed: &Final) -> Result<()> {
        self.make_final(closed, Final::check_awaited)
    }

    /// Awaits a version no more that cannot be made again: the log does not reach back to its day. The number is not
    /// used again for as long as the log has the record, because that day cannot be reconciled either. Fails when the
    /// disk does.
    pub fn give_up_final(&self, logged: &LoggedFinal) -> Result<()> {
        let mut root = self.root();
        let mut next = self.next_manifest(&root)?;
        next.archive.awaited.retain(|awaited| awaited != logged);
        self.switch(&mut root, next, &[])
    }

    /// Takes a record of the log that tells of final numbers, if it does: the log is replayed or followed.
    pub(crate) fn replay(&self, record: &Record) {
        match record {
            Record::Final(version) => self.replay_final(version),
            Record::Dataset(_) | Record::DatasetGone(_) => self.root().finals.datasets.note(record),
            _ => {}
        }
    }

    fn replay_final(&self, logged: &LoggedFinal) {
        let mut root = self.root();
        let (day, version) = (logged.day, logged.version);
        root.finals.unlogged.remove(&(day, version));
        let is_known = root.manifest.archive.knows_final(day, version)
            || (root.finals.found.iter()).any(|found| (found.day, found.version) == (day, version));
        if !is_known {
            root.finals.found.push(logged.clone());
        }
    }

    /// Names what the replay found in the log alone in a manifest: versions, and datasets that are lost, and leaves out
    /// what waits in the place of these. After an error it is found again by the next start, or the next flush names
    /// it.
    pub(crate) fn name_found_finals(&self) -> Result<()> {
        let mut root = self.root();
        let mut told = root.manifest.archive.clone();
        root.finals.datasets.tell(&mut told);
        let left_out = told.leave_out_beside_lost();
        let named = &root.manifest.archive;
        let is_new = |lost: &&LoggedDataset| !named.lost_datasets.contains(lost);
        for dataset in told.lost_datasets.iter().filter(is_new) {
            tracing::warn!(
                dataset = dataset.name,
                "the log tells of a dataset that was part of final numbers, and no manifest names it: load it again with \
                 --final"
            );
        }
        for dataset in &left_out {
            tracing::warn!("{dataset}");
        }
        if let Some(first) = root.finals.found.first() {
            tracing::warn!(
                day = %first.day,
                versions = root.finals.found.len(),
                "the log tells of final versions that no manifest names; they are made again"
            );
        }
        let wanted = |archive: &ArchiveEntry| {
            let datasets = archive.datasets.iter();
            datasets.filter(|dataset| dataset.wanted).count()
        };
        let is_named = told.lost_datasets == named.lost_datasets && wanted(&told) == wanted(named);
        match is_named && root.finals.found.is_empty() {
            true => Ok(()),
            false => self.flush_locked(&mut root),
        }
    }

    /// Notes the manifest that counts in the log, with the versions and datasets that the log may lack, unless it
    /// `is_noted` and lacks none.
    pub(crate) fn note_newest(&self, is_noted: bool) {
        let mut root = self.root();
        let lacks = !root.finals.unlogged.is_empty() || !unlogged_datasets(&root).is_empty();
        if !is_noted || lacks {
            self.note_commit(&mut root);
        }
    }

    /// Notes a commit in the log. Where the log takes no more writes, the next commit or start notes it.
    pub(super) fn note_commit(&self, root: &mut Root) {
        let finals = root.manifest.archive.finals.iter();
        let unlogged = finals.filter(|version| root.finals.unlogged.contains(&name_of(version)));
        let unlogged = unlogged.filter_map(FinalEntry::logged);
        let datasets = unlogged_datasets(root);
        let records = unlogged.map(Record::Final);
        let records = records.chain(datasets.iter().cloned().map(Record::Dataset));
        let records = records.collect();
        if self.intake.note_manifest(root.manifest.number, records) {
            root.finals.unlogged.clear();
            for dataset in datasets {
                root.finals.datasets.note(&Record::Dataset(dataset));
            }
        }
    }
}

/// Final datasets that count, and that the log may lack.
fn unlogged_datasets(root: &Root) -> Vec<LoggedDataset> {
    let logged = &root.finals.datasets;
    let unlogged = root.manifest.archive.unlogged_datasets();
    unlogged.filter(|dataset| !logged.has(dataset)).collect()
}

impl Final {
    /// Checks that it is what the log says of the first awaited version of its day.
    fn check_awaited(&self, manifest: &Manifest) -> Result<()> {
        let FinalEntry { day, version, .. } = self.entry;
        let refuse = |what: String| Err(Error::Final(what));
        let Some(awaited) = manifest.archive.awaited_of(day).next() else {
            return refuse(format!("no version of {day} is awaited"));
        };
        if awaited.version != version {
            return refuse(format!(
                "it is version {version} of {day}, and version {} is to be made again before it",
                awaited.version
            ));
        }
        let found = self.entry.logged();
        let found = found.map(|found| LoggedFinal {
            at_ms: awaited.at_ms,
            forced: awaited.forced,
            actor: awaited.actor.clone(),
            ..found
        });
        match found.as_ref() == Some(awaited) {
            true => Ok(()),
            false => refuse(format!(
                "the log does not give version {version} of {day} again: its counts or verdicts are others than those of \
                 the record"
            )),
        }
    }
}
