//! A store that is corrected, the map of what it counts, and every way to read it.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::{ControlFlow, Range};
use std::sync::Arc;

use tallyring_archive::merge::{total_payloads, write_subtotal};
use tallyring_archive::{
    Blobs, Corrects, GENERATIONS_KEPT, KeepDays, Manifest, Origin, Partition, RunEntry, RunSpec,
    RunWriter, verify_run,
};
use tallyring_realtime::{
    Batch, Effort, Error, Fix, KeyPlace, KeySearch, KeyText, Options, Read, Series, Store,
};
use tallyring_rebuild::{BuildOptions, REWRITE_BYTES_MIN, build, remake};
use tallyring_records::{
    Counts, Day, Grain, Increment, MINUTES, Namespace, Schema, TimeCode, line, minute_value,
    shard_of,
};
use tallyring_tests::model::{Chance, ManualClock, world};
use tallyring_tests::sim_disk::SimDisk;

/// 2012-03-16, the day that is corrected.
pub(crate) const DAY: i64 = 1_331_856_000;
pub(crate) const HOURS: i64 = 3_600;
pub(crate) const DAYS: i64 = 86_400;
pub(crate) const SHARDS: u16 = 2;
/// The name of a load, which begins the names of sorted runs.
pub(crate) const LOAD: &str = "0123456789abcdef";
const BREAKDOWN_HOURS: u32 = 3;
/// For how long the books of final days are kept.
pub(crate) const FINAL_DAYS: u32 = 30;

/// Key, minute (Unix seconds) and country.
pub(crate) type Place = (String, i64, String);
/// Counts by place.
pub(crate) type Book = BTreeMap<Place, u64>;

pub(crate) fn schema() -> Schema {
    Schema {
        namespaces: vec![Namespace {
            name: "l".into(),
            title: String::new(),
            grain: Grain::Hour,
            subtotals: vec!["c".into()],
            minutes: true,
            uniques: true,
        }],
        events: Vec::new(),
        ratios: Vec::new(),
        filters: Vec::new(),
        lists: Vec::new(),
        titles: BTreeMap::new(),
        settings: BTreeMap::new(),
    }
}

pub(crate) fn day() -> Day {
    Day::of(DAY)
}

fn whole_day() -> Range<i64> {
    DAY..DAY + DAYS
}

/// A store, what it counts on the day, and its fixes.
pub(crate) struct Kept {
    pub(crate) disk: SimDisk,
    pub(crate) clock: Arc<ManualClock>,
    pub(crate) store: Store,
    pub(crate) book: Book,
    pub(crate) chance: Chance,
    /// For how long rebuilds keep detail.
    pub(crate) keep: KeepDays,
    /// The counts that the newest fix adds, and those that it takes away.
    newest: Option<(Book, Book)>,
}

fn open(disk: &SimDisk, clock: &Arc<ManualClock>) -> Store {
    let options = Options {
        shards: SHARDS,
        breakdown_hours: BREAKDOWN_HOURS,
        final_days: Some(FINAL_DAYS),
        ..Options::default()
    };
    let world = world(disk.clone(), Arc::clone(clock) as _);
    Store::open(world, options, schema()).expect("open").0
}

impl Kept {
    /// Counts on the day, and then it is the day after the next.
    pub(crate) fn new(seed: u64) -> Self {
        let disk = SimDisk::default();
        let clock = Arc::new(ManualClock::new((DAY + 12 * HOURS) * 1_000, true));
        let store = open(&disk, &clock);
        let mut kept = Self {
            disk,
            clock,
            store,
            book: Book::new(),
            chance: Chance::new(seed),
            keep: KeepDays::default(),
            newest: None,
        };
        kept.count();
        kept.clock.set((DAY + 2 * DAYS) * 1_000);
        kept.store.intake().tick().expect("another day");
        kept
    }

    fn draw(&mut self) -> Place {
        let key = format!("k{}", self.chance.below(5));
        let at = DAY + 60 * self.chance.between(0, 1_439);
        let country = *self.chance.pick(&["US", "JP", "-"]);
        (key, at, country.to_owned())
    }

    /// Counts one click.
    pub(crate) fn click(&mut self, place: &Place) {
        let (key, at, country) = place.clone();
        let increment = Increment {
            by: vec![("c".into(), country.into())],
            ..Increment::new(at, 1, [("l", key)])
        };
        self.commit(vec![increment]);
        *self.book.entry(place.clone()).or_insert(0) += 1;
    }

