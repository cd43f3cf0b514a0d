//! A store over months: the same clicks every hour of the days that are asked for, and a rebuild after each.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::sync::Arc;

use tallyring_archive::{KeepDays, verify_run};
use tallyring_realtime::{Batch, Options, Read, Series, Store};
use tallyring_rebuild::{BuildOptions, REWRITE_BYTES_MIN, build, remake};
use tallyring_records::{
    Grain, Increment, MINUTES, Namespace, Schema, TIME_MAX, TIME_MIN, TimeCode, by_minute,
};
use tallyring_tests::model::{ManualClock, world};
use tallyring_tests::sim_disk::SimDisk;

pub(crate) const DAY: i64 = 86_400;
/// 2012-03-01T00:00:00Z, and the months after.
pub(crate) const MARCH: i64 = 1_330_560_000;
pub(crate) const APRIL: i64 = MARCH + 31 * DAY;
pub(crate) const MAY: i64 = APRIL + 30 * DAY;
/// How long minutes are kept.
pub(crate) const MINUTE_DAYS: u32 = 30;

pub(crate) struct Months {
    pub store: Store,
    disk: SimDisk,
    clock: Arc<ManualClock>,
    hour_days: Option<u32>,
    shards: Cell<u16>,
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
        lists: Vec::new(),
        titles: BTreeMap::new(),
        settings: BTreeMap::new(),
    }
}

impl Months {
    /// An empty store on the first of March, whose hours are kept for so many days, or for ever.
    pub(crate) fn new(hour_days: Option<u32>) -> Self {
        let disk = SimDisk::default();
        let clock = Arc::new(ManualClock::new(MARCH * 1_000, true));
        let world = world(disk.clone(), Arc::clone(&clock) as _);
        let (store, _) = Store::open(world, Options::default(), schema()).expect("open");
        Self {
            store,
            disk,
            clock,
            hour_days,
            shards: Cell::new(4),
        }
    }

    /// Files are of so many shards from the next rebuild on.
    pub(crate) fn shard(&self, shards: u16) {
        self.shards.set(shards);
    }

    /// A click of the same key then, and one that was counted without minutes.
    pub(crate) fn click(&self, at: i64) {
        let increment = |name: &str| Increment {
            by: vec![("c".into(), "a long value with spaces".into())],
            user: Some("u".into()),
            ..Increment::new(at, 3, [(name, "a long key with spaces")])
        };
        let batch = Batch {
            increments: vec![increment("m"), increment("h")],
            ..Batch::default()
        };
        let outcome = self.store.intake().commit(vec![batch]).remove(0);
        outcome.expect("counted");
    }

    /// Every hour of a day, and the rebuild after it.
    pub(crate) fn day(&self, day: i64) {
        self.day_with(day, &|_| {});
    }

    /// As [`Months::day`]; `after` is called behind the click of every hour.
    pub(crate) fn day_with(&self, day: i64, after: &dyn Fn(&Store)) {
        for hour in 0..24 {
            let at = day + hour * 3_600 + 61 * (hour % 7);
            self.clock.set(at * 1_000);
            self.click(at);
            after(&self.store);
        }
        self.clock.set((day + DAY + 600) * 1_000);
        self.rebuild();
    }

    pub(crate) fn rebuild(&self) {
        self.store.intake().tick().expect("time is kept");
        let manifest = self.store.ledger().cut().expect("cut");
        let options = BuildOptions {
            breakdown_hours: 3,
            rewrite_bytes_min: REWRITE_BYTES_MIN,
            shards: self.shards.get(),
            level: 1,
            keep: KeepDays {
                minutes: Some(MINUTE_DAYS),
                hours: self.hour_days,
                actions: None,
            },
        };
        let built = build(&self.disk.blobs(), &manifest, options, &|_, _| {}).expect("build");
        if let Some(built) = built {
            self.store.ledger().publish(&built).expect("publish");
        }
    }

    pub(crate) fn read(
        &self,
        name: &str,
        subtotal: &str,
        as_of: Option<u64>,
    ) -> (Series, Option<i64>) {
        let read = Read {
            namespace: name.into(),
            key: "a long key with spaces".into(),
            subtotal: Some(subtotal.into()),
            from: TIME_MIN,
            to: TIME_MAX,
            rolled: None,
        };
        let reader = self.store.view();
        let series = reader.read(&read, as_of).expect("a read");
        (series, reader.minutes_from(as_of))
    }

    /// Estimates of the key's users by the hour since the first of March; a folded day's stand at its first.
    pub(crate) fn users(&self) -> BTreeMap<usize, u64> {
        let read = Read {
            namespace: "h".into(),
            key: "a long key with spaces".into(),
            subtotal: None,
            from: TIME_MIN,
            to: TIME_MAX,
            rolled: None,
        };
        let hour = |start: i64| usize::try_from((start - MARCH) / 3_600).ok();
        let view = self.store.view().users(read, None).expect("a view");
        let users = view.unite(&(TIME_MIN..TIME_MAX), hour);
        let users = users.expect("users");
        let users = users.iter();
        users
            .map(|(&hour, users)| (hour, users.estimate()))
            .collect()
    }

    /// Clicks that are broken down by the minute, and all others.
    pub(crate) fn broken_down(&self) -> (u64, u64) {
        let (series, _) = self.read("m", &by_minute("c"), None);
        let totals = series.totals.iter();
        let (minutes, rest): (Vec<_>, Vec<_>) =
            totals.partition(|(code, _)| code.grain() == Grain::Minute);
        let sum = |counts: &[(TimeCode, u64)]| counts.iter().map(|(_, count)| count).sum();
        (sum(&minutes), sum(&rest))
    }

    /// Days that are counted by the minute, and by the hour only; all in all.
    pub(crate) fn grains(&self) -> (u64, u64, u64) {
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
        let total = series.totals.sum();
        (
            is_minute(Grain::Minute) / 72,
            is_minute(Grain::Hour) / 72,
            total,
        )
    }

    pub(crate) fn check_files(&self) {
        let manifest = self.store.manifest();
        for entry in manifest.files() {
            verify_run(&self.disk.blobs(), entry).expect("a sound file");
        }
        let remade = remake(&self.disk.blobs(), &SimDisk::default().blobs(), &manifest)
            .expect("the same bytes");
        assert!(remade > 0);
    }
}
