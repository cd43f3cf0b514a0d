//! Ids over days: an id is known for its window, its verdict is told as long as the log is kept, and the runs of ids
//! stay few however often memory is flushed.

use std::collections::BTreeSet;
use std::sync::Arc;

use tallyring_realtime::{Accepted, Batch, IdHistory, Options, Read, Store};
use tallyring_records::{Increment, Record, Schema, TIME_MAX, TIME_MIN};
use tallyring_tests::model::{ManualClock, world};
use tallyring_tests::sim_disk::SimDisk;

const MINUTE_MS: i64 = 60_000;
const HOUR_MS: i64 = 60 * MINUTE_MS;
/// 2012-03-16T00:00:00Z.
const START_MS: i64 = 1_331_856_000_000;
/// Stretches of a window of 25 hours are a little more than three hours.
const RUNS_MAX: usize = 40;

struct Days {
    disk: SimDisk,
    clock: Arc<ManualClock>,
    store: Store,
}

fn open(disk: &SimDisk, clock: &Arc<ManualClock>) -> (Store, u64) {
    let world = world(disk.clone(), Arc::clone(clock) as _);
    let options = Options {
        // A group of several frames, of a megabyte each, fits in.
        segment_bytes: 4 << 20,
        ..Options::default()
    };
    let (store, recovery) = Store::open(world, options, Schema::default_clicks()).expect("open");
    (store, recovery.replayed)
}

impl Days {
    fn new() -> Self {
        let disk = SimDisk::default();
        let clock = Arc::new(ManualClock::new(START_MS, true));
        let (store, _) = open(&disk, &clock);
        Self { disk, clock, store }
    }

    /// Counts a click now; true when it was not known.
    fn click(&self, id: &str, now_ms: i64) -> bool {
        self.clock.set(now_ms);
        let increment = Increment {
            id: Some(id.into()),
            ..Increment::new(now_ms / 1_000, 1, [("l", "a")])
        };
        let batch = Batch {
            increments: vec![increment],
            ..Batch::default()
        };
        let outcome = self.store.intake().commit(vec![batch]).remove(0);
        outcome.expect("counted")
            == Accepted {
                accepted: 1,
                duplicates: 0,
                late: 0,
                filtered: 0,
                set_aside: 0,
                skipped: Vec::new(),
            }
    }

    fn reopened(self) -> (Self, u64) {
        let Self { disk, clock, store } = self;
        drop(store);
        let (store, replayed) = open(&disk, &clock);
        (Self { disk, clock, store }, replayed)
    }

    /// Begins another segment of the log with what has no ids.
    fn fill_segment(&self, now_ms: i64) {
        self.clock.set(now_ms);
        let long = "k".repeat(1_000);
        for batch in 0..5 {
            let key = |number: u32| format!("{batch} {number} {long}");
            let increments = (0..1_000).map(|number| {
                let key = key(number);
                Increment::new(now_ms / 1_000, 1, [("l", &*key)])
            });
            let batch = Batch {
                increments: increments.collect(),
                ..Batch::default()
            };
            let outcome = self.store.intake().commit(vec![batch]).remove(0);
            outcome.expect("counted");
        }
    }

    fn runs(&self) -> usize {
        self.store.manifest().intake.ids.runs.len()
    }
}

#[test]
fn ids_are_known_for_a_day_in_few_runs_however_often_memory_is_flushed() {
    let mut world = Days::new();
    let minutes = 26 * 60;
    for minute in 0..minutes {
        let now_ms = START_MS + minute * MINUTE_MS;
        assert!(
            world.click(&format!("id-{minute}"), now_ms),
            "minute {minute}"
        );
        if minute >= 24 * 60 {
            let first = minute - 24 * 60;
            assert!(
                !world.click(&format!("id-{first}"), now_ms),
                "{first} is a day old"
            );
        }
        world.store.ledger().flush().expect("flush");
        assert!(
            world.runs() <= RUNS_MAX,
            "minute {minute}: {} runs",
            world.runs()
        );
    }
    let manifest = world.store.manifest();
    let named = manifest.file_names();
    let files = world.disk.files();
    let unnamed = files.iter().filter(|(name, _)| {
        (name.starts_with("ids/") || name.starts_with("deltas/")) && !named.contains(&**name)
    });
    assert_eq!(unnamed.count(), 0, "what was merged is removed");
    let (reopened, replayed) = world.reopened();
    world = reopened;
    assert!(
        replayed < 10,
        "a restart replays what was not flushed, not a day: {replayed}"
    );
    let now_ms = START_MS + minutes * MINUTE_MS;
    for minute in (minutes - 24 * 60)..minutes {
        assert!(
            !world.click(&format!("id-{minute}"), now_ms),
            "after a restart: {minute}"
        );
    }
}

