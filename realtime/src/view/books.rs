//! Reads of final numbers: a view of the books of some final days, and of nothing else.
//!
//! The books stand in it as the files of a kept generation, so every read of a kept generation reads them, without
//! memory, without deltas, and whatever merges and folds did to the counted files.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::{Arc, PoisonError};

use tallyring_archive::{Blobs, FinalEntry, Run, RunEntry};
use tallyring_records::Day;

use super::View;
use super::snapshot::{ArchiveFiles, Snapshot};
use crate::error::{Error, Result};
use crate::ring::Ring;
use crate::sync::{Mutex, MutexGuard};

/// Days of one read, at most.
const DAYS_MAX: usize = 400;
/// Files that stay open, at most.
const OPEN_MAX: usize = 1_024;
/// The number of the kept generation that stands for the books; no generation gets it.
const BOOKS: u64 = u64::MAX;

/// Files of final days that reads have opened. Most are never read, so a start opens none of them.
pub(super) struct OpenBooks {
    blobs: Blobs,
    open: Mutex<BTreeMap<String, Arc<Run>>>,
}

impl OpenBooks {
    pub(super) fn new(blobs: Blobs) -> Self {
        Self {
            blobs,
            open: Mutex::new(BTreeMap::new()),
        }
    }

    /// The run of an entry. Fails when the file is damaged or gone.
    fn open(&self, entry: &RunEntry) -> Result<Arc<Run>> {
        if let Some(run) = self.locked().get(&entry.name) {
            return Ok(Arc::clone(run));
        }
        let run = Run::open_named(&self.blobs, entry)?;
        let mut open = self.locked();
        if open.len() >= OPEN_MAX {
            open.clear();
        }
        open.insert(entry.name.clone(), Arc::clone(&run));
        Ok(run)
    }

    /// Opens a file anew with the next read.
    pub(super) fn forget(&self, name: &str) {
        self.locked().remove(name);
    }

    fn locked(&self) -> MutexGuard<'_, BTreeMap<String, Arc<Run>>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A view of the books of final days.
pub struct BooksView<'s> {
    view: View<'s>,
}

impl<'s> BooksView<'s> {
    /// The view, which is read as of [`BooksView::AS_OF`].
    pub fn view(&self) -> &View<'s> {
        &self.view
    }

    /// The number by which reads name the books.
    pub const AS_OF: u64 = BOOKS;
}

impl<'s> View<'s> {
    /// All final versions of days, ascending by day and version.
    pub fn finals(&self) -> &[FinalEntry] {
        &self.snapshot.manifest.archive.finals
    }

    /// The books of all UTC days that a range (Unix seconds) covers, of the newest version of each day or of this one.
    /// A read of them charges the budget of this view's request. Fails with [`Error::NotFinal`] at the first day that
    /// has no such version, with [`Error::ManyFinalDays`] for more than 400 days, and when a file is damaged or gone.
    pub fn books(&self, range: &Range<i64>, version: Option<u32>) -> Result<BooksView<'s>> {
        let (mut day, last) = (
            Day::of(range.start),
            Day::of(range.end.saturating_sub(1).max(range.start)),
        );
        let days = (last.number() - day.number()) as usize + 1;
        if days > DAYS_MAX {
            return Err(Error::ManyFinalDays {
                days,
                days_max: DAYS_MAX,
            });
        }
        let mut files = Vec::new();
        while day <= last {
            let versions = self.snapshot.manifest.archive.finals_of(day);
            let wanted = match version {
                None => versions.last(),
                Some(version) => versions.iter().find(|known| known.version == version),
            };
            let wanted = wanted.ok_or_else(|| Error::NotFinal {
                day,
                versions: versions.iter().map(|known| known.version).collect(),
            })?;
            for entry in &wanted.books {
                files.push(self.open_book(entry)?);
            }
            day = day.next();
        }
        let snapshot = &self.snapshot;
        let archive = ArchiveFiles {
            generation: snapshot.archive.generation,
            plus: Vec::new(),
            minus: Vec::new(),
            kept: BTreeMap::from([(BOOKS, files)]),
            minutes_from: BTreeMap::new(),
            hours_from: BTreeMap::new(),
        };
        let mut books = Snapshot::clone(snapshot);
        books.ring = Ring::restore(snapshot.ring.today(), self.live.form, []);
        books.archive = Arc::new(archive);
        Ok(BooksView {
            view: View {
                live: self.live,
                snapshot: Arc::new(books),
                reading: self.reading.clone(),
            },
        })
    }

    fn open_book(&self, entry: &RunEntry) -> Result<Arc<Run>> {
        self.reading.check()?;
        let opened = self.live.books.open(entry);
        if let Err(Error::Archive(error)) = &opened {
            self.live.cache.note_damage(error);
        }
        opened
    }
}
