//! A month of nights: exports wait to be merged, so that the rebuilds of a month write about twice its bytes.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use tallyring_archive::{Build, KeepDays, Manifest, Origin, Partition, RunEntry};
use tallyring_realtime::{Batch, Options, Read, Store};
use tallyring_rebuild::{BuildOptions, REWRITE_BYTES_MIN, build};
use tallyring_records::{Day, Grain, Increment, Schema, StoreId, TimeCode, is_breakdown_section};
use tallyring_tests::model::{Chance, ManualClock, world};
use tallyring_tests::sim_disk::SimDisk;

/// 2012-03-01T00:00:00Z.
const FIRST: i64 = 1_330_560_000;
const DAY: i64 = 86_400;
const DAYS: i64 = 31;
/// Hardly a key comes twice, so a day takes about 300 kB.
const CLICKS: usize = 30_000;

fn count(store: &Store, increments: Vec<Increment>) {
    let batch = Batch {
        increments,
        ..Batch::default()
    };
    let commit = store.intake().commit(vec![batch]);
    commit.into_iter().for_each(|answer| {
        answer.expect("counted");
    });
}

fn rebuild(store: &Store, disk: &SimDisk) {
    let options = BuildOptions {
        breakdown_hours: 3,
        rewrite_bytes_min: REWRITE_BYTES_MIN,
        shards: 2,
        level: 1,
        keep: KeepDays::default(),
    };
    rebuild_with(store, disk, options);
}

/// Publishes a rebuild; what it was built from, and what was built.
fn rebuild_with(store: &Store, disk: &SimDisk, options: BuildOptions) -> (Manifest, Build) {
    let manifest = store.ledger().cut().expect("cut");
    let built = build(&disk.blobs(), &manifest, options, &|_, _| {}).expect("built");
    let built = built.expect("something to build");
    store.ledger().publish(&built).expect("published");
    ((*manifest).clone(), built)
}

/// A store whose namespaces all keep minutes.
fn open(disk: &SimDisk, clock: &Arc<ManualClock>, shards: u16) -> Store {
    let world = world(disk.clone(), Arc::clone(clock) as _);
    let options = Options {
        shards,
        ..Options::default()
    };
    let mut schema = Schema::default_clicks();
    for namespace in &mut schema.namespaces {
        namespace.minutes = true;
    }
    Store::open(world, options, schema).expect("open").0
}

fn day_of(at: i64) -> i64 {
    Day::of(at).start()
}

/// Counts of a key by the start of their day.
fn days_of(store: &Store, key: &str, as_of: Option<u64>) -> BTreeMap<i64, u64> {
    let read = Read {
        namespace: "l".into(),
        key: key.into(),
        subtotal: None,
        from: FIRST - 40 * DAY,
        to: FIRST + 80 * DAY,
        rolled: None,
    };
    let series = store.view().read(&read, as_of).expect("read");
    let mut days = BTreeMap::new();
    for (code, n) in series.totals.iter() {
        *days.entry(day_of(code.start())).or_insert(0) += n;
    }
    days
}

/// Bytes of files that are not yet in `known`, which gets their content.
fn new_bytes<'r>(runs: impl Iterator<Item = &'r RunEntry>, known: &mut BTreeSet<String>) -> u64 {
    let new = runs.filter(|run| known.insert(run.hash.clone()));
    new.map(|run| run.bytes).sum()
}

