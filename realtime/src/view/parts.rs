//! The parts of a view: one for each strand that it reads.
//!
//! Counts of all parts add up. A part is asked what only its strand knows: numbers of records, names of files, who was
//! erased when, and which versions of days are final. A file is read through the cache of its own strand, because that
//! notes damage by names.
//!
//! Invariant: no read asks one part alone, but for what all strands have alike (the key of hashes, the limits) and for
//! what the docs of a read say.

use std::collections::BTreeSet;
use std::iter;
use std::ops::Range;
use std::sync::Arc;

use tallyring_archive::{BlockCache, Hidden, Run, RunEntry};
use tallyring_records::UserKey;

use super::books::BooksView;
use super::gather::concerns;
use super::snapshot::Snapshot;
use super::{Live, View};
use crate::budget::Reading;
use crate::delta::{Delta, DeltaStore};
use crate::error::{Error, Result};

/// One strand of a view.
#[derive(Clone)]
pub(super) struct Part<'s> {
    /// Its place among the parts.
    pub number: usize,
    pub live: &'s Live,
    pub snapshot: Arc<Snapshot>,
}

/// A file of a part.
#[derive(Clone, Copy)]
pub(super) struct File<'v> {
    pub part: usize,
    pub run: &'v Arc<Run>,
    /// The cache of its strand.
    pub cache: &'v BlockCache,
}

impl<'s> View<'s> {
    /// A view of the newest counts of these stores, which share one key of hashes, for a request. The first one has the
    /// declarations by which answers are made.
    ///
    /// # Panics
    /// Without a store.
    pub fn over(stores: impl IntoIterator<Item = &'s Live>, reading: Reading) -> Self {
        let parts = stores.into_iter().enumerate();
        let mut parts = parts.map(|(number, live)| Part {
            number,
            live,
            snapshot: live.snapshot(),
        });
        View {
            first: parts.next().expect("BUG: a view is of one store at least"),
            beside: parts.collect(),
            reading,
        }
    }

    pub(super) fn parts(&self) -> impl Iterator<Item = &Part<'s>> + Clone {
        iter::once(&self.first).chain(&self.beside)
    }

    /// The part of this number, which a file or a ranking of this view has.
    pub(super) fn part(&self, number: usize) -> &Part<'s> {
        let mut parts = self.parts();
        parts.nth(number).expect("BUG: a file of this view")
    }

    /// A view for this request with other snapshots of the parts.
    pub(super) fn with(&self, snapshot: impl Fn(&Part<'s>) -> Arc<Snapshot>) -> Self {
        let with = |part: &Part<'s>| Part {
            snapshot: snapshot(part),
            ..*part
        };
        View {
            first: with(&self.first),
            beside: self.beside.iter().map(with).collect(),
            reading: self.reading.clone(),
        }
    }

    /// A view of one part alone.
    pub(super) fn of_part(&self, part: &Part<'s>) -> Self {
        View {
            first: Part {
                number: 0,
                ..part.clone()
            },
            beside: Vec::new(),
            reading: self.reading.clone(),
        }
    }

    /// All delta stores.
    pub(super) fn stores(&self) -> impl Iterator<Item = &DeltaStore> {
        self.parts().flat_map(|part| part.snapshot.ring.stores())
    }

    /// The memory of the delta stores that may count something in a range (Unix seconds).
    pub(super) fn deltas_in(&self, range: &Range<i64>) -> impl Iterator<Item = &Delta> {
        self.parts().flat_map(move |part| part.deltas_in(range))
    }

    /// The flushed files of the delta stores that may count something in a range (Unix seconds).
    pub(super) fn flushed_in(&self, range: &Range<i64>) -> impl Iterator<Item = File<'_>> {
        self.parts().flat_map(move |part| {
            let stores = part.stores_in(range);
            stores.flat_map(|store| part.flushed(store))
        })
    }

    /// Files of the archives whose counts are added.
    pub(super) fn plus(&self) -> impl Iterator<Item = File<'_>> {
        self.parts().flat_map(Part::plus)
    }

    /// All files whose counts are added.
    pub(super) fn all_plus(&self) -> impl Iterator<Item = File<'_>> {
        self.parts().flat_map(|part| {
            let stores = part.snapshot.ring.stores();
            let flushed = stores.flat_map(|store| part.flushed(store));
            flushed.chain(part.plus())
        })
    }

    /// Files whose counts in a range (Unix seconds) are taken away.
    pub(super) fn minus_in(&self, range: &Range<i64>) -> impl Iterator<Item = File<'_>> {
        self.parts().flat_map(move |part| part.minus_in(range))
    }

    /// The files of a kept generation. Each strand numbers its own generations, so of several strands none is read.
    pub(super) fn kept(&self, number: u64) -> Result<Vec<File<'_>>> {
        if !self.beside.is_empty() && number != BooksView::AS_OF {
            return Err(Error::ManyGenerations { number });
        }
        let mut files = Vec::new();
        for part in self.parts() {
            let kept = part.snapshot.kept(number)?.iter();
            files.extend(kept.map(|run| part.file(run)));
        }
        Ok(files)
    }

    /// A file that was read of this view.
    pub(super) fn file<'v>(&'v self, part: usize, run: &'v Arc<Run>) -> File<'v> {
        self.part(part).file(run)
    }

    /// The users whose actions are hidden in a file.
    pub(super) fn hidden_in(&self, file: File<'_>) -> Hidden {
        self.part(file.part).hidden_in(file.run)
    }
}

