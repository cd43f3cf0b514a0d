//! One life: a store, its simulated disk and clock, and the list of all events.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;

use tallyring_archive::{Disk, KeepDays, Partition, RunEntry, names, verify_run};
use tallyring_realtime::{Accepted, Batch, Options, Read, Recount, Store};
use tallyring_rebuild::{BuildOptions, REWRITE_BYTES_MIN, build, remake};
use tallyring_records::{Day, Increment, TIME_MIN};
use tallyring_tests::model::{Chance, Deeds, ManualClock, Oracle, deeds, world};
use tallyring_tests::sim_disk::SimDisk;

use crate::events::{USERS, event, schema};
use crate::everyone;
use crate::{DAY, HOUR};

/// Builds while which more is counted, percent.
const BUSY: u64 = 30;

/// Counts by namespace and key, then by the start of the UTC day.
type Counts = BTreeMap<(String, String), BTreeMap<i64, u64>>;

pub(crate) struct Life {
    chance: Chance,
    disk: SimDisk,
    clock: Arc<ManualClock>,
    /// Unix seconds.
    pub(crate) now: i64,
    options: Options,
    pub(crate) keep: KeepDays,
    oracle: Oracle,
    counts: Counts,
    /// Ids, and when they were sent.
    ids: Vec<(i64, String)>,
    /// Earlier actions may be gone, Unix seconds.
    exact_from: i64,
    /// Users who were erased since a view was held.
    erased: BTreeSet<String>,
    /// Actions that were gone at any check.
    pub(crate) gone: u64,
    /// Files that were verified.
    proved: BTreeSet<(String, String)>,
    pub(crate) steps: Vec<String>,
    pub(crate) done: BTreeMap<&'static str, u64>,
}

impl Life {
    /// An empty store at `now`, Unix seconds.
    pub(crate) fn new(mut chance: Chance, now: i64) -> Self {
        let keep = |chance: &mut Chance, days: &[u32]| {
            let days = *chance.pick(days);
            (days > 0).then_some(days)
        };
        Self {
            disk: SimDisk::default(),
            clock: Arc::new(ManualClock::new(now * 1_000, true)),
            now,
            options: Options {
                segment_bytes: 16 << 10,
                oplog_days: 4,
                id_hours: 36,
                delta_bytes_max: 1 << (14 + chance.below(10)),
                cache_bytes: 1 << (14 + chance.below(10)),
                ..Options::default()
            },
            keep: KeepDays {
                minutes: keep(&mut chance, &[0, 3]),
                hours: keep(&mut chance, &[0, 0, 5]),
                actions: keep(&mut chance, &[0, 1, 3, 10, 32]),
            },
            oracle: Oracle::default(),
            counts: Counts::new(),
            ids: Vec::new(),
            exact_from: i64::MIN,
            erased: BTreeSet::new(),
            gone: 0,
            proved: BTreeSet::new(),
            steps: Vec::new(),
            done: BTreeMap::new(),
            chance,
        }
    }

    fn note(&mut self, kind: &'static str, step: &str) {
        *self.done.entry(kind).or_insert(0) += 1;
        self.steps.push(format!("{} {kind} {step}", self.now));
    }

    pub(crate) fn open(&mut self) -> Store {
        self.options.shards = 1 + self.chance.below(5) as u16;
        let world = || world(self.disk.clone(), Arc::clone(&self.clock) as _);
        let (store, _) = Store::open(world(), self.options, schema()).expect("open");
        if self.chance.percent(30) {
            let readable = Store::open_read_only(world(), self.options).expect("opened to read");
            self.compare(&readable);
        }
        store
    }

