//! A clock that is days from where it was is more likely wrong than right. Work that cannot be undone waits until the
//! clock has come back, has gone evenly for ten minutes, or somebody has said that it is right.

use std::sync::Arc;

use tallyring_archive::KeepDays;
use tallyring_realtime::{Batch, Options, Recount, RingLabel, Status, Store};
use tallyring_rebuild::{BuildOptions, REWRITE_BYTES_MIN, build};
use tallyring_records::{Day, Increment, Schema};
use tallyring_tests::answers;
use tallyring_tests::model::{ManualClock, world};
use tallyring_tests::sim_disk::SimDisk;

const MINUTE_MS: i64 = 60_000;
const HOUR_MS: i64 = 60 * MINUTE_MS;
const DAY_MS: i64 = 24 * HOUR_MS;
/// 2012-03-31T12:00:00Z: the next day is of another month, in which detail expires.
const START_MS: i64 = 1_333_195_200_000;
const JUMPED_MS: i64 = START_MS + 3 * DAY_MS;
const AHEAD_MS: i64 = 8 * DAY_MS;

struct Kept {
    disk: SimDisk,
    clock: Arc<ManualClock>,
    store: Store,
}

fn open(disk: &SimDisk, clock: &Arc<ManualClock>, trusts_clock: bool) -> Store {
    let options = Options {
        // A segment for every few records, so that there is something to expire.
        segment_bytes: 1 << 10,
        oplog_days: 1,
        trusts_clock,
        ..Options::default()
    };
    let world = world(disk.clone(), Arc::clone(clock) as _);
    let opened = Store::open(world, options, Schema::default_clicks());
    let (store, _) = opened.expect("open");
    store
}

impl Kept {
    /// By a clock whose jumps are not meant, as a machine's are not.
    fn new() -> Self {
        let disk = SimDisk::default();
        let clock = Arc::new(ManualClock::new(START_MS, false));
        let store = open(&disk, &clock, false);
        Self { disk, clock, store }
    }

    /// Stops, and starts again when the clock says so.
    fn restarted(self, now_ms: i64) -> Self {
        self.store.ledger().flush().expect("flush");
        self.store.intake().seal().expect("seal");
        self.killed(now_ms, false)
    }

    fn killed(self, now_ms: i64, trusts_clock: bool) -> Self {
        let Self { disk, clock, store } = self;
        drop(store);
        clock.set(now_ms);
        let store = open(&disk, &clock, trusts_clock);
        Self { disk, clock, store }
    }

    fn tick(&self) -> Status {
        self.store.intake().tick().expect("a log that takes writes");
        self.store.status()
    }

    /// The ring's day once the clock was set to this time, and whether the clock is doubted.
    fn at(&self, now_ms: i64) -> (Day, bool) {
        self.clock.set(now_ms);
        let status = self.tick();
        (status.today, status.clock_jumped)
    }

    /// The store after some minutes.
    fn after(&self, minutes: i64) -> (Day, bool) {
        self.clock.pass(minutes * MINUTE_MS);
        let status = self.tick();
        (status.today, status.clock_jumped)
    }

    /// Counts a click of that time: whether it was new, and whether its day had no store.
    fn click(&self, id: &str, at_ms: i64) -> (bool, bool) {
        let increment = Increment {
            id: (!id.is_empty()).then(|| id.into()),
            ..Increment::new(at_ms / 1_000, 1, [("l", "a")])
        };
        let batch = Batch {
            increments: vec![increment],
            ..Batch::default()
        };
        let outcome = self.store.intake().commit(vec![batch]).remove(0);
        let accepted = outcome.expect("answered");
        (accepted.accepted == 1, accepted.late == 1)
    }

    fn counted(&self) -> u64 {
        answers::total(&self.store, "l", "a")
    }

    /// The work of a night: a rebuild that keeps detail for the month that is, and the log's oldest segments go.
    fn night(&self) {
        self.store.intake().tick().expect("time is kept");
        let manifest = self.store.ledger().cut().expect("cut");
        let options = BuildOptions {
            breakdown_hours: 3,
            rewrite_bytes_min: REWRITE_BYTES_MIN,
            shards: 1,
            level: 1,
            keep: KeepDays {
                minutes: Some(0),
                hours: Some(0),
                actions: None,
            },
        };
        let built = build(&self.disk.blobs(), &manifest, options, &|_, _| {}).expect("build");
        if let Some(built) = built {
            self.store.ledger().publish(&built).expect("publish");
        }
        self.store.ledger().expire_log().expect("expire");
    }
}

fn day_of(now_ms: i64) -> Day {
    Day::of(now_ms / 1_000)
}

