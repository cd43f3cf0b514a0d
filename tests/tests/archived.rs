//! A read calls nothing archived that a delta store counts, and everything that only files count, whether merged or
//! not.

use std::sync::Arc;

use tallyring_archive::KeepDays;
use tallyring_realtime::{Batch, Options, Store};
use tallyring_rebuild::{BuildOptions, REWRITE_BYTES_MIN, build};
use tallyring_records::{Increment, Schema};
use tallyring_tests::model::{ManualClock, world};
use tallyring_tests::sim_disk::SimDisk;

/// 2012-03-16T18:00:00Z.
const NOW: i64 = 1_331_920_800;
const HOUR: i64 = 3_600;
const MIDNIGHT: i64 = NOW + 6 * HOUR;

/// A click at `NOW`.
fn count(store: &Store) {
    let batch = Batch {
        increments: vec![Increment::new(NOW, 1, [("l", "a")])],
        ..Batch::default()
    };
    store
        .intake()
        .commit(vec![batch])
        .remove(0)
        .expect("counted");
}

/// Publishes a generation; its number.
fn rebuild(store: &Store, disk: &SimDisk) -> u64 {
    let manifest = store.ledger().cut().expect("cut");
    let options = BuildOptions {
        breakdown_hours: 3,
        rewrite_bytes_min: REWRITE_BYTES_MIN,
        shards: 4,
        level: 1,
        keep: KeepDays::default(),
    };
    let built = build(&disk.blobs(), &manifest, options, &|_, _| {}).expect("built");
    let built = built.expect("something to build");
    store.ledger().publish(&built).expect("published");
    store.manifest().archive.active
}

#[test]
fn counts_of_delta_stores_are_not_archived_and_those_of_files_are() {
    let disk = SimDisk::default();
    let clock = Arc::new(ManualClock::new(NOW * 1_000, true));
    let world = world(disk.clone(), Arc::clone(&clock) as _);
    let schema = Schema::default_clicks();
    let (store, _) = Store::open(world, Options::default(), schema).expect("open");
    count(&store);
    clock.set((NOW + 24 * HOUR) * 1_000);
    store.intake().tick().expect("a new day");
    assert!(!store.view().is_archived(MIDNIGHT));
    let first = rebuild(&store, &disk);
    assert!(store.view().is_archived(MIDNIGHT));
    count(&store);
    assert!(!store.view().is_archived(MIDNIGHT), "it came late");
    let second = rebuild(&store, &disk);
    assert!(store.view().is_archived(MIDNIGHT));
    store.ledger().activate(first).expect("rolled back");
    assert!(
        store.view().is_archived(MIDNIGHT),
        "the first lacks what was late, but a file counts it"
    );
    store.ledger().activate(second).expect("forth again");
    assert!(store.view().is_archived(MIDNIGHT));
}