    /// Counts some clicks of the day.
    pub(crate) fn count(&mut self) {
        let mut increments = Vec::new();
        for number in 0..1 + self.chance.below(12) {
            let (key, at, country) = self.draw();
            let n = 1 + self.chance.below(4);
            let mut increment = Increment::new(at, n, [("l", key.clone())]);
            increment.by = vec![("c".into(), country.clone().into())];
            increment.user = Some(format!("user {number}"));
            *self.book.entry((key, at, country)).or_insert(0) += n;
            increments.push(increment);
        }
        self.commit(increments);
    }

    fn commit(&self, increments: Vec<Increment>) {
        let batch = Batch {
            increments,
            ..Batch::default()
        };
        let counted = self.store.intake().commit(vec![batch]).remove(0);
        counted.expect("counted");
    }

    /// Draws what is to be taken away and added, publishes it, and follows.
    pub(crate) fn fix(&mut self) {
        let (mut plus, mut minus) = (Book::new(), Book::new());
        for (place, count) in &self.book {
            if self.chance.percent(30) {
                minus.insert(place.clone(), 1 + self.chance.below(*count));
            }
        }
        for _ in 0..self.chance.below(4) {
            let place = self.draw();
            *plus.entry(place).or_insert(0) += 1 + self.chance.below(3);
        }
        if plus.is_empty() && minus.is_empty() {
            return;
        }
        self.correct(plus, minus);
    }

    /// Undoes the newest fix by another one.
    pub(crate) fn give_back(&mut self) {
        if let Some((plus, minus)) = self.newest.take() {
            self.correct(minus, plus);
        }
    }

    fn correct(&mut self, plus: Book, minus: Book) {
        let published = self.publish(&plus, &minus);
        published.expect("published");
        self.follow(&plus, &minus);
        self.newest = Some((plus, minus));
    }

    pub(crate) fn follow(&mut self, plus: &Book, minus: &Book) {
        for (place, count) in plus {
            *self.book.entry(place.clone()).or_insert(0) += count;
        }
        for (place, count) in minus {
            *self.book.get_mut(place).expect("counted") -= count;
        }
        self.book.retain(|_, count| *count > 0);
    }

    pub(crate) fn publish(&self, plus: &Book, minus: &Book) -> Result<(), Error> {
        self.publish_for(self.all_records(), plus, minus)
    }

    /// As [`Kept::publish`], for some records alone.
    pub(crate) fn publish_for(
        &self,
        corrects: Corrects,
        plus: &Book,
        minus: &Book,
    ) -> Result<(), Error> {
        let fix = Fix {
            day: day(),
            version: self.store.manifest().archive.next_fix(day()),
            corrects,
            plus: self.write(&lines_of(plus)),
            minus: self.write(&lines_of(minus)),
        };
        self.store.ledger().publish_fix(&fix)
    }

    pub(crate) fn all_records(&self) -> Corrects {
        Corrects {
            from: 0,
            until: self.store.live().applied().sequence,
        }
    }

    /// Writes lines as sorted runs.
    pub(crate) fn write(&self, lines: &BTreeMap<String, String>) -> Vec<RunEntry> {
        let of_shard = |shard| {
            let spec = RunSpec {
                origin: Origin::Sorted(LOAD.into()),
                partition: Partition::month_of(day().code()),
                shard,
                shards: SHARDS,
                level: 1,
            };
            let mut writer = RunWriter::create(&self.disk.blobs(), spec).expect("begun");
            let own = lines.iter().filter(|(key, _)| {
                let key = line::shard_key(key.as_bytes()).expect("no lookup");
                shard_of(key, SHARDS) == shard
            });
            let mut lines = 0;
            for (key, payload) in own {
                lines += 1;
                let pushed = writer.push(key.as_bytes(), payload.as_bytes());
                pushed.expect("pushed");
            }
            (lines > 0)
                .then(|| writer.finish().expect("written"))
                .flatten()
        };
        (0..SHARDS).filter_map(of_shard).collect()
    }

    /// Merges what is worth it, or whatever there is; proves every file.
    pub(crate) fn rebuild(&mut self) {
        let manifest = self.store.ledger().cut().expect("cut");
        assert_eq!(self.rebuild_from(&manifest), [""; 0]);
    }

    /// As [`Kept::rebuild`], without the counts of open delta stores. Returns why fixes are not merged.
    pub(crate) fn rebuild_from(&mut self, manifest: &Manifest) -> Vec<String> {
        let rewrite_bytes_min = *self.chance.pick(&[0, REWRITE_BYTES_MIN]);
        let options = BuildOptions {
            breakdown_hours: BREAKDOWN_HOURS,
            rewrite_bytes_min,
            shards: SHARDS,
            level: 1,
            keep: self.keep,
        };
        let built = build(&self.disk.blobs(), manifest, options, &|_, _| {}).expect("built");
        let refused = built.iter().flat_map(|built| built.refused.clone());
        let refused = refused.collect();
        if let Some(built) = built {
            self.store.ledger().publish(&built).expect("published");
        }
        let manifest = self.store.manifest();
        for file in manifest.files() {
            verify_run(&self.disk.blobs(), file).expect("whole");
        }
        let scratch = SimDisk::default().blobs();
        remake(&self.disk.blobs(), &scratch, &manifest).expect("the merge of its source runs");
        refused
    }