#[test]
fn the_verdict_on_an_id_is_told_beyond_its_window_until_the_log_is_removed() {
    let world = Days::new();
    assert!(world.click("first", START_MS));
    assert!(!world.click("first", START_MS + HOUR_MS));
    let told = |world: &Days| {
        world
            .store
            .intake()
            .id_history(None, "first")
            .expect("a history")
    };
    let check = |world: &Days| {
        let history = told(world);
        let [count] = &history.counts[..] else {
            panic!("it counted once: {history:?}");
        };
        let counted = &count.logged;
        assert!(
            matches!(&counted.record, Record::Increment(one) if one.id.as_deref() == Some("first"))
        );
        assert_eq!(counted.arrived_ms, START_MS);
        let again = history.again(count).expect("it came again");
        let of = counted.offset.sequence;
        assert!(matches!(again.record, Record::Duplicate { of: found, .. } if found == of));
        assert_eq!(history.refused, None);
    };
    check(&world);
    world.store.ledger().flush().expect("flush");
    check(&world);
    for hour in [30, 60, 160, 200] {
        world.fill_segment(START_MS + hour * HOUR_MS);
        world.store.ledger().flush().expect("flush");
        check(&world);
    }
    let (world, _) = world.reopened();
    check(&world);
    assert_eq!(
        world
            .store
            .intake()
            .id_history(None, "never")
            .expect("a history"),
        Default::default()
    );
    world.store.intake().tick().expect("the ring turns");
    assert!(world.store.ledger().expire_log().expect("a log") > 0);
    let left = IdHistory {
        left_ms: Some(START_MS),
        ..IdHistory::default()
    };
    assert_eq!(told(&world), left, "the id is known until the next flush");
    world.store.ledger().flush().expect("flush");
    assert_eq!(told(&world), IdHistory::default());
    assert_eq!(world.runs(), 0);
}

/// An id that comes every ten hours counts with every third time, and the history follows a naive list of counts.
#[test]
fn every_count_of_an_id_is_told_as_long_as_the_log_has_it() {
    let mut world = Days::new();
    let mut counts: Vec<i64> = Vec::new();
    let mut removed = 0;
    for step in 0..50 {
        let now_ms = START_MS + step * 10 * HOUR_MS;
        world.clock.set(now_ms);
        world.store.intake().tick().expect("the ring turns");
        world.store.ledger().flush().expect("flush");
        if world.click("often", now_ms) {
            counts.push(now_ms);
        }
        world.click(&format!("once-{step}"), now_ms);
        if step % 7 == 6 {
            world.fill_segment(now_ms);
            (world, _) = world.reopened();
            removed += world.store.ledger().expire_log().expect("a log");
        }
        let intake = world.store.intake();
        let from_ms = intake.id_histories_from_ms();
        let history = intake.id_history(None, "often").expect("a history");
        let told: Vec<_> = (history.counts.iter())
            .map(|count| count.logged.arrived_ms)
            .collect();
        // A segment may begin in the millisecond of a count that the one before has.
        let is_kept = |at_ms: &&i64| **at_ms > from_ms;
        let kept: Vec<i64> = counts.iter().filter(is_kept).copied().collect();
        assert!(told.ends_with(&kept), "step {step}: {told:?}, not {kept:?}");
        assert!(
            counts.ends_with(&told),
            "step {step}: {told:?} of {counts:?}"
        );
        assert_eq!(history.older, 0, "step {step}");
        let offsets: BTreeSet<_> = history
            .counts
            .iter()
            .map(|count| count.logged.offset)
            .collect();
        assert_eq!(offsets.len(), told.len());
    }
    assert!(counts.len() > 15 && removed > 3, "{counts:?}, {removed}");
}