#[test]
fn the_rebuilds_of_a_month_write_three_times_what_came_and_nothing_is_missed_meanwhile() {
    let disk = SimDisk::default();
    let clock = Arc::new(ManualClock::new(FIRST * 1_000, true));
    let store = open(&disk, &clock, 2);
    let mut dice = Chance::new(7);
    let (mut known, mut exported, mut written) = (BTreeSet::new(), 0, 0);
    let mut waited = 0;
    let mut counted: BTreeMap<i64, u64> = BTreeMap::new();
    for day in 0..DAYS + 2 {
        let today = FIRST + day * DAY;
        clock.set((today + 600) * 1_000);
        store.intake().tick().expect("a new day");
        if day > 0 {
            rebuild(&store, &disk);
            let manifest = store.manifest();
            let archive = &manifest.archive;
            let is_export = |run: &&RunEntry| matches!(run.origin, Origin::Export { .. });
            exported += new_bytes(archive.runs.iter().filter(is_export), &mut known);
            let active = archive.active_generation().expect("a generation");
            written += new_bytes(active.files.iter(), &mut known);
            let pending = archive.pending().count();
            waited = waited.max(pending);
            let has_breakdowns = |file: &RunEntry| {
                let mut sections = file.meta.sums.keys();
                sections.any(|section| is_breakdown_section(section))
            };
            let is_large = active.files.iter().map(|file| file.bytes).sum::<u64>() > 2 << 20;
            if day < DAYS && is_large {
                assert!(!active.files.iter().any(has_breakdowns), "day {day}");
            }
            assert!(store.view().is_archived(today), "day {day}");
            if day == DAYS {
                assert!(pending > 0, "the last day may still get its further store");
            }
            if day == DAYS + 1 {
                let of_march = |run: &&RunEntry| run.meta.first < FIRST + DAYS * DAY;
                assert_eq!(archive.pending().filter(of_march).count(), 0);
                let files = active.files.iter().filter(of_march);
                assert_eq!(files.count(), 2, "one for each shard");
            }
        }
        let mut click = |at: i64, by: &str| Increment {
            by: vec![("c".into(), by.into())],
            ..Increment::new(at, 1, [("l", format!("{:011x}", dice.below(1 << 44)))])
        };
        let mut clicks: Vec<Increment> = (0..CLICKS)
            .map(|number| click(today + number as i64 * 2, "US"))
            .collect();
        clicks.push(click(today + DAY - 1_800, "DE"));
        for click in &mut clicks[..100] {
            click.keys[0].1 = "often".into();
        }
        counted.insert(today, 100);
        count(&store, clicks);
        assert_eq!(days_of(&store, "often", None), counted, "day {day}");
    }
    assert!(waited >= 2 * 12, "{waited} exports waited at most");
    let times = (exported + written) as f64 / exported as f64;
    assert!(
        times < 3.2,
        "{exported} bytes came, and {written} were merged"
    );
}

/// Keys that every click of the second test counts on, some of each shard.
const KEYS: [&str; 8] = ["a", "b", "c", "d", "e", "f", "g", "h"];
/// Other keys of a day, so that a month grows by the day.
const OTHERS: usize = 300;
/// How long after a day its late store takes what still comes of it, days.
const LONG: i64 = 5;

/// Counts of each of [`KEYS`] by the start of their day.
type Days = BTreeMap<i64, u64>;

/// The answers that a generation must give.
#[derive(Clone)]
struct Kept {
    days: Days,
    /// The first day that it lacks.
    lacks: i64,
}

/// A store, and by hand what it counts and what its generations merged.
struct Nights {
    disk: SimDisk,
    clock: Arc<ManualClock>,
    store: Store,
    options: BuildOptions,
    dice: Chance,
    today: i64,
    all: Days,
    /// By the delta store that takes it: of a day the first or the further one, or the late one.
    open: BTreeMap<Option<(i64, bool)>, Days>,
    /// Counts that the newest generation has not merged, by export and month.
    waiting: BTreeMap<(Origin, Partition), Days>,
    kept: BTreeMap<u64, Kept>,
}

