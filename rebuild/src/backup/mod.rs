//! Copies of a data directory, file by file. A backup is such a copy, and so is a directory that is restored from one.
//!
//! A copy has the names of a data directory (`names`), so a reader of one can read the other. A copy holds the identity
//! (with the hash key), the snapshot of the catalog, the newest manifest, every file that the manifest names, all lists
//! that rules judged by, and the log.
//!
//! Invariants: files come before the manifest that names them, and until then the files of the copy's manifest stay
//! complete. An interrupted copy is therefore the one before. Every sorted file is read back and compared with its
//! hash, and every segment of the log frame by frame. A copy needs no lock on the source: a file that is removed
//! meanwhile is no longer named, and the newer manifest is copied instead.

mod join;
mod log;

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::io::ErrorKind;

use serde::{Deserialize, Serialize};
use tallyring_archive::{
    Blobs, Error, Manifest, RunEntry, names, remove_leftovers, sorted_files, verify_bytes,
};
use tallyring_realtime::is_same_store;
use tallyring_realtime::oplog::OplogError;
use tallyring_records::content_hash;
use thiserror::Error as ThisError;

pub use join::{Joined, join_lists, join_log};

/// State of a copy.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Copied {
    /// Number of the manifest.
    pub manifest: u64,
    /// Number of the active generation, 0 before the first.
    pub generation: u64,
    /// Files that were written.
    pub files: u64,
    /// Bytes of these files.
    pub bytes: u64,
    /// Files that the copy had already.
    pub kept: u64,
}

/// Why there is no new copy; the one before stays.
#[derive(Debug, ThisError)]
pub enum BackupError {
    /// A file cannot be read or written.
    #[error(transparent)]
    Archive(#[from] Error),
    /// The log cannot be read.
    #[error(transparent)]
    Log(#[from] OplogError),
    /// The source is not a data directory.
    #[error(
        "the source has no {0}: it is not a data directory, or it is a copy that was never finished"
    )]
    NoStore(&'static str),
    /// The target holds a copy of another store.
    #[error("the target is a copy of another store; name a directory of its own for each store")]
    OtherStore,
    /// The target is ahead, or has another history.
    #[error(
        "manifest {target} of the target is not a manifest of the source, whose newest is {newest}: the source was restored \
         or changed otherwise since; move the target away, or name another one"
    )]
    OtherHistory {
        /// Number of the target's newest manifest.
        target: u64,
        /// Number of the source's newest manifest.
        newest: u64,
    },
    /// The log of the target has other records than that of the source.
    #[error(
        "the log of the source does not continue that of the target: the source was set back or changed otherwise since; \
         move the target away, or name another one"
    )]
    OtherLog,
    /// The log of the source does not reach back to that of the target, and no manifest has the counts between.
    #[error(
        "the source has removed the part of its log that follows the target's, and has published nothing since: run \
         `tallyring rebuild` first"
    )]
    Behind,
    /// The log of the source lacks records that its manifest needs.
    #[error(
        "the log of the source lacks some of the records from {} to {}, which its manifest needs: a part of the log was \
         lost; repair it first (`tallyring verify --repair`)", needed.0, needed.1
    )]
    Incomplete {
        /// First needed record, and the one behind the last.
        needed: (u64, u64),
    },
    /// The second copy of the log does not continue where the log of the backup ends.
    #[error(
        "the copied log does not continue where the log of the backup ends: {0}; name the second copy of the log of the \
         same store, or restore without --log"
    )]
    NotJoined(String),
    /// A written file reads back differently.
    #[error(
        "{0}: the file reads back differently from what was written; check the disk of the target"
    )]
    NotWritten(String),
    /// The content of a list is damaged.
    #[error(
        "{0}: the content of the list does not have the hash that its name says: remove the file, and start the server \
         with the configuration of the list, which writes it again; or restore it from another backup"
    )]
    List(String),
    /// The source changed faster than it could be copied.
    #[error("the source published {ATTEMPTS} times before any of its files was copied; try again")]
    Moving,
}

/// A function that gets the progress of a copy: bytes written, and bytes in all.
pub type Progress<'p> = &'p dyn Fn(u64, u64);

/// Chooses which parts of the copy are read again, by the hash of a file or the hexadecimal name of a segment.
pub type Again<'a> = &'a dyn Fn(&str) -> bool;

const ATTEMPTS: usize = 10;

