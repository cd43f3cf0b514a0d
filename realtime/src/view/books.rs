//! Reads of final numbers: a view of the books of some final days, and of nothing else.
//!
//! The books, and the runs of final datasets, stand in it as the files of a kept generation. So every read of a kept
//! generation reads them, without memory, without deltas, and whatever merges and folds did to the counted files.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::{Arc, PoisonError};

use tallyring_archive::{Blobs, FinalEntry, Run, RunEntry};
use tallyring_records::{Class, Day, KeyCrc, LoggedDataset, LongKeys, line};

use super::loaded::Loaded;
use super::parts::Part;
use super::snapshot::{ArchiveFiles, Snapshot};
use super::{Live, View};
use crate::error::{Beside, Error, Result};
use crate::ring::Ring;
use crate::sync::{Mutex, MutexGuard};

/// Days of one read, at most.
const DAYS_MAX: usize = 400;
/// Files that stay open, at most: few enough for a process of few open files.
const OPEN_MAX: usize = 128;
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
        while open.len() >= OPEN_MAX {
            open.pop_first();
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
    /// All final versions of days, ascending by day and version: of several strands, those of the first one.
    pub fn finals(&self) -> &[FinalEntry] {
        &self.first.snapshot.manifest.archive.finals
    }

    /// The class of a rule, by the last declaration before record `upto` that has the rule; none where none has.
    pub fn class_of_rule(&self, rule: &str, upto: u64) -> Option<Class> {
        let schemas = &self.first.snapshot.manifest.intake.schemas;
        let mut before = schemas.iter().rev().filter(|of| of.since.sequence <= upto);
        before.find_map(|of| {
            let mut filters = of.schema.filters.iter();
            filters
                .find(|filter| filter.name == rule)
                .map(|filter| filter.class)
        })
    }

    /// Final datasets that the log has and no manifest names. The first of several strands has all datasets.
    pub fn lost_datasets(&self) -> &[LoggedDataset] {
        &self.first.snapshot.manifest.archive.lost_datasets
    }

    /// The books of all UTC days that a range (Unix seconds) covers, of the newest version of each day or of this one,
    /// with the counts that final datasets have of any of these namespaces. Where a namespace stands with a key, the
    /// books can be read for that key of it alone, and no file without the key is opened. A day before the store began,
    /// of which the log has nothing, needs no version where such datasets have counts of each of the namespaces. A read
    /// of the books charges the budget of this view's request.
    /// Fails with [`Error::NotFinal`] at the first day that has no such version, with [`Error::SumsOnly`] at the first
    /// one whose books are no longer kept, with [`Error::Loaded`] at the first one that may have counts of another
    /// dataset, with [`Error::ManyFinalDays`] for more than 400 days, and when a file is damaged or gone.
    /// A version that is asked for is read beside a dataset that is not final. A view of several strands reads the
    /// books of all: of a version that is asked for, those of this number in each strand.
    pub fn books(
        &self,
        of: &[(&str, Option<&str>)],
        range: &Range<i64>,
        version: Option<u32>,
    ) -> Result<BooksView<'s>> {
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
        let datasets = Datasets(of.iter().map(|(name, _)| self.loaded_of(name)).collect());
        let wanted = Wanted::new(of, self.keys());
        let mut files: Vec<Vec<Arc<Run>>> = Vec::new();
        for part in self.parts() {
            let finals = &part.snapshot.finals;
            let own = of.iter().map(|(name, _)| finals.loaded_of(name).clone());
            let own = Datasets(own.collect());
            let entries = own.in_finals(day, last);
            files.push(self.open_wanted(part, &wanted, entries.into_values())?);
        }
        while day <= last {
            datasets.check(day, version)?;
            for (part, files) in self.parts().zip(&mut files) {
                if let Some(asked) = part.books_of(day, version, &datasets)? {
                    files.extend(self.open_wanted(part, &wanted, &asked.books)?);
                }
            }
            day = day.next();
        }
        let of_parts = files.into_iter().zip(self.parts());
        let of_parts = of_parts.map(|(files, part)| Arc::new(part.with_books(files)));
        let of_parts: Vec<Arc<Snapshot>> = of_parts.collect();
        let view = self.with(|part| Arc::clone(&of_parts[part.number]));
        Ok(BooksView { view })
    }

    fn open_wanted<'e>(
        &self,
        part: &Part<'_>,
        wanted: &Wanted,
        entries: impl IntoIterator<Item = &'e RunEntry>,
    ) -> Result<Vec<Arc<Run>>> {
        let mut files = Vec::new();
        for entry in entries {
            self.reading.check()?;
            if wanted.may_be_in(entry) {
                files.push(part.live.open_book(entry)?);
            }
        }
        Ok(files)
    }
}

