//! A clock that jumps by days is more likely wrong than right: the ring, which no record can turn back, follows it only
//! after ten minutes.

use std::sync::Arc;

use tallyring_realtime::{Batch, Options, Store};
use tallyring_records::{Day, Increment, Schema};
use tallyring_tests::model::{ManualClock, world};
use tallyring_tests::sim_disk::SimDisk;

const MINUTE_MS: i64 = 60_000;
const DAY_MS: i64 = 1_440 * MINUTE_MS;
/// 2012-03-16T12:00:00Z.
const START_MS: i64 = 1_331_899_200_000;
const JUMPED_MS: i64 = START_MS + 3 * DAY_MS;

struct Kept {
    clock: Arc<ManualClock>,
    store: Store,
}

impl Kept {
    /// By a clock whose jumps are not meant, as a machine's are not.
    fn new() -> Self {
        let clock = Arc::new(ManualClock::new(START_MS, false));
        let world = world(SimDisk::default(), Arc::clone(&clock) as _);
        let options = Options {
            segment_bytes: 1 << 20,
            ..Options::default()
        };
        let opened = Store::open(world, options, Schema::default_clicks());
        let (store, _) = opened.expect("open");
        Self { clock, store }
    }

    /// The ring's day at this time, and whether the clock is known to have jumped.
    fn at(&self, now_ms: i64) -> (Day, bool) {
        self.clock.set(now_ms);
        self.store.tick().expect("a log that takes writes");
        let status = self.store.status();
        (status.today, status.clock_jumped)
    }

    /// Counts a click of the day on which everything began.
    fn click(&self) {
        let batch = Batch {
            increments: vec![Increment::new(START_MS / 1_000, 1, [("l", "a")])],
            ..Batch::default()
        };
        let outcome = self.store.commit(vec![batch]).remove(0);
        assert_eq!(outcome.expect("counted").accepted, 1);
    }
}

fn day_of(now_ms: i64) -> Day {
    Day::of(now_ms / 1_000)
}

#[test]
fn a_jump_of_days_is_believed_after_ten_minutes_and_not_a_second_earlier() {
    let kept = Kept::new();
    let today = day_of(START_MS);
    assert_eq!(kept.at(START_MS), (today, false));
    assert_eq!(kept.at(JUMPED_MS), (today, true));
    // What is counted meanwhile turns nothing either.
    kept.click();
    let before = JUMPED_MS + 10 * MINUTE_MS - 1_000;
    assert_eq!(kept.at(before), (today, true));
    kept.click();
    assert_eq!(kept.at(before), (today, true));
    let believed = kept.at(JUMPED_MS + 10 * MINUTE_MS);
    assert_eq!(believed, (day_of(JUMPED_MS), false));
}

#[test]
fn a_clock_that_jumps_back_in_time_has_turned_nothing_and_its_next_jump_waits_anew() {
    let kept = Kept::new();
    let today = day_of(START_MS);
    assert_eq!(kept.at(JUMPED_MS), (today, true));
    assert_eq!(kept.at(START_MS + 5 * MINUTE_MS), (today, false));
    let again = JUMPED_MS + 10 * MINUTE_MS;
    assert_eq!(kept.at(again), (today, true));
    assert_eq!(kept.at(again + 10 * MINUTE_MS - 1_000), (today, true));
    assert_eq!(kept.at(again + 10 * MINUTE_MS), (day_of(JUMPED_MS), false));
}

#[test]
fn a_midnight_turns_the_ring_at_once() {
    let kept = Kept::new();
    let midnight_ms = START_MS + DAY_MS / 2;
    assert_eq!(kept.at(midnight_ms - 1), (day_of(START_MS), false));
    assert_eq!(kept.at(midnight_ms), (day_of(midnight_ms), false));
}