    pub(crate) fn roll_back(&mut self) {
        let manifest = self.store.manifest();
        let kept: Vec<u64> = (manifest.archive.generations.iter())
            .map(|kept| kept.number)
            .collect();
        assert!(kept.len() <= GENERATIONS_KEPT);
        if !kept.is_empty() {
            let number = *self.chance.pick(&kept);
            self.store.ledger().activate(number).expect("rolled back");
        }
    }

    pub(crate) fn restart(&mut self) {
        self.disk = match self.chance.percent(50) {
            true => self.disk.kill(),
            false => self.disk.crash(&mut || u64::MAX),
        };
        self.store = open(&self.disk, &self.clock);
    }

    /// Stops, changes what is on the disk, and starts again.
    pub(crate) fn stop_and(self, change: impl FnOnce(&Blobs)) -> Self {
        drop(self.store);
        change(&self.disk.blobs());
        let store = open(&self.disk, &self.clock);
        Self { store, ..self }
    }

    /// Reads everything in every way.
    pub(crate) fn check(&self, when: &str) {
        let mut keys: BTreeSet<&str> = (self.book.keys()).map(|(key, _, _)| &**key).collect();
        keys.insert("never");
        for key in keys {
            self.check_key(key, when);
        }
        let view = self.store.view();
        for by_minute in [false, true] {
            let width = if by_minute { 60 } else { HOURS };
            let found = view.totals("l", whole_day(), by_minute, None);
            let found = found.unwrap_or_else(|error| panic!("{when}: {error}"));
            let expected = self.sums(|_| true, width);
            assert_eq!(starts(&found.totals), expected, "{when}, by {width} s");
        }
        let odd = DAY + 7 * HOURS + 13 * 60..DAY + 19 * HOURS + 47 * 60;
        for range in [whole_day(), DAY + 5 * HOURS..DAY + 6 * HOURS, odd] {
            for limit in [2, 100] {
                self.check_top(&range, limit, when);
            }
            self.check_found(&range, when);
        }
    }

    fn check_key(&self, key: &str, when: &str) {
        let read = |subtotal: Option<&str>, rolled| {
            let read = Read {
                namespace: "l".into(),
                key: key.into(),
                subtotal: subtotal.map(str::to_owned),
                from: DAY,
                to: DAY + DAYS,
                rolled,
            };
            let view = self.store.view();
            let series = view
                .read(&read, None)
                .unwrap_or_else(|error| panic!("{when}: {error}"));
            let cached = view
                .read_cached(&read, None)
                .expect("read")
                .expect("cached");
            assert_eq!(cached.totals, series.totals, "{when}");
            series
        };
        let of_key = |(of, _, _): &Place| of == key;
        let hours = self.sums(of_key, HOURS);
        assert_eq!(starts(&read(None, None).totals), hours, "{when}: {key}");
        let by_country = read(Some("c"), None);
        assert_eq!(starts(&by_country.totals), hours, "{when}: {key}");
        let mut values: BTreeMap<(i64, &str), u64> = BTreeMap::new();
        for ((_, at, country), count) in self.book.iter().filter(|(place, _)| of_key(place)) {
            *values
                .entry((at - at.rem_euclid(HOURS), country))
                .or_insert(0) += count;
        }
        assert_eq!(points(&by_country), values, "{when}: {key}");
        let mut rolled: BTreeMap<&str, u64> = BTreeMap::new();
        for ((_, country), count) in &values {
            *rolled.entry(country).or_insert(0) += count;
        }
        let found = read(Some("c"), Some(whole_day()));
        let found: BTreeMap<&str, u64> = (found.values.iter().map(|value| &**value))
            .zip(found.sums.iter().copied())
            .collect();
        assert_eq!(found, rolled, "{when}: {key}");
        let minutes = read(Some(MINUTES), None).by_minute();
        assert_eq!(starts(&minutes), self.sums(of_key, 60), "{when}: {key}");
    }