impl Nights {
    fn new() -> Self {
        let disk = SimDisk::default();
        let clock = Arc::new(ManualClock::new(FIRST * 1_000, true));
        Self {
            store: open(&disk, &clock, 2),
            options: BuildOptions {
                breakdown_hours: 3,
                rewrite_bytes_min: 0,
                shards: 2,
                level: 1,
                keep: KeepDays::default(),
            },
            disk,
            clock,
            dice: Chance::new(7),
            today: FIRST,
            all: Days::new(),
            open: BTreeMap::new(),
            waiting: BTreeMap::new(),
            kept: BTreeMap::new(),
        }
    }

    /// Counts one click on every key, in this delta store.
    fn click(&mut self, at: i64, store: Option<(i64, bool)>) {
        let clicks = KEYS.map(|key| Increment::new(at, 1, [("l", key)]));
        count(&self.store, clicks.into());
        let day = day_of(at);
        *self.all.entry(day).or_insert(0) += 1;
        let open = self.open.entry(store).or_default();
        *open.entry(day).or_insert(0) += 1;
    }

    /// A day's clicks, after the rebuild of its night; some come late, for yesterday and for a day long gone.
    fn day(&mut self, number: i64) {
        let today = self.today;
        for hour in [1, 8, 23] {
            self.click(today + hour * 3_600, Some((today, false)));
        }
        let others = (0..OTHERS).map(|_| {
            let key = format!("{:011x}", self.dice.below(1 << 44));
            Increment::new(today + 7_200, 1, [("l", key)])
        });
        let others = others.collect();
        count(&self.store, others);
        if number > 0 {
            self.click(today - 1_800, Some((today - DAY, true)));
        }
        if number >= LONG {
            self.click(today - LONG * DAY, None);
        }
    }

    fn night(&mut self) {
        self.today += DAY;
        self.clock.set((self.today + 600) * 1_000);
        self.store.intake().tick().expect("a new day");
        let (manifest, built) = rebuild_with(&self.store, &self.disk, self.options);
        for run in &built.runs {
            let Origin::Export { store, from } = &run.origin else {
                panic!("{} is no export", run.name);
            };
            let days = self
                .open
                .remove(&store.day().map(|day| (day.start(), from.is_some())));
            for (day, n) in days.into_iter().flatten() {
                let month = Partition::month_of(TimeCode::containing(day, Grain::Hour));
                let piece = self.waiting.entry((run.origin.clone(), month));
                *piece.or_default().entry(day).or_insert(0) += n;
            }
        }
        let Some(generation) = &built.generation else {
            return;
        };
        let merged: BTreeSet<&str> = generation.merged.iter().map(String::as_str).collect();
        let newest = self.kept.values().next_back();
        let mut days = newest.map_or_else(Days::new, |newest| newest.days.clone());
        for run in manifest.archive.runs.iter().chain(&built.runs) {
            let piece = (run.origin.clone(), run.meta.partition);
            if !merged.contains(run.name.as_str()) {
                continue;
            }
            for (day, n) in self.waiting.remove(&piece).into_iter().flatten() {
                *days.entry(day).or_insert(0) += n;
            }
        }
        let of_days = self.waiting.keys().filter_map(|(origin, _)| match origin {
            Origin::Export {
                store: StoreId::Day(day),
                from: None,
            } => Some(day.start()),
            _ => None,
        });
        let lacks = of_days.min().unwrap_or(self.today);
        self.kept.insert(generation.number, Kept { days, lacks });
        let archive = &self.store.manifest().archive;
        self.kept
            .retain(|number, _| archive.generation(*number).is_some());
    }

    /// Every read is as it was counted, now and as of each kept generation.
    fn check(&self, when: &str) {
        for key in KEYS {
            let found = days_of(&self.store, key, None);
            assert_eq!(found, self.all, "{key}, {when}");
            for (&number, kept) in &self.kept {
                let found = days_of(&self.store, key, Some(number));
                assert_eq!(found, kept.days, "{key} as of {number}, {when}");
            }
        }
        let now = self.today + 12 * 3_600;
        let view = self.store.view();
        for (&number, kept) in &self.kept {
            let settled = view.settled_until("l", None, now).min(kept.lacks);
            let found = view.settled_until("l", Some(number), now);
            assert_eq!(found, settled, "as of {number}, {when}");
        }
    }

