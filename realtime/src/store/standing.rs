//! Checks whether a manifest is the newest that ever existed, and whether the log holds the records that it needs.
//!
//! After every commit of a manifest, a *note* of its number goes to the log ([`Record::Manifest`]): once the manifest
//! is durable, and before files that only the manifest before named are removed. The last note in the log says which
//! manifest counted when it was written. Invariants:
//!
//! * A note without its manifest shows that the store stepped back. The start is then refused, and nothing is changed.
//! * A manifest without a note is normal. A crash came between the two, the log was full, or an older build wrote the
//!   manifest; the next start writes the note. Manifest 1 has no note, because nothing came before it.
//! * A note is behind all records that the runs of its manifest hold. A scan of the log from where the runs of any
//!   earlier manifest end therefore meets the note.
//! * A later note of a lower number is an operator's decision that the store goes on from there
//!   ([`Store::go_on_from_newest`]). A restore writes such a note where the log of a backup goes further than the
//!   manifest, which is chosen before the log is copied.

use std::sync::Arc;

use tallyring_archive::{Blobs, Manifest, manifest, names};
use tallyring_records::{Record, noted_manifest};

use super::Store;
use super::open::{load, log_options};
use super::replay::Replay;
use crate::error::{Error, Result};
use crate::identity::Identity;
use crate::oplog::{FileLog, Log, LogSummary, OplogError, ReadFrom, scan};
use crate::options::{Options, World};

/// The notes in the log.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Notes {
    /// Manifest number of the last note, 0 without a note.
    last: u64,
    /// Highest manifest number of all notes, 0 without a note.
    highest: u64,
}

/// The notes and the state of the log beside a manifest; nothing in the data directory was changed.
pub(super) struct Standing {
    notes: Notes,
    /// Summary of the log.
    log: Result<LogSummary, OplogError>,
}

/// A step back: the newest manifest was lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SteppedBack {
    /// Number of the manifest that the log notes last.
    pub lost: u64,
    /// Number of the newest remaining manifest.
    pub newest: u64,
}

impl Notes {
    /// True when manifest `number` is noted last, and no higher number was ever noted.
    pub(super) fn prove_newest(self, number: u64) -> bool {
        self.end_with(number) && self.highest <= number
    }

    /// True when the last note is of that manifest. The first manifest needs no note, because nothing came before it.
    pub(super) fn end_with(self, number: u64) -> bool {
        self.last.max(1) == number
    }

    /// The lost manifest, if the log notes one. A server that runs at the same time may have committed a manifest
    /// meanwhile.
    fn step_back(self, blobs: &Blobs, manifest: &Manifest) -> Result<Option<SteppedBack>> {
        let existing = manifest::numbers(blobs)?.pop().unwrap_or(0);
        let lost = self.last > manifest.number.max(existing);
        Ok(lost.then_some(SteppedBack {
            lost: self.last,
            newest: manifest.number,
        }))
    }

    fn add(&mut self, number: u64) {
        self.last = number;
        self.highest = self.highest.max(number);
    }
}

impl Standing {
    /// Reads the notes of the log from where the runs of the manifest end.
    pub(super) fn read(blobs: &Blobs, identity: &Identity, manifest: &Manifest) -> Self {
        let mut notes = Notes::default();
        let mut read = |from| {
            scan(blobs.disk(), Some(identity.store_id), from, &mut |frame| {
                if let Some(number) = noted_manifest(frame.payload) {
                    notes.add(number);
                }
                Ok(())
            })
        };
        let log = read(ReadFrom::Sequence(manifest.intake.log_from()));
        if matches!(log, Err(OplogError::Missing { .. })) {
            // Segments that a lost manifest no longer needed may have expired.
            let _ = read(ReadFrom::Oldest);
        }
        Self { notes, log }
    }

    /// Returns the notes of the log, if the manifest may count. Fails when a later manifest was lost, or the log is
    /// damaged, or the log ends before records that the manifest's runs hold.
    pub(super) fn check(self, blobs: &Blobs, manifest: &Manifest) -> Result<Notes> {
        if let Some(step) = self.notes.step_back(blobs, manifest)?
            && !is_copy(blobs)?
        {
            return Err(Error::SteppedBack(step));
        }
        let notes = self.notes;
        self.check_reached(manifest)?;
        Ok(notes)
    }

    /// Checks that the log holds everything that was flushed: derived files are never ahead of the log.
    fn check_reached(self, manifest: &Manifest) -> Result<()> {
        let reached = self.log?.end_sequence;
        let flushed = manifest.intake.log_until();
        if reached >= flushed {
            return Ok(());
        }
        Err(Error::Missing(format!(
            "the oplog ends at record {reached}, but runs hold records up to {flushed}: the end of the oplog was lost; \
             restore `oplog/` from a backup"
        )))
    }
}

/// True for a backup and for a directory that is being restored: their manifest is older than the end of their log.
fn is_copy(blobs: &Blobs) -> Result<bool> {
    let files = blobs.list("")?;
    let is_marker = |file: &String| file == names::BACKUP || file == names::RESTORING;
    Ok(files.iter().any(is_marker))
}

impl Store {
    /// Returns the lost manifest, if the log notes one that does not exist. Changes nothing. Fails when the directory
    /// has no store, or the manifest or the log is damaged.
    pub fn stepped_back(blobs: &Blobs) -> Result<Option<SteppedBack>> {
        let (identity, manifest) = load(blobs)?;
        let standing = Standing::read(blobs, &identity, &manifest);
        standing.notes.step_back(blobs, &manifest)
    }

    /// Goes on from the newest remaining manifest, where the log notes a later one: writes a note that the remaining
    /// manifest counts. Datasets and generations that only the lost manifest counted no longer count, and the next
    /// start puts their files aside. Returns none where no manifest was lost. The caller holds the lock of the
    /// directory. Fails when the store cannot be opened with that manifest: a file that the manifest names is missing,
    /// or the log does not reach from the end of its runs to its own end. Nothing was changed then.
    pub fn go_on_from_newest(world: World, options: Options) -> Result<Option<SteppedBack>> {
        let blobs = world.blobs();
        let (identity, manifest) = load(&blobs)?;
        let standing = Standing::read(&blobs, &identity, &manifest);
        let Some(step) = standing.notes.step_back(&blobs, &manifest)? else {
            return Ok(None);
        };
        standing.check_reached(&manifest)?;
        let now_ms = world.clock.now_ms();
        let log = log_options(&options, &identity, Some(manifest.plausible_ms()));
        let (number, end) = (
            manifest.number,
            ReadFrom::Sequence(manifest.intake.log_until()),
        );
        let mut store = Self::of_manifest(world, options, &identity, manifest)?;
        if let Some(lost) = store.ledger.damaged_files().first() {
            let what = format!("{lost}, which manifest {number} names, is damaged or missing");
            return Err(Error::Missing(what));
        }
        let id = Some(identity.store_id);
        Replay::new(&mut store).read(|from, apply| scan(blobs.disk(), id, from, apply))?;
        let (mut log, _) = FileLog::open(
            Arc::clone(&store.world().disk),
            log,
            now_ms,
            end,
            &mut |_| Ok(()),
        )?;
        let mut note = Vec::new();
        Record::Manifest { number }.encode(&mut note);
        log.append(&note, 1, now_ms)?;
        log.seal(now_ms)?;
        Ok(Some(step))
    }
}
