//! Unique users of one key, united over the buckets that the caller asks for, from one view of archive and deltas.
//!
//! A sketch cannot lose a user, so no fix corrects sketches. The users of a day of which a final version judged some
//! event otherwise than the way in come from the books of the newest version instead. A bucket that counts something
//! else than these books, such as later events, has the users that were counted, too, until the next version: nothing
//! tells them from those that the version took away.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::{ControlFlow, Range};
use std::sync::Arc;

use tallyring_archive::{FinalEntry, Manifest, Run};
use tallyring_records::{Day, Grain, KeyCrc, TimeCode, USERS, Users, by_minute, line};

use super::gather::concerns;
use super::read::Read;
use super::{Live, Series, View};
use crate::budget::Charge;
use crate::delta::DeltaStore;
use crate::error::Result;

/// Counts and users of one key, both from one view.
pub struct UsersView<'l> {
    live: &'l Live,
    /// The counts of the key.
    pub series: Series,
    read: Read,
    /// Users that memory held, by base bucket or by minute.
    memory: BTreeMap<TimeCode, Users>,
    /// Where final days may stand for what is counted of them: a manifest that names their books.
    books: Option<Arc<Manifest>>,
    /// Days of which the counts are folded.
    folded: BTreeSet<Day>,
    _charge: Charge,
}

/// A day whose users are those of its books.
struct FinalDay {
    /// The file that has the key, if one does.
    book: Option<Arc<Run>>,
    /// Starts of the buckets that count something else than the books, Unix seconds.
    later: BTreeSet<i64>,
}

/// Memory of a sketch at most: its registers, and its other fields.
const USERS_BYTES_MAX: usize = 5 << 10;

impl<'l> View<'l> {
    /// Takes a view of a key's users: by minute where `read` has a subtotal, by base bucket elsewhere. The counts are
    /// read at once; [`UsersView::unite`] unites the users later, once the counts tell which buckets exist. The view
    /// holds the memory of the key's users that were in memory. A kept generation has the users that it counted, and so
    /// have minutes, of which no books have users. Fails when a generation is not kept, a block is damaged, or the
    /// budget of reads has no room for the users.
    pub fn users(&self, read: Read, as_of: Option<u64>) -> Result<UsersView<'l>> {
        let total_key = line::total_key(&read.namespace, &self.live.keys.stored(&read.key));
        let mut memory: BTreeMap<TimeCode, Users> = BTreeMap::new();
        let range = read.from..read.to;
        let (mut charge, mut refused) = (self.reading.charge(), None);
        let stores = self.snapshot.ring.stores();
        let stores = stores.filter(|store| as_of.is_none() && concerns(&range, store));
        for delta in stores.flat_map(DeltaStore::deltas) {
            let minutes = read.subtotal.is_some();
            delta.users(total_key.as_bytes(), minutes, &mut |code, users| {
                if !range.contains(&code.start()) || refused.is_some() {
                    return;
                }
                if !memory.contains_key(&code)
                    && let Err(error) = charge.grow(USERS_BYTES_MAX)
                {
                    refused = Some(error);
                    return;
                }
                memory.entry(code).or_default().union(users);
            });
        }
        if let Some(refused) = refused {
            return Err(refused);
        }
        let series = self.read(&read, as_of)?;
        let has_books = as_of.is_none() && read.subtotal.is_none();
        let folded = series.totals.codes();
        let folded = folded.filter(|code| code.grain() == Grain::Day);
        Ok(UsersView {
            live: self.live,
            folded: folded.map(|code| Day::of(code.start())).collect(),
            series,
            read,
            memory,
            books: has_books.then(|| Arc::clone(&self.snapshot.manifest)),
            _charge: charge,
        })
    }
}

