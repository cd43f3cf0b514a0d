//! Settled buckets as a stream: a reader that keeps the highest version of every line ends with exactly the counts of
//! the reads, over late increments, restarts, flushes, rebuilds, midnights and pages of few lines.

use std::collections::BTreeMap;
use std::sync::Arc;

use tallyring_archive::KeepDays;
use tallyring_realtime::{Batch, ClosedCursor, ClosedReader, Error, Options, Read, Store};
use tallyring_rebuild::{BuildOptions, REWRITE_BYTES_MIN, build};
use tallyring_records::{Increment, MINUTES, Schema, TIME_MAX, TIME_MIN};
use tallyring_tests::model::{ManualClock, world};
use tallyring_tests::sim_disk::SimDisk;

const MINUTE: i64 = 60;
const HOUR: i64 = 60 * MINUTE;
/// 2012-03-31T18:00:00Z
const START: i64 = 1_333_216_800;
const SEEDS: u64 = 24;
const STEPS: usize = 160;

/// `l` is counted by the hour, `d` by the quarter of an hour, `u` by the minute.
fn schema() -> Schema {
    let mut schema = Schema::default_clicks();
    for namespace in &mut schema.namespaces {
        namespace.minutes = namespace.name == "u";
        if namespace.name == "d" {
            namespace.grain = tallyring_records::Grain::Quarter;
        }
    }
    schema
}

struct Kept {
    disk: SimDisk,
    clock: Arc<ManualClock>,
    store: Store,
}

fn open(disk: &SimDisk, clock: &Arc<ManualClock>) -> Store {
    let options = Options {
        // Segments of a few records, and the oldest of them go.
        segment_bytes: 1 << 10,
        oplog_days: 2,
        ..Options::default()
    };
    let world = world(disk.clone(), Arc::clone(clock) as _);
    Store::open(world, options, schema()).expect("open").0
}

impl Kept {
    fn new() -> Self {
        let disk = SimDisk::default();
        let clock = Arc::new(ManualClock::new(START * 1_000, true));
        let store = open(&disk, &clock);
        Self { disk, clock, store }
    }

    fn now(&self) -> i64 {
        use tallyring_realtime::Clock;
        self.clock.now_ms() / 1_000
    }

    fn count(&self, increments: Vec<Increment>) {
        let batch = Batch {
            increments,
            ..Batch::default()
        };
        let outcome = self.store.intake().commit(vec![batch]).remove(0);
        outcome.expect("counted");
    }

    fn pass(&self, seconds: i64) {
        self.clock.pass(seconds * 1_000);
        self.store.intake().tick().expect("time is kept");
    }

    fn restart(self) -> Self {
        let Self { disk, clock, store } = self;
        drop(store);
        let store = open(&disk, &clock);
        Self { disk, clock, store }
    }

    fn rebuild(&self) {
        let manifest = self.store.ledger().cut().expect("cut");
        let options = BuildOptions {
            shards: 2,
            level: 1,
            keep: KeepDays::default(),
            breakdown_hours: 3,
            rewrite_bytes_min: REWRITE_BYTES_MIN,
        };
        let built = build(&self.disk.blobs(), &manifest, options, &|_, _| {}).expect("build");
        if let Some(built) = built {
            self.store.ledger().publish(&built).expect("publish");
        }
        self.store.ledger().expire_log().expect("expire");
    }
}

/// A consumer of one namespace, which keeps the newest version of every bucket.
struct Consumer {
    namespace: &'static str,
    width: i64,
    cursor: String,
    settled: i64,
    buckets: BTreeMap<(String, i64), (u64, u64)>,
}

impl Consumer {
    fn new(kept: &Kept, namespace: &'static str, from: Option<i64>) -> Self {
        let schema = kept.store.schema();
        let view = kept.store.view();
        let namespace_of = schema.namespace(namespace).expect("declared");
        let reader = ClosedReader::new(&kept.store, &view, namespace_of, kept.now());
        let cursor = reader.begin(from);
        Self {
            namespace,
            width: reader.grain().seconds(),
            settled: cursor.settled_until(),
            cursor: reader.text_of(&cursor),
            buckets: BTreeMap::new(),
        }
    }

