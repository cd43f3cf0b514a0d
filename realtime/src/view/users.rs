//! Unique users of one key, united over the buckets that the caller asks for, from one view of archive and deltas.
//!
//! A sketch cannot lose a user, so no fix corrects sketches. The users of a day of which a final version judged some
//! event otherwise than the way in, or took the counts of a key away, come from the books of the newest version
//! instead, together with those who came since: delta stores that opened behind the judged records have them, the
//! source runs of such stores, and loaded datasets. A generation has them, too, but mixes them with those that the
//! version took away, so source runs are read in its place. Where the counts of a bucket in the books and in what came
//! since are not all that it counts, something else is in it, and nothing tells its users apart: the bucket has all
//! users that were counted, too.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::{ControlFlow, Range};
use std::sync::Arc;

use tallyring_archive::{FinalEntry, Run, RunEntry};
use tallyring_records::{Counts, Day, Grain, KeyCrc, TimeCode, USERS, Users, by_minute, line};

use super::books::Wanted;
use super::gather::may_hold;
use super::parts::{File, Part};
use super::read::Read;
use super::{Series, View};
use crate::delta::DeltaStore;
use crate::error::Result;

/// Counts and users of one key, both from one view.
pub struct UsersView<'l> {
    view: View<'l>,
    /// The counts of the key.
    pub series: Series,
    read: Read,
    total_key: String,
    /// True where a kept generation is read, and nothing else.
    is_kept: bool,
}

/// One part of the view. Each strand makes days final by itself, so the books of a day are compared with what its
/// strand alone has counted.
struct OfPart<'v> {
    of: &'v UsersView<'v>,
    part: &'v Part<'v>,
    /// Its counts of the key.
    totals: &'v Counts,
    /// Days of which these counts are folded.
    folded: BTreeSet<Day>,
}

/// Delta stores and runs of a final day that came after its version.
struct Since<'v> {
    stores: Vec<&'v DeltaStore>,
    runs: Vec<Arc<Run>>,
}

impl<'l> View<'l> {
    /// Takes a view of a key's users: by minute where `read` has a subtotal, by base bucket elsewhere. The counts are
    /// read at once; [`UsersView::unite`] unites the users later, once the counts tell which buckets exist. A kept
    /// generation has the users that it counted, and so have minutes, of which no books have users. Fails when a
    /// generation is not kept, or a block is damaged.
    pub fn users(&self, read: Read, as_of: Option<u64>) -> Result<UsersView<'l>> {
        let series = self.read(&read, as_of)?;
        Ok(UsersView {
            total_key: line::total_key(&read.namespace, &self.keys().stored(&read.key)),
            series,
            read,
            is_kept: as_of.is_some(),
            view: self.with(|part| Arc::clone(&part.snapshot)),
        })
    }
}