/// As long as the log has a record, its id is in a run.
#[test]
fn runs_of_a_long_log_are_as_few_as_its_months() {
    const DAYS: i64 = 70;
    let world = Days::new();
    let hours = (0..DAYS * 24).step_by(3);
    for hour in hours.clone() {
        let now_ms = START_MS + hour * HOUR_MS;
        world.clock.set(now_ms);
        world.store.intake().tick().expect("the ring turns");
        assert!(world.click(&format!("id-{hour}"), now_ms), "{hour}");
        world.store.ledger().flush().expect("flush");
    }
    // Runs of March, April and May, and of the window.
    let most = 3 + RUNS_MAX / 2;
    assert!(world.runs() <= most, "{} runs", world.runs());
    let (world, _) = world.reopened();
    for hour in hours {
        let history = world.store.intake().id_history(None, &format!("id-{hour}"));
        let counts = history.expect("a history").counts;
        let arrived: Vec<i64> = counts.iter().map(|of| of.logged.arrived_ms).collect();
        assert_eq!(arrived, [START_MS + hour * HOUR_MS]);
    }
}

/// The others are merged, and it is once it is healed.
#[test]
fn a_damaged_run_keeps_no_other_from_being_merged() {
    let world = Days::new();
    let mut harmed = None;
    for hour in (0..10 * 24).step_by(3) {
        let now_ms = START_MS + hour * HOUR_MS;
        world.clock.set(now_ms);
        world.store.intake().tick().expect("the ring turns");
        assert!(world.click(&format!("id-{hour}"), now_ms), "{hour}");
        world.store.ledger().flush().expect("flush");
        let newest = world.store.manifest().intake.ids.runs.last().cloned();
        let newest = newest.expect("a run").run;
        if hour == 5 * 24 {
            world.disk.flip_bit(&newest.name, 100);
            harmed = Some(newest);
        }
    }
    let harmed = harmed.expect("one");
    let names = || -> Vec<String> {
        let manifest = world.store.manifest();
        let runs = manifest.intake.ids.runs.iter();
        runs.map(|of| of.run.name.clone()).collect()
    };
    assert!(names().contains(&harmed.name));
    assert!(names().len() <= 2 + RUNS_MAX / 2, "{:?}", names());
    world.disk.flip_bit(&harmed.name, 100);
    let damaged = world.store.ledger().scrub(&harmed, &mut || ());
    damaged.expect("whole again");
    assert!(world.click("later", START_MS + 10 * 24 * HOUR_MS));
    world.store.ledger().flush().expect("flush");
    assert!(!names().contains(&harmed.name), "it is merged");
}

/// The clock moves by more than the window between two counts.
#[test]
fn of_very_many_counts_of_an_id_the_newest_are_told_and_the_others_are_numbered() {
    const COUNTS: i64 = 1_030;
    let disk = SimDisk::default();
    let clock = Arc::new(ManualClock::new(START_MS, true));
    let world = world(disk.clone(), Arc::clone(&clock) as _);
    let options = Options {
        id_hours: 1,
        ..Options::default()
    };
    let (store, _) = Store::open(world, options, Schema::default_clicks()).expect("open");
    let world = Days { disk, clock, store };
    let at_ms = |count: i64| START_MS + count * 2 * HOUR_MS;
    for count in 0..COUNTS {
        world.clock.set(at_ms(count));
        world.store.ledger().flush().expect("flush");
        assert!(world.click("often", at_ms(count)));
    }
    let history = world.store.intake().id_history(None, "often");
    let history = history.expect("a history");
    assert_eq!(history.older, 6);
    let told = history.counts.iter().map(|count| count.logged.arrived_ms);
    assert_eq!(Vec::from_iter(told), Vec::from_iter((6..COUNTS).map(at_ms)));
}