impl Part<'_> {
    /// The newest version of a day, or the one of this number. None where the store began after the day, and final
    /// datasets may have counts of it, of each namespace. Fails where there is no such version, or none with books.
    fn books_of(
        &self,
        day: Day,
        version: Option<u32>,
        datasets: &Datasets,
    ) -> Result<Option<&FinalEntry>> {
        let manifest = &self.snapshot.manifest;
        let versions = manifest.archive.finals_of(day);
        let asked = match version {
            None => versions.last(),
            Some(version) => versions.iter().find(|known| known.version == version),
        };
        let begun = manifest.intake.begun;
        let is_final_by_load = || begun.is_some_and(|begun| day < begun) && datasets.are_final(day);
        match asked {
            Some(asked) if asked.sums_only => Err(Error::SumsOnly { day }),
            None if version.is_some() || !is_final_by_load() => Err(Error::NotFinal {
                day,
                versions: versions.iter().map(|known| known.version).collect(),
            }),
            asked => Ok(asked),
        }
    }

    /// The snapshot with these files as all that it counts.
    fn with_books(&self, files: Vec<Arc<Run>>) -> Snapshot {
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
        books
    }
}

impl Live {
    /// A file of a final day. Fails when it is damaged or gone.
    pub(super) fn open_book(&self, entry: &RunEntry) -> Result<Arc<Run>> {
        let opened = self.books.open(entry);
        if let Err(Error::Archive(error)) = &opened {
            self.cache.note_damage(error);
        }
        opened
    }
}

/// Sections (`l|`) that are read, each of one key or of all.
pub(super) struct Wanted(Vec<(String, Option<KeyCrc>)>);

impl Wanted {
    pub(super) fn new(of: &[(&str, Option<&str>)], keys: &LongKeys) -> Self {
        let wanted = of.iter().map(|(namespace, key)| {
            let crc = key.map(|key| {
                let total_key = line::total_key(namespace, &keys.stored(key));
                KeyCrc::of(total_key.as_bytes())
            });
            (line::total_key(namespace, ""), crc)
        });
        Self(wanted.collect())
    }

    /// True where a run may have counts of them.
    pub(super) fn may_be_in(&self, run: &RunEntry) -> bool {
        let meta = &run.meta;
        self.0.iter().any(|(section, crc)| {
            let has_shard = |crc: KeyCrc| crc.shard(meta.shards) == meta.shard;
            meta.sums.contains_key(section) && crc.is_none_or(has_shard)
        })
    }
}

/// Loaded counts of some namespaces.
struct Datasets(Vec<Loaded>);

impl Datasets {
    /// The runs that are part of final numbers of these days, each once.
    fn in_finals(&self, from: Day, last: Day) -> BTreeMap<&str, &RunEntry> {
        let spans = self.0.iter().flat_map(|loaded| loaded.meeting(from, last));
        let spans = spans.filter(|span| span.beside.is_none());
        let runs = spans.filter_map(|span| span.run.as_deref());
        runs.map(|run| (&*run.name, run)).collect()
    }

    /// True where each namespace may have final counts of the day.
    fn are_final(&self, day: Day) -> bool {
        self.0.iter().all(|loaded| loaded.is_in_finals(day))
    }

    /// Checks that nothing else keeps a day from being final. A version that is asked for by its number is what it
    /// was, and lacks no more than a final dataset that is about to count, or is lost.
    fn check(&self, day: Day, version: Option<u32>) -> Result<()> {
        let spans = self.0.iter().flat_map(|loaded| loaded.meeting(day, day));
        let beside = spans.filter_map(|span| Some((span.beside?, &span.dataset)));
        let stays_as_it_was = |why| matches!(why, Beside::NotFinal | Beside::Dropped);
        let mut beside = beside.filter(|(why, _)| version.is_none() || !stays_as_it_was(*why));
        match beside.next() {
            None => Ok(()),
            Some((beside, dataset)) => Err(Error::Loaded {
                day,
                dataset: dataset.to_string(),
                beside,
            }),
        }
    }
}