    /// Asks for one page; true when there is more.
    fn page(&mut self, kept: &Kept, limit: usize) -> Result<bool, Error> {
        let schema = kept.store.schema();
        let view = kept.store.view();
        let namespace = schema.namespace(self.namespace).expect("declared");
        let reader = ClosedReader::new(&kept.store, &view, namespace, kept.now());
        let cursor: ClosedCursor = reader.read_cursor(&self.cursor).expect("our own cursor");
        let page = reader.page(cursor, limit)?;
        assert!(
            page.next.settled_until() >= self.settled,
            "settled stays settled"
        );
        self.settled = page.next.settled_until();
        for bucket in page.buckets {
            assert_eq!(bucket.start % self.width, 0, "{bucket:?}");
            assert!(
                bucket.start + self.width <= reader.settled_until(),
                "{bucket:?}"
            );
            let newest = (page.version, bucket.count);
            let known = self
                .buckets
                .entry((bucket.key, bucket.start))
                .or_insert(newest);
            assert!(
                known.0 < newest.0 || known == &newest,
                "{known:?} {newest:?}"
            );
            *known = newest;
        }
        self.cursor = reader.text_of(&page.next);
        Ok(reader.has_more(&page.next))
    }

    fn follow(&mut self, kept: &Kept, limit: usize) {
        let mut pages = 0;
        while self.page(kept, limit).expect("a page") {
            pages += 1;
            assert!(pages < 10_000, "the pages end");
        }
    }

    /// Compares all that was told with what reads say, from `from` on.
    fn check(&self, kept: &Kept, keys: &[String], from: i64) {
        let mut expected = BTreeMap::new();
        for key in keys {
            for (start, count) in read(kept, self.namespace, key, self.width) {
                if start >= from && start + self.width <= self.settled {
                    expected.insert((key.clone(), start), count);
                }
            }
        }
        let told = self.buckets.iter().filter(|((_, start), _)| *start >= from);
        let told: BTreeMap<_, _> = told.map(|(at, (_, count))| (at.clone(), *count)).collect();
        assert_eq!(told, expected, "{}", self.namespace);
    }
}

fn read(kept: &Kept, namespace: &str, key: &str, width: i64) -> BTreeMap<i64, u64> {
    let by_minute = width == MINUTE;
    let read = Read {
        namespace: namespace.into(),
        key: key.into(),
        subtotal: by_minute.then(|| MINUTES.into()),
        from: TIME_MIN,
        to: TIME_MAX,
        rolled: None,
    };
    let series = kept.store.view().read(&read, None).expect("read");
    let counts = match by_minute {
        true => series.by_minute(),
        false => series.totals,
    };
    let mut buckets = BTreeMap::new();
    for (code, count) in counts.iter() {
        *buckets
            .entry(code.start() - code.start() % width)
            .or_insert(0) += count;
    }
    buckets
}

/// Numbers that look random, and are the same in every run.
struct Chance(u64);

impl Chance {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (self.0 >> 33) % limit
    }
}

fn keys() -> Vec<String> {
    let mut keys: Vec<String> = (0..7).map(|number| format!("key{number}")).collect();
    keys.push("a long key, which is stored as its hash ".repeat(9));
    keys.push("ключ|с*чертой, и ещё".into());
    keys
}

#[test]
fn a_reader_of_the_stream_ends_with_the_counts_of_the_reads() {
    let keys = keys();
    for seed in 0..SEEDS {
        let mut chance = Chance(seed + 1);
        let mut kept = Kept::new();
        let mut consumers: Vec<Consumer> = ["l", "d", "u"]
            .map(|namespace| Consumer::new(&kept, namespace, None))
            .into();
        let from: Vec<i64> = consumers.iter().map(|consumer| consumer.settled).collect();
        for _ in 0..STEPS {
            match chance.below(20) {
                0..11 => {
                    let increments = (0..=chance.below(4)).map(|_| {
                        let key = &keys[usize::try_from(chance.below(9)).expect("small")];
                        let back = match chance.below(4) {
                            0 => i64::try_from(chance.below(30 * 3_600)).expect("small"),
                            _ => i64::try_from(chance.below(600)).expect("small"),
                        };
                        let names = ["l", "d", "u"].map(|name| (name, key.as_str()));
                        Increment::new((kept.now() - back).max(from[0]), 1 + chance.below(3), names)
                    });
                    kept.count(increments.collect());
                }
                11..14 => kept.pass(i64::try_from(chance.below(2 * 3_600)).expect("small")),
                14 => kept = kept.restart(),
                15 => kept.store.ledger().flush().expect("flush"),
                16 => kept.rebuild(),
                _ => {
                    let limit = 1 + usize::try_from(chance.below(5)).expect("small");
                    for consumer in &mut consumers {
                        consumer.page(&kept, limit).expect("a page");
                    }
                }
            }
        }
        kept.pass(2 * HOUR);
        for (consumer, from) in consumers.iter_mut().zip(&from) {
            consumer.follow(&kept, 3);
            assert!(!consumer.buckets.is_empty(), "seed {seed}");
            consumer.check(&kept, &keys, *from);
            // One who comes now and wants all that settled since then is told the same.
            let mut later = Consumer::new(&kept, consumer.namespace, Some(*from));
            later.follow(&kept, 50);
            later.check(&kept, &keys, *from);
        }
    }
}

