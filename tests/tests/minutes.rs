//! Minutes expire a month at a time, when all of it is older than they are kept: the hours stay, and a
//! generation says from when on it has minutes.

use std::sync::Arc;

use tallyring_archive::verify_run;
use tallyring_realtime::{Batch, Options, Read, Series, Store, World};
use tallyring_rebuild::{BuildOptions, build, remake};
use tallyring_records::{Grain, Increment, MINUTES, Namespace, Schema, TIME_MAX, TIME_MIN};
use tallyring_tests::model::{ManualClock, fixed_bytes};
use tallyring_tests::sim_disk::SimDisk;

const DAY: i64 = 86_400;
/// 2012-03-01T00:00:00Z, and the months after.
const MARCH: i64 = 1_330_560_000;
const APRIL: i64 = MARCH + 31 * DAY;
const MAY: i64 = APRIL + 30 * DAY;
const KEPT_DAYS: u32 = 30;

struct Months {
    disk: SimDisk,
    clock: Arc<ManualClock>,
    store: Store,
}

fn schema() -> Schema {
    let namespace = |name: &str, minutes: bool| Namespace {
        name: name.into(),
        title: String::new(),
        grain: Grain::Hour,
        subtotals: vec!["c".into()],
        minutes,
        uniques: true,
    };
    Schema {
        namespaces: vec![namespace("m", true), namespace("h", false)],
        events: Vec::new(),
        ratios: Vec::new(),
        filters: Vec::new(),
    }
}

impl Months {
    fn new() -> Self {
        let disk = SimDisk::default();
        let clock = Arc::new(ManualClock::new(MARCH * 1_000, true));
        let world = World {
            disk: Arc::new(disk.clone()),
            clock: Arc::clone(&clock) as _,
            random: fixed_bytes,
        };
        let (store, _) = Store::open(world, Options::default(), schema()).expect("open");
        Self { disk, clock, store }
    }

    /// A click of the same key now, and one that was counted without minutes.
    fn click(&self, at: i64) {
        let increment = |name: &str| Increment {
            at,
            n: 3,
            keys: vec![(name.into(), "a long key with spaces".into())],
            by: vec![("c".into(), "a long value with spaces".into())],
            id: None,
            user: Some("u".into()),
            event: None,
            origin: None,
        };
        let batch = Batch {
            increments: vec![increment("m"), increment("h")],
            ..Batch::default()
        };
        let outcome = self.store.commit(vec![batch]).remove(0);
        outcome.expect("counted");
    }

    /// Every hour of a day, and the rebuild after it.
    fn day(&self, day: i64) {
        for hour in 0..24 {
            let at = day + hour * 3_600 + 61 * (hour % 7);
            self.clock.set(at * 1_000);
            self.click(at);
        }
        self.clock.set((day + DAY + 600) * 1_000);
        self.rebuild();
    }

    fn rebuild(&self) {
        self.store.tick().expect("time is kept");
        let manifest = self.store.cut().expect("cut");
        let options = BuildOptions {
            shards: 4,
            level: 1,
            minute_days: KEPT_DAYS,
        };
        let built = build(&self.disk, &manifest, options, &|_, _| {}).expect("build");
        if let Some(built) = built {
            self.store.publish(&built).expect("publish");
        }
    }

    fn read(&self, name: &str, subtotal: &str, as_of: Option<u64>) -> (Series, Option<i64>) {
        let read = Read {
            namespace: name.into(),
            key: "a long key with spaces".into(),
            subtotal: Some(subtotal.into()),
            from: TIME_MIN,
            to: TIME_MAX,
        };
        let mut answer = self.store.read(&[read], as_of).expect("a read");
        (answer.series.remove(0), answer.minutes_from)
    }