    fn check_top(&self, range: &Range<i64>, limit: usize, when: &str) {
        let mut sums: BTreeMap<&str, u64> = BTreeMap::new();
        for ((key, at, _), count) in &self.book {
            if range.contains(at) {
                *sums.entry(key).or_insert(0) += count;
            }
        }
        let total: u64 = sums.values().sum();
        let mut expected: Vec<(&str, u64)> = sums.into_iter().collect();
        expected.sort_by_key(|&(key, count)| (std::cmp::Reverse(count), key));
        expected.truncate(limit);
        let view = self.store.view();
        let found = view.top("l", range.clone(), true, (limit, true), None);
        let found = found.unwrap_or_else(|error| panic!("{when}: {error}"));
        let listed: Vec<(&str, u64)> = (found.keys.iter())
            .map(|top| (&*top.key, top.count))
            .collect();
        assert_eq!(
            (listed, found.total),
            (expected, total),
            "{when}: {range:?}"
        );
        assert!(found.bound.is_none() && !found.is_cut, "{when}: {range:?}");
    }

    /// Finds keys by their text. One of which nothing is left is not among them.
    fn check_found(&self, range: &Range<i64>, when: &str) {
        let mut sums: BTreeMap<String, u64> = BTreeMap::new();
        for ((key, at, _), count) in &self.book {
            if range.contains(at) && key.starts_with('k') {
                *sums.entry(key.clone()).or_insert(0) += count;
            }
        }
        let read = Read {
            namespace: "l".into(),
            key: String::new(),
            subtotal: Some(MINUTES.to_owned()),
            from: DAY,
            to: DAY + DAYS,
            rolled: None,
        };
        let search = KeySearch {
            text: &KeyText::Prefix("k".into()),
            periods: &[(read, range.clone())],
            as_of: None,
            at_once: 2,
        };
        let mut found = BTreeMap::new();
        let mut effort = Effort::new(u64::MAX, &|| false);
        let view = self.store.view();
        let from = KeyPlace::default();
        let searched = view.find_keys(&search, from, &mut effort, &mut |of| {
            found.insert(of.key, of.counts[0]);
            Ok(ControlFlow::Continue(()))
        });
        let searched = searched.unwrap_or_else(|error| panic!("{when}: {error}"));
        assert_eq!((found, searched.next), (sums, None), "{when}: {range:?}");
    }

    /// Sums of the keys by steps of some seconds.
    pub(crate) fn sums(&self, of: impl Fn(&Place) -> bool, width: i64) -> BTreeMap<i64, u64> {
        let mut sums = BTreeMap::new();
        for (place, count) in self.book.iter().filter(|(place, _)| of(place)) {
            *sums.entry(place.1 - place.1.rem_euclid(width)).or_insert(0) += count;
        }
        sums
    }
}

fn starts(counts: &Counts) -> BTreeMap<i64, u64> {
    counts
        .iter()
        .map(|(code, count)| (code.start(), count))
        .collect()
}

fn points(series: &Series) -> BTreeMap<(i64, &str), u64> {
    let mut points = BTreeMap::new();
    for point in &series.points {
        let value = &*series.values[point.value as usize];
        *points.entry((point.code.start(), value)).or_insert(0) += point.count;
    }
    points
}

/// The lines of a book: totals, countries and minutes.
pub(crate) fn lines_of(book: &Book) -> BTreeMap<String, String> {
    let mut totals: BTreeMap<String, BTreeMap<TimeCode, u64>> = BTreeMap::new();
    let mut values: BTreeMap<String, BTreeMap<Vec<u8>, u64>> = BTreeMap::new();
    for ((key, at, country), count) in book {
        let hour = TimeCode::containing(*at, Grain::Hour);
        let of_key = totals.entry(line::total_key("l", key)).or_default();
        *of_key.entry(hour).or_insert(0) += count;
        for (subtotal, value) in [
            ("c", country.clone().into_bytes()),
            (MINUTES, minute_value(*at).to_vec()),
        ] {
            let of_hour = format!("{}{hour}", line::subtotal_prefix(subtotal, "l", key));
            *values.entry(of_hour).or_default().entry(value).or_insert(0) += count;
        }
    }
    let text = |payload: Vec<u8>| String::from_utf8(payload).expect("text");
    let totals = totals.into_iter().map(|(key, hours)| {
        let hours: Vec<(TimeCode, u64)> = hours.into_iter().collect();
        (key, text(total_payloads(&hours).remove(0)))
    });
    let values = values.into_iter().map(|(key, values)| {
        let mut values: Vec<(&[u8], u64)> = (values.iter())
            .map(|(value, count)| (&value[..], *count))
            .collect();
        let mut payload = Vec::new();
        write_subtotal(&mut payload, &mut values);
        (key, text(payload))
    });
    totals.chain(values).collect()
}