#[test]
fn a_late_increment_comes_again_with_its_new_count_and_a_higher_version() {
    let kept = Kept::new();
    let mut consumer = Consumer::new(&kept, "l", Some(START - HOUR));
    let at = |seconds| vec![Increment::new(START + seconds, 2, [("l", "key")])];
    kept.count(at(10));
    kept.pass(HOUR + 10 * MINUTE);
    consumer.follow(&kept, 10);
    let bucket = ("key".to_owned(), START);
    let first = consumer.buckets[&bucket];
    assert_eq!(first.1, 2);
    consumer.follow(&kept, 10);
    assert_eq!(consumer.buckets[&bucket], first, "nothing came");
    kept.count(at(20));
    kept.rebuild();
    consumer.follow(&kept, 10);
    let second = consumer.buckets[&bucket];
    assert!(second.0 > first.0, "{first:?} {second:?}");
    assert_eq!(second.1, 4);
}

#[test]
fn a_cursor_that_was_changed_or_is_of_another_namespace_is_none() {
    let kept = Kept::new();
    let consumer = Consumer::new(&kept, "l", Some(START - HOUR));
    let schema = kept.store.schema();
    let view = kept.store.view();
    let reader = |name: &str| {
        let namespace = schema.namespace(name).expect("declared");
        ClosedReader::new(&kept.store, &view, namespace, kept.now())
    };
    assert!(reader("l").read_cursor(&consumer.cursor).is_some());
    assert!(reader("u").read_cursor(&consumer.cursor).is_none());
    for index in 0..consumer.cursor.len() {
        let mut changed = consumer.cursor.clone().into_bytes();
        changed[index] = if changed[index] == b'0' { b'1' } else { b'0' };
        let changed = String::from_utf8(changed).expect("text");
        assert!(reader("l").read_cursor(&changed).is_none(), "{changed}");
        assert!(reader("l").read_cursor(&consumer.cursor[..index]).is_none());
    }
    for text in ["", ".", "0.0", "18446744073709551616.0.0", "é.é.é"] {
        assert!(reader("l").read_cursor(text).is_none(), "{text}");
    }
}

#[test]
fn a_cursor_of_records_that_a_view_lacks_is_told_apart_from_an_old_one() {
    let kept = Kept::new();
    let schema = kept.store.schema();
    let namespace = schema.namespace("l").expect("declared");
    let before = kept.store.view();
    kept.count(vec![Increment::new(kept.now(), 1, [("l", "a")])]);
    let after = kept.store.view();
    let [before, after] =
        [&before, &after].map(|view| ClosedReader::new(&kept.store, view, namespace, kept.now()));
    let from = START - HOUR;
    let cursor = after.begin(Some(from));
    let ahead = before.page(cursor.clone(), 10).expect_err("it is ahead");
    assert!(matches!(ahead, Error::CursorAhead { settled } if settled == from));
    after.page(cursor, 10).expect("it is of this view");
}

#[test]
fn a_cursor_that_is_older_than_the_log_is_told_so() {
    let kept = Kept::new();
    let mut consumer = Consumer::new(&kept, "l", None);
    for _ in 0..6 {
        for number in 0..40 {
            let key = format!("key{number}");
            kept.count(vec![Increment::new(kept.now(), 1, [("l", key.as_str())])]);
        }
        kept.pass(24 * HOUR);
        kept.rebuild();
    }
    let gone = consumer.page(&kept, 10).expect_err("the log is gone");
    let settled = consumer.settled;
    assert!(matches!(gone, Error::CursorGone { settled: told } if told == settled));
    let mut again = Consumer::new(&kept, "l", Some(settled));
    again.follow(&kept, 1_000);
    let keys: Vec<String> = (0..40).map(|number| format!("key{number}")).collect();
    again.check(&kept, &keys, settled);
}