    /// Days that are counted by the minute, and by the hour only; all in all.
    fn grains(&self) -> (u64, u64, u64) {
        let (series, from) = self.read("m", MINUTES, None);
        let minutes = series.by_minute();
        let is_minute = |grain: Grain| {
            let counted = minutes.iter().filter(|(code, _)| code.grain() == grain);
            counted.map(|(_, count)| count).sum::<u64>()
        };
        for (code, _) in minutes
            .iter()
            .filter(|(code, _)| code.grain() == Grain::Hour)
        {
            assert!(from.is_some_and(|from| code.start() < from), "{code}");
        }
        let total = series.totals.values().sum();
        (
            is_minute(Grain::Minute) / 72,
            is_minute(Grain::Hour) / 72,
            total,
        )
    }

    fn check_files(&self) {
        let manifest = self.store.manifest();
        for entry in manifest.files() {
            verify_run(&self.disk, entry).expect("a sound file");
        }
        let remade = remake(&self.disk, &SimDisk::default(), &manifest).expect("the same bytes");
        assert!(remade > 0);
    }
}

#[test]
fn a_month_of_minutes_goes_when_all_of_it_is_old_and_its_hours_stay() {
    let world = Months::new();
    for day in 0..3 {
        world.day(MARCH + (28 + day) * DAY);
    }
    world.day(APRIL);
    assert_eq!(world.grains(), (4, 0, 4 * 72));
    // March's last day is 30 days old only on the 30th of April.
    world.day(APRIL + 28 * DAY);
    assert_eq!(world.grains(), (5, 0, 5 * 72));
    let with_minutes = world.store.manifest().active;
    world.day(APRIL + 29 * DAY);
    assert_eq!(world.grains(), (3, 3, 6 * 72));
    world.check_files();
    let (_, from) = world.read("m", MINUTES, None);
    assert_eq!(from, Some(APRIL));
    let (before, from) = world.read("m", MINUTES, Some(with_minutes));
    assert!(
        from < Some(APRIL)
            && before
                .by_minute()
                .keys()
                .all(|code| code.grain() == Grain::Minute)
    );
    for (name, subtotal) in [("m", "c"), ("h", "c")] {
        let (series, _) = world.read(name, subtotal, None);
        assert_eq!(series.totals.values().sum::<u64>(), 6 * 72, "{name}");
        let value = world
            .store
            .expand(&series, &series.values[0])
            .expect("a text");
        assert_eq!(
            value,
            ["a long value with spaces"],
            "a lookup is still needed"
        );
    }
    // Rolled back, they are there, and the next rebuild leaves them out again.
    world.store.activate(with_minutes).expect("roll back");
    assert_eq!(world.grains(), (6, 0, 6 * 72));
    world.day(MAY);
    assert_eq!(world.grains(), (4, 3, 7 * 72));
    world.check_files();
}

#[test]
fn files_without_old_minutes_are_shared_and_sources_lose_them_in_the_end() {
    let world = Months::new();
    world.day(MARCH);
    world.day(MARCH + DAY);
    for day in 0..4 {
        world.day(MAY + (1 + day) * DAY);
    }
    assert_eq!(world.grains(), (4, 2, 6 * 72));
    let manifest = world.store.manifest();
    let of_march = |generation: usize| -> Vec<&str> {
        let files = manifest.generations[generation].files.iter();
        let march = files.filter(|file| file.meta.last < APRIL);
        march.map(|file| file.name.as_str()).collect()
    };
    assert!(!of_march(0).is_empty());
    assert_eq!(of_march(0), of_march(2), "March is not written again");
    let minutes = manifest.runs.iter().filter(|run| {
        run.meta.last < APRIL
            && run
                .meta
                .sums
                .keys()
                .any(|section| section.starts_with("_m."))
    });
    assert_eq!(minutes.count(), 0, "no source of March holds minutes");
    world.check_files();
}

#[test]
fn a_late_count_for_an_expired_month_is_in_its_hour() {
    let world = Months::new();
    world.day(MARCH);
    world.day(MAY + DAY);
    assert_eq!(world.grains(), (1, 1, 2 * 72));
    world.click(MARCH + 4_000);
    world.rebuild();
    let (series, _) = world.read("m", MINUTES, None);
    assert_eq!(series.totals.values().sum::<u64>(), 2 * 72 + 3);
    world.rebuild();
    world.check_files();
}