impl UsersView<'_> {
    /// Unites the users of base buckets, or minutes, that start in `range` (Unix seconds). `number` maps the start of
    /// one to a group; the result has the users of each group, 4 KiB each at most. None leaves it out. Fails when a
    /// block is damaged, a file of a final day is gone, or the request is abandoned.
    pub fn unite(
        &self,
        range: &Range<i64>,
        number: impl Fn(i64) -> Option<usize>,
    ) -> Result<BTreeMap<usize, Users>> {
        let mut united: BTreeMap<usize, Users> = BTreeMap::new();
        let asked = range.start.max(self.read.from)..range.end.min(self.read.to);
        let mut unite = |start: i64, users: &Users| {
            if range.contains(&start)
                && let Some(number) = number(start)
            {
                united.entry(number).or_default().union(users);
            }
        };
        for part in self.view.parts() {
            let finals = self.unite_finals(part, &asked, &mut unite)?;
            let mut unite_counted = |code: TimeCode, users: &Users| {
                let start = code.start();
                let is_mixed = |mixed: &BTreeSet<i64>| mixed.contains(&start);
                if finals.get(&Day::of(start)).is_none_or(is_mixed) {
                    unite(start, users);
                }
            };
            let stores = part.stores_in(&asked).filter(|_| !self.is_kept);
            stores.for_each(|store| self.visit_memory(store, &asked, &mut unite_counted));
            let files = self.view.files_of(&self.series);
            for file in files.filter(|file| file.part == part.number) {
                self.visit(file, &asked, &mut unite_counted)?;
            }
        }
        Ok(united)
    }

    /// Unites the users of the final days that meet `asked` (Unix seconds) and are changed: those of the books, and
    /// those who came since. Returns by day the starts of the buckets that count something else, too.
    fn unite_finals(
        &self,
        part: &Part<'_>,
        asked: &Range<i64>,
        unite: &mut dyn FnMut(i64, &Users),
    ) -> Result<BTreeMap<Day, BTreeSet<i64>>> {
        if self.is_kept || self.read.subtotal.is_some() || changed(part, asked).next().is_none() {
            return Ok(BTreeMap::new());
        }
        // A series is charged for as long as it is held.
        let own = match self.view.beside.is_empty() {
            true => None,
            false => Some(self.view.of_part(part).read(&self.read, None)?),
        };
        let totals = &own.as_ref().unwrap_or(&self.series).totals;
        let folded = totals.codes().filter(|code| code.grain() == Grain::Day);
        let of_part = OfPart {
            of: self,
            part,
            folded: folded.map(|code| Day::of(code.start())).collect(),
            totals,
        };
        of_part.unite(asked, unite)
    }

    fn wanted(&self) -> Wanted {
        let key = (&*self.read.namespace, Some(&*self.read.key));
        Wanted::new(&[key], self.view.keys())
    }

    /// Visits the users in the memory of a delta store for `range` (Unix seconds).
    fn visit_memory(
        &self,
        store: &DeltaStore,
        range: &Range<i64>,
        visit: &mut dyn FnMut(TimeCode, &Users),
    ) {
        let by_minute = self.read.subtotal.is_some();
        for delta in store.deltas() {
            delta.users(self.total_key.as_bytes(), by_minute, &mut |code, users| {
                if range.contains(&code.start()) {
                    visit(code, users);
                }
            });
        }
    }

    /// Visits the users in a file for `range` (Unix seconds).
    fn visit(
        &self,
        File { run, cache, .. }: File<'_>,
        range: &Range<i64>,
        visit: &mut dyn FnMut(TimeCode, &Users),
    ) -> Result<()> {
        let read = &self.read;
        let Range {
            start: from,
            end: to,
        } = *range;
        // A code sorts before those that it begins.
        let (name, begin) = match read.subtotal {
            None => (USERS.to_owned(), Day::of(from).code()),
            Some(_) => (by_minute(USERS), TimeCode::containing(from, Grain::Hour)),
        };
        let prefix =
            line::subtotal_prefix(&name, &read.namespace, &self.view.keys().stored(&read.key));
        let prefix = prefix.as_bytes();
        let mut first = prefix.to_vec();
        begin.write_to(&mut first);
        let mut damaged = None;
        let places = (prefix, first.as_slice());
        run.visit_prefix(cache, places, &mut |key, payload| {
            let Some(code) = key.strip_prefix(prefix) else {
                return ControlFlow::Break(());
            };
            match (TimeCode::parse(code), Users::from_payload(payload)) {
                (Ok(code), _) if code.start() >= to => return ControlFlow::Break(()),
                (Ok(code), Some(users)) => visit(code, &users),
                _ => {
                    damaged = Some(line::shown(key));
                    return ControlFlow::Break(());
                }
            }
            ControlFlow::Continue(())
        })?;
        match damaged {
            None => Ok(()),
            Some(key) => {
                let what = format!("`{key}` is not a sketch of users");
                Err(tallyring_archive::Error::malformed(run.name(), what).into())
            }
        }
    }
}

