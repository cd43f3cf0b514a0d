//! Whether a manifest is the newest there ever was, and whether the log holds what it needs.
//!
//! Behind every commit of a manifest the log gets a *note* of its number ([`Record::Manifest`]): once the manifest is
//! durable, and before anything that only the one before named is removed. The last note in the log says which manifest
//! counted when it was written. Invariants:
//!
//! * A note without its manifest is a finding: the store stepped back, which a start refuses. Nothing was changed then.
//! * A manifest without a note is none. A crash came between the two, the log was full, or an older build wrote it; the
//!   next start writes the note. Manifest 1 has none: nothing came before it.
//! * A note is behind all that its manifest's runs hold, so whoever reads the log from where the runs of any earlier
//!   manifest end meets it.
//! * A later note of a lower number is an operator's word that the store goes on from there ([`Store::go_on_from_newest`]).
//!   A restore gives it where the log of a backup goes further than the manifest, which is chosen before the log is copied.

use std::sync::Arc;

use tallyring_archive::{Blobs, Manifest, manifest, names};
use tallyring_records::{Record, noted_manifest};

use super::Store;
use super::open::{load, log_options};
use super::replay::Replay;
use crate::error::{Error, Result};
use crate::identity::Identity;
use crate::oplog::{Log, LogSummary, OplogError, ReadFrom, scan};
use crate::options::{Options, World};

/// The notes in the log.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Notes {
    /// The last one, 0 where there is none.
    last: u64,
    /// The one with the highest number, 0 where there is none.
    highest: u64,
}

/// A manifest and what the log says of it, in a data directory in which nothing was changed.
pub(super) struct Standing {
    notes: Notes,
    /// The log as it is left.
    log: std::result::Result<LogSummary, OplogError>,
}

/// A step back: the newest manifest was lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SteppedBack {
    /// The manifest that the log names last.
    pub lost: u64,
    /// The newest that is left.
    pub newest: u64,
}

impl Notes {
    /// True when manifest `number` is noted, and no later one ever was.
    pub fn prove_newest(self, number: u64) -> bool {
        self.end_with(number) && self.highest <= number
    }

    /// True when the last note is of that manifest, or needs not be: nothing came before the first one.
    pub fn end_with(self, number: u64) -> bool {
        self.last.max(1) == number
    }

    /// The later manifest that was lost, if one was. A server that runs beside may have committed one meanwhile.
    fn step_back(self, blobs: &Blobs, manifest: &Manifest) -> Result<Option<SteppedBack>> {
        let there = manifest::numbers(blobs)?.pop().unwrap_or(0);
        let lost = self.last > manifest.number.max(there);
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
    /// Reads the log's notes from where the manifest's runs end.
    pub fn read(blobs: &Blobs, identity: &Identity, manifest: &Manifest) -> Self {
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

    /// The log's notes, if the manifest may count.
    ///
    /// # Errors
    /// When a later one was lost, or the log is damaged or ends before what the manifest's runs hold.
    pub fn check(self, blobs: &Blobs, manifest: &Manifest) -> Result<Notes> {
        if let Some(step) = self.notes.step_back(blobs, manifest)?
            && !is_copy(blobs)?
        {
            return Err(Error::SteppedBack(step));
        }
        let notes = self.notes;
        self.check_reached(manifest)?;
        Ok(notes)
    }

    /// The log holds everything that was flushed: what is derived is never ahead of the truth.
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

/// True for a backup, and for what is being restored: their manifest is older than the end of their log.
fn is_copy(blobs: &Blobs) -> Result<bool> {
    let files = blobs.list("")?;
    let is_marker = |file: &String| file == names::BACKUP || file == names::RESTORING;
    Ok(files.iter().any(is_marker))
}

impl Store {
    /// The newest manifest that was lost, if the log names one that is not there. Nothing is changed.
    ///
    /// # Errors
    /// When there is no store, or what tells is damaged.
    pub fn stepped_back(blobs: &Blobs) -> Result<Option<SteppedBack>> {
        let (identity, manifest) = load(blobs)?;
        let standing = Standing::read(blobs, &identity, &manifest);
        standing.notes.step_back(blobs, &manifest)
    }

    /// Goes on from the newest manifest that is left, where the log names a later one: notes in the log that this one
    /// counts. A dataset or a generation that only the lost one counted does not count any more; its files
    /// are put aside at the next start. None where no manifest was lost. The caller holds the directory's lock.
    ///
    /// # Errors
    /// When the store cannot be opened from there: a file that the manifest names is gone, or the log does not reach from
    /// its runs to the end. Nothing was changed then.
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
            let what = format!("{lost} is damaged or gone, which manifest {number} names");
            return Err(Error::Missing(what));
        }
        let id = Some(identity.store_id);
        Replay::new(&mut store).read(|from, apply| scan(blobs.disk(), id, from, apply))?;
        let (mut log, _) = Log::open(
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
