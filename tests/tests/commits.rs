//! Corners of a commit and of a flush: counters that are nearly full, batches that come again, disks that refuse,
//! clocks that jump.

use std::io::ErrorKind;
use std::sync::Arc;

use tallyring_realtime::{Batch, BatchKey, Options, Refusal, Service, Store};
use tallyring_records::{COUNT_MAX, Increment, Schema};
use tallyring_tests::answers;
use tallyring_tests::model::{ManualClock, world};
use tallyring_tests::sim_disk::SimDisk;

const HOUR_MS: i64 = 3_600_000;
const DAY_MS: i64 = 24 * HOUR_MS;
/// 2012-03-16T00:00:00Z.
const START_MS: i64 = 1_331_856_000_000;
const START: i64 = START_MS / 1_000;
const SEGMENT_BYTES: u64 = 64 << 10;

fn open(disk: &SimDisk, clock: &Arc<ManualClock>) -> tallyring_realtime::Result<Store> {
    let world = world(disk.clone(), Arc::clone(clock) as _);
    let options = Options {
        segment_bytes: SEGMENT_BYTES,
        ..Options::default()
    };
    Store::open(world, options, Schema::default_clicks()).map(|(store, _)| store)
}

fn stand() -> (SimDisk, Arc<ManualClock>, Store) {
    let (disk, clock) = (
        SimDisk::default(),
        Arc::new(ManualClock::new(START_MS, false)),
    );
    let store = open(&disk, &clock).expect("open");
    (disk, clock, store)
}

fn batch(increments: impl IntoIterator<Item = Increment>) -> Batch {
    Batch {
        increments: increments.into_iter().collect(),
        ..Batch::default()
    }
}

fn click(at: i64, n: u64, key: &str) -> Increment {
    Increment::new(at, n, [("l", key)])
}

fn total(store: &Store, key: &str) -> u64 {
    answers::total(store, "l", key)
}

#[test]
fn no_counter_is_lifted_above_its_limit_beside_one_that_is_nearly_full() {
    let (_disk, _clock, store) = stand();
    let full = store
        .intake()
        .commit(vec![batch([click(START, COUNT_MAX - 10, "full")])]);
    assert!(full[0].is_ok());
    // The first is of the hour that is nearly full, the others are not: they are looked at in different ways.
    let large = || batch([click(START + 3_600, COUNT_MAX - 30, "fresh")]);
    let small = batch([click(START, 20, "other")]);
    let [one, two, three] = store
        .intake()
        .commit(vec![small, large(), large()])
        .try_into()
        .expect("three answers");
    assert!(one.is_ok() && two.is_ok());
    assert!(matches!(three, Err(Refusal::Items(_))), "{three:?}");
    assert_eq!(total(&store, "fresh"), COUNT_MAX - 30);
    // A refused batch takes nobody's room.
    let group = vec![large(), batch([click(START + 3_600, 30, "fresh")])];
    let [refused, taken] = store
        .intake()
        .commit(group)
        .try_into()
        .expect("two answers");
    assert!(refused.is_err() && taken.is_ok());
    assert_eq!(total(&store, "fresh"), COUNT_MAX);
}

#[test]
fn a_batch_that_comes_again_and_again_is_looked_up_once() {
    let (disk, clock, store) = stand();
    let keyed = |text: &str| Batch {
        key: Some(BatchKey {
            text: text.into(),
            body: 7,
        }),
        ..batch([click(START, 1, text)])
    };
    let first = store
        .intake()
        .commit(vec![keyed("a")])
        .remove(0)
        .expect("counted");
    let calls = disk.calls();
    let again = store
        .intake()
        .commit((0..100).map(|_| keyed("a")).collect());
    assert!(again.iter().all(|answer| answer.as_ref() == Ok(&first)));
    assert_eq!(disk.calls(), calls, "it is known what was answered");
    drop(store);
    let store = open(&disk, &clock).expect("open");
    assert_eq!(store.intake().commit(vec![keyed("a")]), [Ok(first.clone())]);
    let calls = disk.calls();
    let again = store
        .intake()
        .commit((0..100).map(|_| keyed("a")).collect());
    assert!(again.iter().all(|answer| answer.as_ref() == Ok(&first)));
    assert_eq!(disk.calls(), calls, "the log was read once");
    assert_eq!(total(&store, "a"), 1);
}

#[test]
fn a_flush_that_fails_leaves_no_file_behind() {
    // So many runs that the next ones are merged with them.
    const RUNS: u64 = 15;
    let (mut failed, mut call) = (0, 1);
    loop {
        let (disk, _clock, store) = stand();
        let count = |number: u64| {
            let increment = Increment {
                id: Some(format!("id-{number}")),
                ..click(START, 1, "a")
            };
            assert!(store.intake().commit(vec![batch([increment])])[0].is_ok());
        };
        for number in 0..RUNS {
            count(number);
            store.ledger().flush().expect("flush");
        }
        count(RUNS);
        let before = disk.calls();
        disk.fail_nth_call(call, ErrorKind::StorageFull);
        failed += u32::from(store.ledger().flush().is_err());
        let was_reached = disk.calls() >= before + call;
        // Were it a removal that failed, that file would stay until the next start.
        // Files stay that a manifest may name which may be there.
        if store.ledger().must_restart().is_none() {
            let unnamed = unnamed(&disk, &store);
            assert!(unnamed.len() <= 1, "call {call}: {unnamed:?}");
        }
        assert_eq!(total(&store, "a"), RUNS + 1, "call {call}");
        if !was_reached {
            break;
        }
        call += 1;
    }
    assert!(failed > 10, "of {call} calls {failed} made it fail");
}