impl UsersView<'_> {
    /// Unites the users of base buckets, or minutes, that start in `range` (Unix seconds). `number` maps the start of
    /// one to a group; the result has the users of each group, 4 KiB each at most. None leaves it out. Fails when a
    /// block is damaged, or a file of a final day is gone.
    pub fn unite(
        &self,
        range: &Range<i64>,
        number: impl Fn(i64) -> Option<usize>,
    ) -> Result<BTreeMap<usize, Users>> {
        let mut united: BTreeMap<usize, Users> = BTreeMap::new();
        let finals = self.final_days(range)?;
        let mut unite = |start: i64, users: &Users| {
            if range.contains(&start)
                && let Some(number) = number(start)
            {
                united.entry(number).or_default().union(users);
            }
        };
        let mut unite_counted = |code: TimeCode, users: &Users| {
            let start = code.start();
            let is_later = |day: &FinalDay| day.later.contains(&start);
            if finals.get(&Day::of(start)).is_none_or(is_later) {
                unite(start, users);
            }
        };
        self.memory
            .iter()
            .for_each(|(&code, users)| unite_counted(code, users));
        let asked = range.start.max(self.read.from)..range.end.min(self.read.to);
        for run in &self.series.runs {
            self.visit(run, &asked, &mut unite_counted)?;
        }
        for (&day, FinalDay { book, .. }) in &finals {
            if let Some(book) = book {
                let of_day = self.of_day(day, &asked);
                self.visit(book, &of_day, &mut |code, users| {
                    unite(self.bucket(day, code), users);
                })?;
            }
        }
        Ok(united)
    }

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

    /// Days that meet `range` (Unix seconds) whose users are those of their books.
    fn final_days(&self, range: &Range<i64>) -> Result<BTreeMap<Day, FinalDay>> {
        let Some(manifest) = &self.books else {
            return Ok(BTreeMap::new());
        };
        let asked = range.start.max(self.read.from)..range.end.min(self.read.to);
        let finals = &manifest.archive.finals;
        let first = finals.partition_point(|version| version.day.next().start() <= asked.start);
        let end = finals.partition_point(|version| version.day.start() < asked.end);
        let finals = finals.get(first..end).unwrap_or_default();
        // Where no version had another verdict, what is counted has the users of the books already, and those of later.
        // A merge may have left out users whom an earlier version took away and the newest gives back.
        let is_changed = |versions: &&[FinalEntry]| {
            let mut versions = versions.iter();
            versions.any(|version| version.verdicts.is_some())
        };
        let days = finals.chunk_by(|a, b| a.day == b.day).filter(is_changed);
        let newest = days.filter_map(<[_]>::last);
        let newest = newest.filter(|version| !version.sums_only);
        let read = |version: &FinalEntry| Ok((version.day, self.final_day(version, &asked)?));
        newest.map(read).collect()
    }

    fn final_day(&self, version: &FinalEntry, asked: &Range<i64>) -> Result<FinalDay> {
        let read = &self.read;
        let total_key = line::total_key(&read.namespace, &self.live.keys.stored(&read.key));
        let crc = KeyCrc::of(total_key.as_bytes());
        let section = line::total_key(&read.namespace, "");
        let book = version.books.iter().find(|book| {
            let meta = &book.meta;
            crc.shard(meta.shards) == meta.shard && meta.sums.contains_key(&section)
        });
        let book = book.map(|book| self.live.open_book(book)).transpose()?;
        let (day, key) = (version.day, total_key.as_bytes());
        let of_day = self.of_day(day, asked);
        let mut counted: BTreeMap<i64, u64> = BTreeMap::new();
        if let Some(book) = &book {
            book.visit_prefix(&self.live.cache, (key, key), &mut |found, payload| {
                if found != key {
                    return ControlFlow::Break(());
                }
                for (code, count) in line::hours(payload).flatten() {
                    if of_day.contains(&code.start()) {
                        let sum = counted.entry(self.bucket(day, code)).or_default();
                        *sum = sum.saturating_add(count);
                    }
                }
                ControlFlow::Continue(())
            })?;
        }
        let served = self.series.totals.iter();
        let served = served.filter(|(code, _)| Day::of(code.start()) == day);
        let later = served.filter(|(code, count)| counted.get(&code.start()) != Some(count));
        Ok(FinalDay {
            later: later.map(|(code, _)| code.start()).collect(),
            book,
        })
    }

    /// Visits the users in a run for `range`.
    fn visit(
        &self,
        run: &Run,
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
            line::subtotal_prefix(&name, &read.namespace, &self.live.keys.stored(&read.key));
        let prefix = prefix.as_bytes();
        let mut first = prefix.to_vec();
        begin.write_to(&mut first);
        let mut damaged = None;
        let places = (prefix, first.as_slice());
        run.visit_prefix(&self.live.cache, places, &mut |key, payload| {
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