    pub(crate) fn live(&mut self, steps: u64) {
        let mut store = self.open();
        for _ in 0..steps {
            match self.chance.below(100) {
                0..80 => self.step(&store),
                80..86 => self.hold(&store),
                86..93 => store = self.die(store),
                93..96 => {
                    self.note("stop", "");
                    self.disk.stop_at_nth_call(1 + self.chance.below(80));
                    match self.chance.below(3) {
                        0 => drop(store.ledger().flush()),
                        1 => drop(store.ledger().cut()),
                        _ => self.try_rebuild(&store),
                    }
                    store = self.die(store);
                }
                _ => store = self.recount(store),
            }
            self.check(&store);
        }
        self.rebuild(&store, BUSY);
        self.rebuild(&store, 0);
        self.check(&store);
        let manifest = store.manifest();
        let erasures = &manifest.intake.erasures;
        let mut sources = manifest.archive.all_sources();
        let is_clean = |file: &RunEntry| erasures.hidden_in(file).is_empty();
        assert!(sources.all(is_clean), "a source run has erased actions");
        let generations = manifest.archive.generations.iter();
        let mut files = generations.flat_map(|kept| &kept.files);
        assert!(files.all(is_clean), "a generation has erased actions");
        let all = self.users();
        self.check_range(&store, &all, &self.oracle.span());
        everyone::check(&store.view(), &all, &self.oracle.span());
        let manifest = store.manifest();
        remake(&self.disk.blobs(), &SimDisk::default().blobs(), &manifest).expect("the same");
    }

    /// A step that keeps the store open.
    fn step(&mut self, store: &Store) {
        match self.chance.below(100) {
            0..46 => self.commit(store),
            46..50 => self.erase(store),
            50..58 => {
                self.note("flush", "");
                store.ledger().flush().expect("flushed");
            }
            58..64 => {
                self.note("fold", "");
                store.live().fold();
            }
            64..68 => {
                self.note("cut", "");
                store.ledger().cut().expect("cut");
            }
            68..78 => self.rebuild(store, BUSY),
            78..82 => self.roll_back(store),
            82..84 => {
                self.note("expire", "");
                store.intake().seal().expect("sealed");
                store.ledger().expire_log().expect("expired");
            }
            _ => {
                let passed = match self.chance.below(20) {
                    0 => self.chance.between(10, 45) * DAY,
                    1 => self.chance.between(1, 4) * DAY,
                    2..8 => DAY - self.now % DAY + self.chance.between(-2, 600),
                    _ => self.chance.between(1, 12 * HOUR),
                };
                self.pass(store, passed);
            }
        }
    }

    /// Lets so many seconds pass.
    pub(crate) fn pass(&mut self, store: &Store, seconds: i64) {
        self.now += seconds;
        self.clock.set(self.now * 1_000);
        self.note("time", &format!("passes by {seconds}"));
        store.intake().tick().expect("time is kept");
    }

    fn commit(&mut self, store: &Store) {
        let (many, is_bot) = match self.chance.below(60) {
            0 => (2_000, true),
            1..4 => (200, false),
            _ => (1 + self.chance.below(8), false),
        };
        self.note("commit", &format!("{many}"));
        self.ids.retain(|(sent, _)| self.now - sent < DAY);
        let known: Vec<String> = self.ids.iter().map(|(_, id)| id.clone()).collect();
        let increments: Vec<Increment> = (0..many)
            .map(|_| event(&mut self.chance, self.now, &known, is_bot))
            .collect();
        self.send(store, increments);
    }

    /// Commits increments, and checks which of them count.
    pub(crate) fn send(&mut self, store: &Store, increments: Vec<Increment>) {
        let schema = schema();
        let (mut accepted, mut duplicates, mut filtered) = (0, 0, 0);
        for increment in &increments {
            if let Some(id) = &increment.id {
                if self.ids.iter().any(|(_, known)| known == id) {
                    duplicates += 1;
                    continue;
                }
                self.ids.push((self.now, id.clone()));
            }
            if increment.event.is_some() && increment.user.as_deref() == Some("me") {
                filtered += 1;
                continue;
            }
            accepted += 1;
            self.oracle.add(&schema, increment);
            for (name, key) in &increment.keys {
                let days = self.counts.entry((name.to_string(), key.to_string()));
                let day = Day::of(increment.at).start();
                *days.or_default().entry(day).or_insert(0) += increment.n;
            }
        }
        let batch = Batch {
            increments,
            ..Batch::default()
        };
        let answer = store.intake().commit(vec![batch]).remove(0);
        let Accepted { late, .. } = answer.clone().unwrap_or_default();
        let expected = Accepted {
            accepted,
            duplicates,
            late,
            filtered,
            ..Accepted::default()
        };
        assert_eq!(answer.expect("counted"), expected);
        *self.done.entry("late").or_insert(0) += late;
        *self.done.entry("duplicate").or_insert(0) += duplicates;
    }

