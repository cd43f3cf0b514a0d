//! A second copy of a data directory, file by file. A backup is such a copy, and so is what is restored from one.
//!
//! A copy has the names of a data directory (`names`), so what reads one reads the other. What it holds: the identity
//! (with the hash key), the catalog's snapshot, the newest manifest, every file that names, and the log.
//! Invariants: files come before the manifest that names them, and the copy's manifest before goes on being
//! complete until then, so a copy that was interrupted is the one before. Every sorted file is read back and
//! compared with its hash, every segment of the log frame by frame. It needs no lock on the source: what is removed while it copies is no longer named,
//! and the newer manifest is copied instead.

mod join;
mod log;

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::io::ErrorKind;

use serde::{Deserialize, Serialize};
use tallyring_archive::{Blobs, Error, Manifest, RunEntry, names, remove_leftovers, verify_bytes};
use tallyring_realtime::is_same_store;
use tallyring_realtime::oplog::OplogError;
use thiserror::Error as ThisError;

pub use join::{Joined, join_log};

/// What a copy is now.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Copied {
    /// Number of the manifest.
    pub manifest: u64,
    /// The generation it reads, 0 before the first.
    pub generation: u64,
    /// Files that were written.
    pub files: u64,
    /// Bytes of those.
    pub bytes: u64,
    /// Files that were there already.
    pub kept: u64,
}

/// Why there is no new copy; the one before still is.
#[derive(Debug, ThisError)]
pub enum BackupError {
    /// A file, or a disk.
    #[error(transparent)]
    Archive(#[from] Error),
    /// The log.
    #[error(transparent)]
    Log(#[from] OplogError),
    /// The source is no data directory.
    #[error("it has no {0}: it is no data directory, or a copy that was never finished")]
    NoStore(&'static str),
    /// The target holds a copy of something else.
    #[error("the target is a copy of another store; name a directory of its own for each store")]
    OtherStore,
    /// The target is ahead, or went another way.
    #[error(
        "the target's manifest {target} is not one of the source's, whose newest is {newest}: the source was restored \
         or changed otherwise since; move the target away, or name another one"
    )]
    OtherHistory {
        /// Number of the target's newest manifest.
        target: u64,
        /// Number of the source's newest.
        newest: u64,
    },
    /// The target's log has other records than the source's.
    #[error(
        "the target's log is not one that the source's goes on from: the source was set back or changed otherwise since; \
         move the target away, or name another one"
    )]
    OtherLog,
    /// The source's log does not reach back to the target's, and no manifest tells what was between.
    #[error(
        "the source has removed what its log held behind the target's, and published nothing since: run `tallyring \
         rebuild` first"
    )]
    Behind,
    /// The source's log does not hold all that the counts in its files go on with.
    #[error(
        "the source's log lacks some of the records from {} to {}, which its manifest needs: part of it was lost; heal it \
         first (`tallyring verify --repair`)", needed.0, needed.1
    )]
    Incomplete {
        /// First record, and the one behind the last.
        needed: (u64, u64),
    },
    /// The second copy of the log does not go on where the backup's log ends.
    #[error(
        "the copied log does not go on where the backup's ends: {0}; name the second copy of the same store's log, or \
         restore without --log"
    )]
    NotJoined(String),
    /// What was written reads otherwise.
    #[error(
        "{0}: what was written there is not what can be read; see what is wrong with the target's disk"
    )]
    NotWritten(String),
    /// The source changed faster than anything of it was copied.
    #[error("the source published {ATTEMPTS} times before anything of it was copied; try again")]
    Moving,
}

/// How far a copy is: bytes written, of how many.
pub type Progress<'p> = &'p dyn Fn(u64, u64);

/// Chooses what of the copy is to be read again, by the hash of a file or the hexadecimal name of a segment.
pub type Again<'a> = &'a dyn Fn(&str) -> bool;

const ATTEMPTS: usize = 10;

/// Brings `target` up to `source`, which may be served meanwhile. Only what differs is written.
///
/// Files that are there are believed by their size, but those that `again` chooses, which are read and compared.
///
/// # Errors
/// [`BackupError`]; the copy is then the one before, and can be brought up again.
pub fn copy(
    source: &Blobs,
    target: &Blobs,
    again: Again<'_>,
    progress: Progress<'_>,
) -> Result<Copied, BackupError> {
    let identity = source.read_if_there(names::IDENTITY)?;
    let identity = identity.ok_or(BackupError::NoStore(names::IDENTITY))?;
    target.prepare()?;
    log::finish(source)?;
    log::take_back(target)?;
    log::finish(target)?;
    match target.read(names::IDENTITY) {
        Ok(there) if *there == *identity => {}
        // The source may have got its first API key since: that is noted in its identity.
        Ok(_) if is_same_store(source, target) => {
            target.put_over(names::IDENTITY, &identity)?;
        }
        Ok(_) => return Err(BackupError::OtherStore),
        Err(_) => {
            target.put(names::IDENTITY, &identity)?;
        }
    }
    // What this copy has read back is not read again, however often the source publishes.
    let verified = RefCell::<BTreeSet<String>>::default();
    let mut in_vain = 0;
    while in_vain < ATTEMPTS {
        let before = verified.borrow().len();
        let manifest = Manifest::load(source)?.ok_or(BackupError::NoStore("complete manifest"))?;
        check_history(source, target, &manifest)?;
        let attempt = Attempt {
            source,
            target,
            again,
            verified: &verified,
            progress,
            copied: Copied {
                manifest: manifest.number,
                generation: manifest.archive.active,
                ..Copied::default()
            },
            total: 0,
        };
        match attempt.run(&manifest) {
            // What is gone is not named any more.
            Err(error)
                if is_of_the_log(&error) || is_gone(&error) && !is_newest(source, &manifest) =>
            {
                in_vain += usize::from(verified.borrow().len() == before);
            }
            result => return result,
        }
    }
    Err(BackupError::Moving)
}