#[test]
fn a_start_under_a_clock_that_is_ahead_forgets_nothing_and_turns_nothing() {
    for ahead_ms in [30 * HOUR_MS, AHEAD_MS, 396 * DAY_MS] {
        let kept = Kept::new();
        assert_eq!(kept.click("a", START_MS - DAY_MS), (true, false));
        for record in 0..40 {
            kept.click(&format!("filler-{record}"), START_MS);
        }
        kept.night();
        let detail = |kept: &Kept| {
            let status = kept.store.status();
            (status.minutes_from, status.hours_from)
        };
        let (before, segments) = (detail(&kept), kept.store.status().oplog_bytes);
        let mut kept = kept;
        // Twice, because what the first one wrote must not make the second one believe.
        for start in ["b", "c"] {
            kept = kept.restarted(START_MS + ahead_ms);
            assert_eq!(kept.click("a", START_MS), (false, false), "{ahead_ms}");
            assert_eq!(kept.click(start, START_MS), (true, false), "{ahead_ms}");
            kept.store.ledger().flush().expect("flush");
            kept.click("", START_MS - DAY_MS);
            kept.night();
            assert_eq!(kept.click("a", START_MS), (false, false), "{ahead_ms}");
            let status = kept.tick();
            assert!(status.clock_jumped, "{ahead_ms}");
            assert_eq!(status.clock_plausible_at, Some(START_MS / 1_000));
            assert_eq!(status.today, day_of(START_MS), "{ahead_ms}");
            assert!(status.oplog_bytes >= segments, "the log is kept");
            assert_eq!(detail(&kept), before, "{ahead_ms}");
        }
        let kept = kept.restarted(START_MS + HOUR_MS);
        let status = kept.tick();
        assert_eq!((status.clock_jumped, status.ring_days_ahead), (false, 0));
        assert_eq!(status.today, day_of(START_MS));
        for id in ["a", "b", "c", "filler-7"] {
            assert!(
                !kept.click(id, START_MS).0,
                "{id} counted twice: {ahead_ms}"
            );
        }
        assert_eq!(kept.click("d", START_MS), (true, false));
        assert_eq!(kept.counted(), 1 + 40 + 2 + 2 + 1);
    }
}

#[test]
fn a_store_that_was_begun_by_a_clock_that_was_ahead_knows_its_own_days() {
    let disk = SimDisk::default();
    let clock = Arc::new(ManualClock::new(START_MS + AHEAD_MS, false));
    let store = open(&disk, &clock, false);
    let kept = Kept { disk, clock, store };
    let begun = |kept: &Kept| kept.store.manifest().intake.begun;
    assert_eq!(begun(&kept), Some(day_of(START_MS + AHEAD_MS)));
    let kept = kept.restarted(START_MS);
    kept.click("a", START_MS);
    assert_eq!(kept.after(10), (day_of(START_MS), false), "it turned back");
    kept.store.ledger().flush().expect("flush");
    assert_eq!(begun(&kept), Some(day_of(START_MS)));
    // Later days are not taken for days before the store, after a recount either.
    let kept = kept.restarted(START_MS + DAY_MS);
    kept.after(10);
    kept.click("b", START_MS + DAY_MS);
    kept.store.ledger().flush().expect("flush");
    assert_eq!(begun(&kept), Some(day_of(START_MS)));
    let Kept { disk, store, .. } = kept;
    drop(store);
    let plan = Recount::plan(&disk.blobs(), None, &Schema::default_clicks(), 1);
    let plan = plan.expect("a plan");
    assert_eq!(plan.manifest.intake.begun, Some(day_of(START_MS)));
}

#[test]
fn a_ring_that_followed_a_clock_that_was_ahead_turns_back_and_its_days_count_again() {
    let kept = Kept::new();
    let (today, ahead) = (day_of(START_MS), START_MS + AHEAD_MS);
    kept.click("a", START_MS);
    let kept = kept.restarted(ahead);
    assert_eq!(kept.after(10), (day_of(ahead), false), "it was believed");
    kept.click("b", ahead);
    // The days that it left are exported, today's among them.
    kept.night();
    let kept = kept.restarted(START_MS);
    let status = kept.tick();
    assert_eq!((status.clock_jumped, status.ring_days_ahead), (true, 8));
    assert_eq!(kept.click("c", START_MS), (true, true), "it has no store");
    assert_eq!(kept.after(10), (today, false));
    assert_eq!(kept.store.status().ring_days_ahead, 0);
    // One like the one that was exported of that day.
    assert_eq!(kept.click("d", START_MS), (true, false));
    assert_eq!(kept.click("e", ahead), (true, false), "its store is there");
    let stores = |kept: &Kept| {
        let stores = kept.store.status().stores.into_iter();
        let stores = stores.map(|store| (store.id.to_string(), store.label, store.cut));
        stores.collect::<Vec<_>>()
    };
    let before = stores(&kept);
    let labelled = |label| before.iter().filter(|store| store.1 == label).count();
    let counts = (labelled(RingLabel::Today), labelled(RingLabel::Ahead));
    assert_eq!(counts, (1, 3), "{before:?}");
    let kept = kept.killed(START_MS + HOUR_MS, false);
    assert_eq!(stores(&kept), before, "replay decides what service did");
    assert_eq!(kept.counted(), 5);
    for day in 1..=10 {
        kept.at(START_MS + day * DAY_MS);
        assert_eq!(kept.tick().today, day_of(START_MS + day * DAY_MS));
        kept.night();
        assert_eq!(kept.counted(), 5, "day {day}");
    }
    let left = kept.store.status().stores;
    assert!(
        left.iter().all(|store| store.label != RingLabel::Ahead),
        "{left:?}"
    );
}