    /// Erases some users.
    fn erase(&mut self, store: &Store) {
        let mut users: Vec<&str> = USERS.to_vec();
        users.retain(|_| self.chance.percent(30));
        self.note("erase", &users.join(" "));
        let names: Vec<String> = users.iter().map(|user| (*user).to_owned()).collect();
        store.intake().erase(&names).expect("erased");
        users.iter().for_each(|user| self.oracle.erase(user, false));
        self.erased.extend(names);
    }

    fn options_of_build(&mut self) -> BuildOptions {
        BuildOptions {
            breakdown_hours: 3,
            // In half of all builds, exports of small months wait, too.
            rewrite_bytes_min: REWRITE_BYTES_MIN * self.chance.below(2),
            shards: 1 + self.chance.below(6) as u16,
            level: 1,
            keep: self.keep,
        }
    }

    /// A rebuild that begins now may leave whole months out that are older than actions are kept.
    fn grow_old(&mut self) {
        if let Some(days) = self.keep.actions {
            let oldest = Day::of(self.now).number().saturating_sub(days);
            let month = Partition::month_of(Day::from_number(oldest).code()).start();
            self.exact_from = self.exact_from.max(month);
        }
    }

    /// Publishes a generation of any number of shards. In `busy` percent of all builds more is counted meanwhile.
    pub(crate) fn rebuild(&mut self, store: &Store, busy: u64) {
        let options = self.options_of_build();
        self.note("rebuild", &format!("{} shards", options.shards));
        store.intake().tick().expect("time is kept");
        let manifest = store.ledger().cut().expect("cut");
        self.grow_old();
        if self.chance.percent(busy) {
            self.commit(store);
            store.ledger().flush().expect("flushed");
            self.erase(store);
        }
        let built = build(&self.disk.blobs(), &manifest, options, &|_, _| {}).expect("built");
        if self.chance.percent(busy) {
            self.commit(store);
            self.erase(store);
        }
        if let Some(built) = built {
            store.ledger().publish(&built).expect("published");
        }
    }

    /// A rebuild on a disk that stops.
    fn try_rebuild(&mut self, store: &Store) {
        let options = self.options_of_build();
        self.grow_old();
        if let Ok(manifest) = store.ledger().cut()
            && let Ok(Some(built)) = build(&self.disk.blobs(), &manifest, options, &|_, _| {})
        {
            drop(store.ledger().publish(&built));
        }
    }

    fn roll_back(&mut self, store: &Store) {
        let manifest = store.manifest();
        let generations = &manifest.archive.generations;
        let kept = generations.iter().filter(|kept| !kept.is_stand_in());
        let kept: Vec<u64> = kept.map(|kept| kept.number).collect();
        if !kept.is_empty() {
            let number = *self.chance.pick(&kept);
            self.note("activate", &format!("{number} of {kept:?}"));
            store.ledger().activate(number).expect("activated");
        }
    }

    /// A view stays as it was, whatever comes, but for users who are erased meanwhile.
    fn hold(&mut self, store: &Store) {
        self.note("hold", "");
        let oracle = self.oracle.clone();
        let (mut users, exact_from) = (self.users(), self.exact_from);
        let view = store.view();
        let before = deeds(&view, &users, &oracle.span()).expect("read");
        let mut before: BTreeMap<String, Deeds> = users.iter().cloned().zip(before).collect();
        self.erased.clear();
        for _ in 0..1 + self.chance.below(12) {
            self.step(store);
            self.check(store);
        }
        users.retain(|user| !self.erased.contains(user));
        before.retain(|user, _| users.contains(user));
        let checked = oracle.check(&view, &users, &oracle.span(), exact_from);
        checked.expect("the view of before");
        let now = deeds(&view, &users, &oracle.span()).expect("read");
        assert_eq!(
            users.into_iter().zip(now).collect::<BTreeMap<_, _>>(),
            before
        );
    }