/// The source knows the manifest that the target is at.
fn check_history(source: &Blobs, target: &Blobs, newest: &Manifest) -> Result<(), BackupError> {
    let Some(at) = Manifest::load(target)? else {
        return Ok(());
    };
    let same = match Manifest::load_number(source, at.number) {
        Ok(known) => known == at,
        // Older than those that are kept.
        Err(_) => at.number < newest.number,
    };
    if same {
        return Ok(());
    }
    Err(BackupError::OtherHistory {
        target: at.number,
        newest: newest.number,
    })
}

fn is_gone(error: &BackupError) -> bool {
    match error {
        BackupError::Archive(error) => error.is_gone(),
        BackupError::Incomplete { .. } => true,
        _ => false,
    }
}

/// A segment that was listed may be expired when it is read, also when nothing newer is published.
fn is_of_the_log(error: &BackupError) -> bool {
    let BackupError::Log(OplogError::Io { source, .. }) = error else {
        return false;
    };
    source.kind() == ErrorKind::NotFound
}

fn is_newest(source: &Blobs, manifest: &Manifest) -> bool {
    let newest = Manifest::load(source).ok().flatten();
    newest.is_none_or(|newest| newest.number == manifest.number)
}

/// One attempt to copy what one manifest names.
struct Attempt<'c> {
    source: &'c Blobs,
    target: &'c Blobs,
    again: Again<'c>,
    /// Names of files that were read back.
    verified: &'c RefCell<BTreeSet<String>>,
    progress: Progress<'c>,
    copied: Copied,
    /// Bytes that are to be written, as far as known.
    total: u64,
}

impl Attempt<'_> {
    fn run(mut self, manifest: &Manifest) -> Result<Copied, BackupError> {
        self.sorted_files(manifest)?;
        let oldest = self.log(manifest)?;
        self.catalog()?;
        let at = Manifest::load(self.target)?;
        if at.is_none_or(|at| at.number < manifest.number) {
            manifest.commit(self.target)?;
        }
        // It is committed: what the manifest before named is only space.
        remove_leftovers(self.target, manifest)?;
        log::finish(self.target)?;
        log::remove_before(self.target, oldest)?;
        Ok(self.copied)
    }

    fn sorted_files(&mut self, manifest: &Manifest) -> Result<(), BackupError> {
        let entries: BTreeMap<&str, &RunEntry> = manifest
            .files()
            .map(|entry| (entry.name.as_str(), entry))
            .collect();
        let mut there: BTreeSet<String> = BTreeSet::new();
        for directory in names::SORTED_FILE_DIRECTORIES {
            let files = self.target.list(directory)?;
            there.extend(files.into_iter().map(|file| format!("{directory}/{file}")));
        }
        let is_there = |entry: &RunEntry| {
            if !there.contains(&entry.name) {
                return false;
            }
            if (self.again)(&entry.hash) && !self.verified.borrow().contains(&entry.name) {
                let is_good = verify_bytes(self.target, entry).is_ok();
                if is_good {
                    self.was_read_back(entry);
                }
                return is_good;
            }
            let content = self.target.read(&entry.name);
            content.is_ok_and(|content| content.len() as u64 == entry.bytes)
        };
        let (kept, missing): (Vec<&RunEntry>, Vec<&RunEntry>) =
            entries.into_values().partition(|entry| is_there(entry));
        self.copied.kept = kept.len() as u64;
        self.total = missing.iter().map(|entry| entry.bytes).sum();
        // One content may have several names, as an archive file and the only run it was made of.
        let mut by_hash: BTreeMap<&str, &RunEntry> = kept
            .iter()
            .map(|entry| (entry.hash.as_str(), *entry))
            .collect();
        for entry in missing {
            let twin = by_hash.get(entry.hash.as_str());
            match twin.filter(|twin| verify_bytes(self.target, twin).is_ok()) {
                Some(twin) => {
                    let _ = self.target.remove(&entry.name);
                    self.target.copy(&twin.name, &entry.name)?;
                }
                None => {
                    copy_file(self.source, self.target, entry)?;
                    self.was_read_back(entry);
                    by_hash.insert(&entry.hash, entry);
                }
            }
            self.wrote(entry.bytes);
        }
        Ok(())
    }

    fn was_read_back(&self, entry: &RunEntry) {
        self.verified.borrow_mut().insert(entry.name.clone());
    }

    fn catalog(&mut self) -> Result<(), BackupError> {
        let name = names::CATALOG_SNAPSHOT;
        // A store that no server held yet has none.
        if let Some(content) = self.source.read_if_there(name)? {
            self.target.put_over(name, &content)?;
        }
        Ok(())
    }

    fn wrote(&mut self, bytes: u64) {
        self.copied.files += 1;
        self.copied.bytes += bytes;
        (self.progress)(self.copied.bytes, self.total.max(self.copied.bytes));
    }
}

/// Copies one sorted file, in the place of what may be there, and reads it back.
///
/// # Errors
/// When the source is damaged, or a disk refuses.
pub fn copy_file(source: &Blobs, target: &Blobs, entry: &RunEntry) -> Result<(), Error> {
    let content = source.read(&entry.name)?;
    target.put_over(&entry.name, &content)?;
    let checked = verify_bytes(target, entry).map(|_| ());
    if checked.is_err() {
        // Never taken for a good one by its size.
        let _ = target.remove(&entry.name);
    }
    checked
}