impl File<'_> {
    /// The file and the number of its part, for as long as the answer is held.
    pub(super) fn kept(self) -> (usize, Arc<Run>) {
        (self.part, Arc::clone(self.run))
    }
}

impl Part<'_> {
    pub(super) fn file<'v>(&'v self, run: &'v Arc<Run>) -> File<'v> {
        File {
            part: self.number,
            run,
            cache: self.live.cache(),
        }
    }

    /// The delta stores that may count something in a range (Unix seconds).
    pub(super) fn stores_in(&self, range: &Range<i64>) -> impl Iterator<Item = &DeltaStore> {
        let stores = self.snapshot.ring.stores();
        stores.filter(move |store| concerns(range, store))
    }

    /// Their memory.
    pub(super) fn deltas_in(&self, range: &Range<i64>) -> impl Iterator<Item = &Delta> {
        self.stores_in(range).flat_map(DeltaStore::deltas)
    }

    /// The flushed files of a delta store.
    pub(super) fn flushed<'v>(&'v self, store: &'v DeltaStore) -> impl Iterator<Item = File<'v>> {
        store.runs.iter().map(|run| self.file(&run.run))
    }

    pub(super) fn plus(&self) -> impl Iterator<Item = File<'_>> {
        let plus = self.snapshot.archive.plus.iter();
        plus.map(|run| self.file(run))
    }

    pub(super) fn minus_in(&self, range: &Range<i64>) -> impl Iterator<Item = File<'_>> {
        let minus = self.snapshot.archive.minus_in(range);
        minus.map(|run| self.file(run))
    }

    /// Names of the files in which the actions of a user are hidden.
    pub(super) fn hiding(&self, user: &UserKey) -> BTreeSet<&str> {
        let Some(at) = self.snapshot.erasures.erased_at(user) else {
            return BTreeSet::new();
        };
        let hiding = self.entries().filter(|entry| entry.erased_until <= at);
        hiding.map(|entry| entry.name.as_str()).collect()
    }

    /// The users whose actions are hidden in a file.
    pub(super) fn hidden_in(&self, run: &Run) -> Hidden {
        let erasures = &self.snapshot.erasures;
        if erasures.is_empty() {
            return Hidden::default();
        }
        let entry = self.entries().find(|entry| entry.name == run.name());
        entry.map_or_else(Hidden::default, |entry| erasures.hidden_in(entry))
    }

    /// Entries of all files.
    fn entries(&self) -> impl Iterator<Item = &RunEntry> {
        let stores = self.snapshot.ring.stores();
        let of_stores = stores.flat_map(|store| store.runs.iter().map(|run| &run.entry));
        of_stores.chain(self.snapshot.manifest.files())
    }
}