/// Brings `target` up to `source`, which may be in service meanwhile. Only differences are written.
///
/// Existing files are believed by their size, except files that `again` chooses: these are read and compared. After an
/// error the copy is the one before, and the call can be repeated.
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
    log::remove_staged(target)?;
    log::finish(target)?;
    match target.read(names::IDENTITY) {
        Ok(existing) if *existing == *identity => {}
        // The source may have got its first API key since, which its identity notes.
        Ok(_) if is_same_store(source, target) => {
            target.put_over(names::IDENTITY, &identity)?;
        }
        Ok(_) => return Err(BackupError::OtherStore),
        Err(_) => {
            target.put(names::IDENTITY, &identity)?;
        }
    }
    // Files that this copy has read back are not read again, however often the source publishes.
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
            // A missing file is no longer named.
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

/// Checks that the source knows the manifest of the target.
fn check_history(source: &Blobs, target: &Blobs, newest: &Manifest) -> Result<(), BackupError> {
    let Some(copied) = Manifest::load(target)? else {
        return Ok(());
    };
    let same = match Manifest::load_number(source, copied.number) {
        Ok(known) => known == copied,
        // The manifest is older than those that are kept.
        Err(_) => copied.number < newest.number,
    };
    if same {
        return Ok(());
    }
    Err(BackupError::OtherHistory {
        target: copied.number,
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

/// A listed segment may be expired when it is read, even when nothing newer is published.
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

/// One attempt to copy the files that one manifest names.
struct Attempt<'c> {
    source: &'c Blobs,
    target: &'c Blobs,
    again: Again<'c>,
    /// Names of files that were read back.
    verified: &'c RefCell<BTreeSet<String>>,
    progress: Progress<'c>,
    copied: Copied,
    /// Bytes to write, as far as known.
    total: u64,
}

impl Attempt<'_> {
    fn run(mut self, manifest: &Manifest) -> Result<Copied, BackupError> {
        self.sorted_files(manifest)?;
        let oldest = self.log(manifest)?;
        // A list is there before the record that names it, so all that the copied log names are found.
        self.lists()?;
        self.catalog()?;
        let committed = Manifest::load(self.target)?;
        if committed.is_none_or(|committed| committed.number < manifest.number) {
            manifest.commit(self.target)?;
        }
        // The manifest is committed, so files that only the manifest before named just take space.
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
        let existing = sorted_files(self.target)?;
        let is_in_target = |entry: &RunEntry| {
            if !existing.contains(&entry.name) {
                return false;
            }
            if (self.again)(&entry.hash) && !self.verified.borrow().contains(&entry.name) {
                let is_good = verify_bytes(self.target, entry).is_ok();
                if is_good {
                    self.was_read_back(entry);
                }
                return is_good;
            }
            let content = self.target.content(&entry.name);
            content.is_ok_and(|content| content.len() == entry.bytes)
        };
        let (kept, missing): (Vec<&RunEntry>, Vec<&RunEntry>) =
            entries.into_values().partition(|entry| is_in_target(entry));
        self.copied.kept = kept.len() as u64;
        self.total = missing.iter().map(|entry| entry.bytes).sum();
        // One content may have several names, such as an archive file and the only run that it was made of.
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

    /// Copies the contents of lists, which are named by their hashes and never removed.
    fn lists(&mut self) -> Result<(), BackupError> {
        let listed = match self.source.list(names::RULES) {
            // An earlier build had no lists.
            Err(error) if error.is_gone() => return Ok(()),
            listed => listed?,
        };
        let existing = self.target.list(names::RULES)?;
        for file in listed {
            let name = names::list_content(&file);
            let is_there = existing.binary_search(&file).is_ok();
            let is_good = |blobs: &Blobs| Ok::<_, Error>(content_hash(&blobs.read(&name)?) == file);
            if is_there && (!(self.again)(&file) || is_good(self.target)?) {
                self.copied.kept += 1;
                continue;
            }
            if !is_good(self.source)? {
                return Err(BackupError::List(name));
            }
            self.target.put_over_from(self.source, &name, &name)?;
            if !is_good(self.target)? {
                let _ = self.target.remove(&name);
                return Err(BackupError::NotWritten(name));
            }
            self.wrote(self.target.content(&name)?.len());
        }
        Ok(())
    }

    fn was_read_back(&self, entry: &RunEntry) {
        self.verified.borrow_mut().insert(entry.name.clone());
    }

    fn catalog(&mut self) -> Result<(), BackupError> {
        let name = names::CATALOG_SNAPSHOT;
        // A store that no server held yet has no snapshot.
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

/// Copies one sorted file, replaces an existing one, and reads it back. Fails when the source is damaged.
pub fn copy_file(source: &Blobs, target: &Blobs, entry: &RunEntry) -> Result<(), Error> {
    target.put_over_from(source, &entry.name, &entry.name)?;
    let checked = verify_bytes(target, entry).map(|_| ());
    if checked.is_err() {
        // A bad file is removed, so that its size never makes it pass for a good one.
        let _ = target.remove(&entry.name);
    }
    checked
}