/// Files of deltas and ids that the manifest does not name.
fn unnamed(disk: &SimDisk, store: &Store) -> Vec<String> {
    let manifest = store.manifest();
    let named = manifest.file_names();
    let files = disk.files().into_iter().map(|(name, _)| name);
    files
        .filter(|name| name.starts_with("deltas/") || name.starts_with("ids/"))
        .filter(|name| !named.contains(name.as_str()))
        .collect()
}

#[test]
fn a_clock_that_is_ahead_for_a_moment_keeps_no_segment_for_ever() {
    let (_disk, clock, store) = stand();
    let fill = |store: &Store| {
        let text = "x".repeat(1_000);
        for _ in 0..80 {
            let increment = Increment::new(START, 1, [("l", text.as_str())]);
            assert!(store.intake().commit(vec![batch([increment])])[0].is_ok());
        }
        store.intake().tick().expect("time goes on");
    };
    let segments = |store: &Store| store.status().oplog_bytes / SEGMENT_BYTES;
    fill(&store);
    clock.set(START_MS + 365 * DAY_MS);
    fill(&store);
    clock.set(START_MS + 1_000);
    fill(&store);
    fill(&store);
    let before = segments(&store);
    assert!(before >= 4, "{before} segments");
    for day in 1..=10 {
        clock.set(START_MS + day * DAY_MS);
        store.intake().tick().expect("the ring turns");
        store.ledger().cut().expect("cut");
    }
    assert!(store.ledger().expire_log().expect("expire") > 0);
    assert_eq!(segments(&store), 1, "of {before}");
}

#[test]
fn a_log_at_its_limit_refuses_with_the_name_of_the_setting_until_old_segments_go() {
    let (disk, clock) = (
        SimDisk::default(),
        Arc::new(ManualClock::new(START_MS, false)),
    );
    let options = Options {
        segment_bytes: SEGMENT_BYTES,
        oplog_bytes_max: 6 * SEGMENT_BYTES,
        ..Options::default()
    };
    let world = world(disk.clone(), Arc::clone(&clock) as _);
    let (store, _) = Store::open(world, options, Schema::default_clicks()).expect("open");
    let text = "x".repeat(1_000);
    let send = |store: &Store| {
        let increment = Increment::new(START, 1, [("l", text.as_str())]);
        let outcome = store.intake().commit(vec![batch([increment])]).remove(0);
        assert!(store.status().oplog_bytes + SEGMENT_BYTES <= options.oplog_bytes_max);
        outcome
    };
    let mut counted = 0;
    let refusal = loop {
        match send(&store) {
            Ok(_) => counted += 1,
            Err(refusal) => break refusal,
        }
    };
    assert!(matches!(refusal, Refusal::LogFull { .. }), "{refusal}");
    let told = refusal.to_string();
    assert!(told.contains("`oplog.max_bytes` = 393216"), "{told}");
    assert!(store.intake().log_wants_room());
    assert_eq!(store.ready().expect_err("not ready"), refusal);
    for day in 1..=10 {
        clock.set(START_MS + day * DAY_MS);
        store.intake().tick().expect("the ring turns");
        store.ledger().cut().expect("cut");
        let forecast = store.status().log_forecast;
        assert!(forecast.bytes_a_day.is_some_and(|bytes| bytes > 0) || day > 7);
    }
    send(&store).expect_err("nothing went yet");
    assert!(store.ledger().expire_log().expect("expire") > 0);
    store.ready().expect("ready");
    send(&store).expect("counted");
    assert_eq!(total(&store, &text), counted + 1);
}

#[test]
fn a_log_is_sealed_also_where_memory_cannot_be_flushed() {
    let (disk, clock, store) = stand();
    assert!(store.intake().commit(vec![batch([click(START, 1, "a")])])[0].is_ok());
    let (segment, _) = disk
        .files()
        .into_iter()
        .rfind(|(name, _)| name.starts_with("oplog/") && name.ends_with(".tlog"))
        .expect("a segment");
    let service = Service::start(Arc::new(store)).expect("its threads");
    disk.set_free_bytes(0);
    assert!(service.stop().is_err(), "there is no room for a run");
    disk.set_free_bytes(1 << 30);
    let store = open(&disk, &clock).expect("open");
    assert_eq!(total(&store, "a"), 1);
    drop(store);
    // A bit of the click: behind the header, and the frame that says whose the log is.
    let bytes = |bytes: usize| bytes * 8;
    disk.flip_bit(&segment, bytes(64 + 48 + 40));
    let damaged = open(&disk, &clock).map(drop);
    assert!(damaged.is_err(), "it cannot be a torn write");
}