    /// The process is killed, or power is lost.
    fn die(&mut self, store: Store) -> Store {
        drop(store);
        let lost = self.chance.percent(60);
        self.note("die", if lost { "without power" } else { "" });
        self.disk = match lost {
            true => self.disk.crash(&mut || self.chance.below(u64::MAX)),
            false => self.disk.kill(),
        };
        self.open()
    }

    /// Counts the log again.
    fn recount(&mut self, store: Store) -> Store {
        self.note("recount", "");
        store.intake().seal().expect("sealed");
        drop(store);
        self.disk = self.disk.kill();
        let blobs = self.disk.blobs();
        let from = self.chance.percent(30);
        let from = from.then(|| Day::of(self.now - self.chance.between(0, 5) * DAY));
        let plan = Recount::plan(&blobs, from, &schema(), 4).expect("a plan");
        self.steps
            .push(format!("  whole: {}, {:?}", plan.is_whole, plan.stores));
        plan.manifest.commit(&blobs).expect("committed");
        let kept = plan.manifest.file_names();
        for directory in names::SORTED_FILE_DIRECTORIES {
            for file in self.disk.list(directory).expect("listed") {
                let name = format!("{directory}/{file}");
                if !kept.contains(name.as_str()) {
                    self.disk.remove(&name).expect("removed");
                }
            }
        }
        let store = self.open();
        self.check(&store);
        self.rebuild(&store, BUSY);
        store
    }

    fn users(&self) -> Vec<String> {
        let known = USERS.iter().chain(&["a stranger"]);
        known.map(|&user| user.to_owned()).collect()
    }

    pub(crate) fn check(&mut self, store: &Store) {
        let users = self.users();
        for _ in 0..3 {
            let span = self.oracle.span();
            if span.is_empty() {
                return;
            }
            let longest = *self.chance.pick(&[60, HOUR, DAY, 32 * DAY]);
            let from = match self.chance.below(3) {
                0 => self.chance.between(span.start, span.end),
                1 => self.now - self.chance.between(0, longest),
                _ => Day::of(self.now).start() - DAY * self.chance.between(0, 3),
            };
            let from = from.max(TIME_MIN);
            let range = from..from + self.chance.between(1, longest);
            let few = [
                self.chance.pick(&users).clone(),
                self.chance.pick(&users).clone(),
            ];
            self.check_range(store, &few, &range);
            everyone::check(&store.view(), &users, &range);
        }
        self.compare(store);
        for entry in store.manifest().files() {
            if self.proved.insert((entry.name.clone(), entry.hash.clone())) {
                verify_run(&self.disk.blobs(), entry).expect("a sound file");
            }
        }
    }

    fn check_range(&mut self, store: &Store, users: &[String], range: &Range<i64>) {
        let checked = self
            .oracle
            .check(&store.view(), users, range, self.exact_from);
        self.gone += checked.unwrap_or_else(|problem| panic!("{problem}"));
    }

    /// Compares the counts of a few keys by the day, and the actions of all users of the last days.
    fn compare(&mut self, store: &Store) {
        let recent = (self.now - 3 * DAY).max(TIME_MIN)..self.now + DAY;
        let all = self.users();
        self.check_range(store, &all, &recent);
        let keys: Vec<_> = self.counts.keys().cloned().collect();
        for _ in 0..keys.len().min(3) {
            let (namespace, key) = self.chance.pick(&keys).clone();
            let expected = self.counts[&(namespace.clone(), key.clone())].clone();
            let read = Read {
                namespace,
                key,
                subtotal: Some("c".into()),
                from: TIME_MIN,
                to: self.now + 3 * DAY,
                rolled: None,
            };
            let series = store.view().read(&read, None).expect("read");
            let mut days: BTreeMap<i64, u64> = BTreeMap::new();
            for (code, n) in series.totals.iter() {
                *days.entry(Day::of(code.start()).start()).or_insert(0) += n;
            }
            assert_eq!(days, expected, "{} {}", read.namespace, read.key);
        }
    }
}