impl OfPart<'_> {
    /// The part of a day that is read. The counts of a folded day stand at its beginning.
    fn of_day(&self, day: Day, asked: &Range<i64>) -> Range<i64> {
        let of_day = day.start()..day.next().start();
        match self.folded.contains(&day) {
            true => of_day,
            false => of_day.start.max(asked.start)..of_day.end.min(asked.end),
        }
    }

    /// The start of the bucket in which the counts of a bucket of the books are served.
    fn bucket(&self, day: Day, code: TimeCode) -> i64 {
        match self.folded.contains(&day) {
            true => day.start(),
            false => code.start(),
        }
    }

    fn unite(
        &self,
        asked: &Range<i64>,
        unite: &mut dyn FnMut(i64, &Users),
    ) -> Result<BTreeMap<Day, BTreeSet<i64>>> {
        let mut mixed = BTreeMap::new();
        for version in changed(self.part, asked) {
            self.of.view.reading.check()?;
            let (day, of_day) = (version.day, self.of_day(version.day, asked));
            let mut unite = |code: TimeCode, users: &Users| unite(self.bucket(day, code), users);
            let mut known: BTreeMap<i64, u64> = BTreeMap::new();
            let wanted = self.of.wanted();
            if let Some(book) = version.books.iter().find(|book| wanted.may_be_in(book)) {
                let book = self.part.live.open_book(book)?;
                let book = self.part.file(&book);
                self.count_file(book, (day, &of_day), &mut known)?;
                self.of.visit(book, &of_day, &mut unite)?;
            }
            let mut more = self.not_among(&of_day, &known);
            if !more.is_empty() {
                let since = self.since(version)?;
                for store in &since.stores {
                    self.count_memory(store, (day, &of_day), &mut known);
                    self.of.visit_memory(store, &of_day, &mut unite);
                }
                for run in &since.runs {
                    let file = self.part.file(run);
                    self.count_file(file, (day, &of_day), &mut known)?;
                    self.of.visit(file, &of_day, &mut unite)?;
                }
                more = self.not_among(&of_day, &known);
            }
            mixed.insert(day, more);
        }
        Ok(mixed)
    }

    /// Starts of the buckets in a range (Unix seconds) that count something else than what is known.
    fn not_among(&self, range: &Range<i64>, known: &BTreeMap<i64, u64>) -> BTreeSet<i64> {
        let served = self.totals.iter();
        let served = served.filter(|(code, _)| range.contains(&code.start()));
        let other = served.filter(|(code, count)| known.get(&code.start()) != Some(count));
        other.map(|(code, _)| code.start()).collect()
    }

    /// The delta stores and runs of records of the day behind those that the version judged, and loaded datasets. Fails
    /// when a file is damaged or gone.
    fn since(&self, version: &FinalEntry) -> Result<Since<'_>> {
        let snapshot = &self.part.snapshot;
        let (day, upto) = (version.day, version.upto);
        let of_day = day.start()..day.next().start();
        let stores = self.part.stores_in(&of_day);
        let stores = stores.filter(|store| store.opened.sequence >= upto);
        let stores: Vec<&DeltaStore> = stores.collect();
        let flushed = stores.iter().flat_map(|store| store.runs.iter());
        let flushed = flushed.map(|run| &run.run);
        let mut runs: Vec<Arc<Run>> = flushed
            .filter(|run| may_hold(run, &of_day, KeyCrc::of(self.of.total_key.as_bytes())))
            .cloned()
            .collect();
        let archive = &snapshot.manifest.archive;
        let came_since = |run: &&RunEntry| {
            let opened = run.origin.opened();
            opened.is_some_and(|opened| opened >= upto)
        };
        let active = archive.active_generation();
        let loaded = archive.datasets.iter();
        let loaded = loaded.filter(|dataset| active.is_some_and(|active| dataset.is_in(active)));
        let sources = archive.runs.iter().filter(came_since);
        let sources = sources.chain(loaded.flat_map(|dataset| &dataset.runs));
        let sources = sources.filter(|run| run.meta.overlaps(of_day.start, of_day.end));
        let wanted = self.of.wanted();
        for source in sources.filter(|run| wanted.may_be_in(run)) {
            // Runs that no generation has merged are open.
            let mut open = self.of.series.runs.iter();
            let is_source = |(part, run): &&(usize, Arc<Run>)| {
                *part == self.part.number && run.name() == source.name
            };
            let open = open.find(is_source).map(|(_, run)| Arc::clone(run));
            runs.push(open.map_or_else(|| self.part.live.open_book(source), Ok)?);
        }
        Ok(Since { stores, runs })
    }

    /// Adds the counts that a file has of a part of a day (Unix seconds).
    fn count_file(
        &self,
        File { run, cache, .. }: File<'_>,
        (day, range): (Day, &Range<i64>),
        known: &mut BTreeMap<i64, u64>,
    ) -> Result<()> {
        let key = self.of.total_key.as_bytes();
        run.visit_prefix(cache, (key, key), &mut |found, payload| {
            if found != key {
                return ControlFlow::Break(());
            }
            for (code, count) in line::hours(payload).flatten() {
                self.add((day, range), (code, count), known);
            }
            ControlFlow::Continue(())
        })?;
        Ok(())
    }

    /// As [`Self::count_file`], of the memory of a delta store.
    fn count_memory(
        &self,
        store: &DeltaStore,
        of: (Day, &Range<i64>),
        known: &mut BTreeMap<i64, u64>,
    ) {
        for delta in store.deltas() {
            delta.totals(self.of.total_key.as_bytes(), &mut |code, count| {
                self.add(of, (code, count), known);
            });
        }
    }

    fn add(
        &self,
        (day, range): (Day, &Range<i64>),
        (code, count): (TimeCode, u64),
        known: &mut BTreeMap<i64, u64>,
    ) {
        if range.contains(&code.start()) {
            let sum = known.entry(self.bucket(day, code)).or_default();
            *sum = sum.saturating_add(count);
        }
    }
}

/// The newest versions of days that meet `asked` (Unix seconds) of which some version had another verdict than the
/// way in, or that have a fix. Where none has, what is counted has the users of the books already, and those of later.
/// A merge may have left out users whom an earlier version took away and the newest gives back.
fn changed<'v>(part: &'v Part<'_>, asked: &Range<i64>) -> impl Iterator<Item = &'v FinalEntry> {
    let finals = &part.snapshot.manifest.archive.finals;
    let first = finals.partition_point(|version| version.day.next().start() <= asked.start);
    let end = finals.partition_point(|version| version.day.start() < asked.end);
    let finals = finals.get(first..end).unwrap_or_default();
    let fixed: BTreeSet<Day> = match finals.is_empty() {
        true => BTreeSet::new(),
        false => part.snapshot.manifest.archive.fixed_days().collect(),
    };
    let days = finals.chunk_by(|a, b| a.day == b.day);
    let is_changed = move |versions: &&[FinalEntry]| {
        let mut versions = versions.iter();
        versions.any(|version| version.verdicts.is_some() || fixed.contains(&version.day))
    };
    let newest = days.filter(is_changed).filter_map(<[_]>::last);
    newest.filter(|version| !version.sums_only)
}