#[test]
fn a_turn_back_is_replayed_also_where_what_it_left_closed_is_exported_since() {
    let kept = Kept::new();
    kept.click("a", START_MS);
    let kept = kept.killed(START_MS + AHEAD_MS, true);
    // It is cut, but not exported when the ring turns back.
    let manifest = kept.store.ledger().cut().expect("cut");
    let options = BuildOptions {
        breakdown_hours: 3,
        rewrite_bytes_min: REWRITE_BYTES_MIN,
        shards: 1,
        level: 1,
        keep: KeepDays::default(),
    };
    let built = build(&kept.disk.blobs(), &manifest, options, &|_, _| {}).expect("build");
    kept.at(START_MS);
    assert_eq!(kept.after(10), (day_of(START_MS), false));
    assert_eq!(kept.click("b", START_MS), (true, true), "its store is cut");
    let built = built.expect("there was something to export");
    kept.store.ledger().publish(&built).expect("publish");
    let ids = |kept: &Kept| {
        let stores = kept.store.status().stores.into_iter();
        stores.map(|store| store.id).collect::<Vec<_>>()
    };
    let before = ids(&kept);
    let kept = kept.killed(START_MS + HOUR_MS, false);
    assert_eq!(ids(&kept), before);
    assert_eq!(kept.counted(), 2);
    kept.at(START_MS + DAY_MS);
    assert_eq!(
        kept.click("c", START_MS),
        (true, false),
        "a new one is open"
    );
    kept.night();
    assert_eq!(kept.counted(), 3);
}

#[test]
fn the_word_of_who_starts_it_is_believed_at_once() {
    let kept = Kept::new();
    kept.click("a", START_MS);
    let kept = kept.killed(START_MS + AHEAD_MS, true);
    assert_eq!(kept.tick().today, day_of(START_MS + AHEAD_MS));
    assert!(!kept.tick().clock_jumped);
    // It is of that start, not of what the clock does later.
    assert_eq!(
        kept.at(START_MS + 2 * AHEAD_MS),
        (day_of(START_MS + AHEAD_MS), true)
    );
    let kept = kept.killed(START_MS + HOUR_MS, true);
    let status = kept.tick();
    assert_eq!(
        (status.today, status.ring_days_ahead),
        (day_of(START_MS), 0)
    );
    assert_eq!(kept.click("b", START_MS), (true, false));
    assert_eq!(kept.counted(), 2);
}

#[test]
fn a_jump_of_days_is_believed_after_ten_minutes_and_not_a_second_earlier() {
    let kept = Kept::new();
    let today = day_of(START_MS);
    assert_eq!(kept.at(START_MS), (today, false));
    assert_eq!(kept.at(JUMPED_MS), (today, true));
    // Clicks that are counted meanwhile turn nothing either.
    kept.click("a", START_MS);
    assert_eq!(kept.after(9), (today, true));
    kept.click("b", START_MS);
    kept.clock.pass(MINUTE_MS - 1);
    assert_eq!(kept.after(0), (today, true));
    kept.clock.pass(1);
    assert_eq!(kept.after(0), (day_of(JUMPED_MS), false));
}

#[test]
fn a_doubted_clock_that_is_set_again_waits_anew() {
    let kept = Kept::new();
    let today = day_of(START_MS);
    assert_eq!(kept.at(JUMPED_MS), (today, true));
    assert_eq!(kept.after(9), (today, true));
    let again = JUMPED_MS + 5 * DAY_MS;
    assert_eq!(kept.at(again), (today, true), "it is not five days later");
    assert_eq!(kept.after(9), (today, true));
    assert_eq!(kept.after(1), (day_of(again), false));
}

#[test]
fn a_clock_that_comes_back_has_turned_nothing_and_its_next_jump_waits_anew() {
    let kept = Kept::new();
    let today = day_of(START_MS);
    assert_eq!(kept.at(JUMPED_MS), (today, true));
    assert_eq!(kept.at(START_MS + 5 * MINUTE_MS), (today, false));
    assert_eq!(kept.at(JUMPED_MS), (today, true));
    assert_eq!(kept.after(9), (today, true));
    assert_eq!(kept.after(1), (day_of(JUMPED_MS), false));
}

#[test]
fn a_midnight_turns_the_ring_at_once() {
    let kept = Kept::new();
    let midnight_ms = START_MS + DAY_MS / 2;
    assert_eq!(kept.at(midnight_ms - 1), (day_of(START_MS), false));
    assert_eq!(kept.at(midnight_ms), (day_of(midnight_ms), false));
}

#[test]
fn an_idle_server_of_many_days_does_not_doubt_its_clock() {
    let kept = Kept::new();
    for hour in 1..=100 {
        let now_ms = START_MS + hour * HOUR_MS;
        assert_eq!(kept.at(now_ms), (day_of(now_ms), false));
    }
}