    /// A start with as many shards as the next generation has.
    fn reopen(self) -> Self {
        let Self {
            disk,
            clock,
            store,
            options,
            ..
        } = self;
        drop(store);
        Self {
            store: open(&disk, &clock, options.shards),
            disk,
            clock,
            options,
            ..self
        }
    }

    fn activate(&self, number: u64) {
        self.store.ledger().activate(number).expect("kept");
        self.check(&format!("generation {number} is active"));
    }
}

#[test]
fn late_events_a_rollback_and_other_shards_change_no_count_while_exports_wait() {
    let mut nights = Nights::new();
    let (mut waited, mut lacked, mut late_waited) = (0, 0, 0);
    for number in 0..DAYS + 8 {
        if number > 0 {
            nights.night();
            nights.check(&format!("night {number}"));
        }
        nights.day(number);
        nights.check(&format!("day {number}"));
        let is_late = |(origin, _): &&(Origin, Partition)| origin.is_late_export();
        waited += usize::from(!nights.waiting.is_empty());
        late_waited += nights.waiting.keys().filter(is_late).count();
        let active = nights.store.manifest().archive.active;
        lacked += usize::from(
            nights
                .kept
                .get(&active)
                .is_some_and(|kept| kept.lacks < nights.today),
        );
        match number {
            // There and back while exports wait.
            12 | 20 | 33 => {
                let (&oldest, _) = nights.kept.first_key_value().expect("a generation");
                let (&newest, _) = nights.kept.last_key_value().expect("a generation");
                assert!(oldest < newest && !nights.waiting.is_empty());
                nights.activate(oldest);
                nights.activate(newest);
            }
            // The next night begins from an older generation.
            15 | 35 => {
                let (&oldest, _) = nights.kept.first_key_value().expect("a generation");
                assert!(!nights.waiting.is_empty());
                nights.activate(oldest);
            }
            17 | 34 => {
                assert!(!nights.waiting.is_empty());
                nights.options.shards = if number == 17 { 3 } else { 1 };
                nights = nights.reopen();
                nights.check("other shards");
            }
            _ => {}
        }
    }
    assert!(
        waited > 30 && lacked > 20 && late_waited > 20,
        "{waited} {lacked} {late_waited}"
    );
}

#[test]
fn a_year_that_a_clock_opens_again_counts_as_before() {
    let disk = SimDisk::default();
    // 2011-12-20.
    let first = 1_324_339_200;
    let clock = Arc::new(ManualClock::new(first * 1_000, true));
    let store = open(&disk, &clock, 2);
    let mut expected = Vec::new();
    // On day 20 the year 2011 is closed, and on days 16 and 17 it is open.
    for (day, is_closed) in [(0, false), (1, false), (20, true), (16, false), (17, false)] {
        let now = first + day * DAY;
        clock.set(now * 1_000);
        store.intake().tick().expect("another day");
        if day > 0 && day != 16 {
            rebuild(&store, &disk);
            let manifest = store.manifest();
            let active = manifest.archive.active_generation().expect("a generation");
            assert_eq!(active.files[0].meta.partition.is_year(), is_closed);
        }
        count(
            &store,
            vec![Increment::new(now, 1, [("l", "a".to_owned())])],
        );
        expected.push((now, 1));
        expected.sort_unstable();
        let read = Read {
            namespace: "l".into(),
            key: "a".into(),
            subtotal: None,
            from: first,
            to: first + 21 * DAY,
            rolled: None,
        };
        let series = store.view().read(&read, None).expect("read");
        let found = series.totals.iter().map(|(code, n)| (code.start(), n));
        assert_eq!(found.collect::<Vec<_>>(), expected, "day {day}");
    }
}