#[test]
fn a_clock_that_is_wrong_while_memory_is_flushed_makes_no_id_forgotten() {
    let world = Days::new();
    assert!(world.click("first", START_MS));
    world.store.ledger().flush().expect("flush");
    for hours in [27, 24 * 400] {
        world.clock.set(START_MS + hours * HOUR_MS);
        world.store.ledger().flush().expect("flush");
        assert!(!world.click("first", START_MS + MINUTE_MS), "{hours} h");
    }
    let (world, _) = world.reopened();
    assert!(!world.click("first", START_MS + 2 * MINUTE_MS));
}

/// Sixteen flushes make runs enough to be merged, which a damaged one cannot be.
#[test]
fn damaged_runs_keep_nothing_from_being_flushed() {
    let world = Days::new();
    let mut harmed = BTreeSet::new();
    for minute in 0..16 {
        assert!(world.click(&format!("id-{minute}"), START_MS + minute * MINUTE_MS));
        world.store.ledger().flush().expect("flush");
        for directory in ["ids/", "deltas/"] {
            let files = world.disk.files();
            let file = files
                .into_iter()
                .find(|(name, _)| name.starts_with(directory));
            // Its first block, once.
            let (name, _) = file.expect("a run");
            if minute == 2 && harmed.insert(name.clone()) {
                world.disk.flip_bit(&name, 100);
            }
        }
    }
    assert_eq!(harmed.len(), 2);
    // Only the note of the manifest that names it.
    assert_eq!(world.store.status().unflushed, 1);
    let manifest = world.store.manifest();
    for name in &harmed {
        assert!(manifest.files().any(|file| file.name == *name), "{name}");
    }
    assert!(!world.click("id-15", START_MS + HOUR_MS));
}

/// More than a frame of the log holds, between two clicks; then both again, with their sequences as the log tells them.
#[test]
fn a_group_of_several_frames_is_counted_and_remembered_record_by_record() {
    let world = Days::new();
    let click = |id: String, text: &str| Increment {
        id: Some(id),
        by: vec![("r".into(), text.into())],
        ..Increment::new(START_MS / 1_000, 1, [("l", "a")])
    };
    let long = "x".repeat(1_500);
    let middle: Vec<_> = (0..800)
        .map(|n| click(format!("middle-{n}"), &long))
        .collect();
    let many = middle.len() as u64;
    let of_one = |id: &str| vec![click(id.into(), "http://short.example/")];
    let group = [
        of_one("first"),
        middle,
        of_one("last"),
        of_one("first"),
        of_one("last"),
    ];
    let batches = group.map(|increments| Batch {
        increments,
        ..Batch::default()
    });
    let outcomes = world.store.intake().commit(batches.into());
    let counted = outcomes.into_iter().map(|outcome| {
        let accepted = outcome.expect("taken");
        (accepted.accepted, accepted.duplicates)
    });
    let wanted = [(1, 0), (many, 0), (1, 0), (0, 1), (0, 1)];
    assert_eq!(counted.collect::<Vec<_>>(), wanted);
    let check = |store: &Store| {
        let read = Read {
            namespace: "l".into(),
            key: "a".into(),
            subtotal: Some("r".into()),
            from: TIME_MIN,
            to: TIME_MAX,
            rolled: None,
        };
        let series = store.view().read(&read, None).expect("an answer");
        assert_eq!(series.totals.sum(), many + 2);
        let places = [
            ("first", 0),
            ("middle-0", 1),
            ("middle-799", many),
            ("last", many + 1),
        ];
        let sequence = |id| {
            let history = store.intake().id_history(None, id).expect("the log");
            let logged = &history.counts.first().expect("it counted").logged;
            assert!(
                matches!(&logged.record, Record::Increment(Increment { id: Some(of), .. }) if of == id)
            );
            logged.offset.sequence
        };
        let first = sequence("first");
        for (id, after) in places {
            assert_eq!(sequence(id), first + after, "{id}");
        }
    };
    check(&world.store);
    let (reopened, replayed) = world.reopened();
    assert!(replayed >= many + 4, "{replayed}");
    check(&reopened.store);
}
