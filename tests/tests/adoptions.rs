//! An adoption of a load may fail at any call of the disk: it leaves no name that holds bytes, and can be tried again.

use std::fmt::Write as _;
use std::io::ErrorKind;
use std::sync::Arc;

use tallyring_archive::{Disk, Staged, names};
use tallyring_realtime::{Options, Store, long_keys_of};
use tallyring_rebuild::load::{LoadError, LoadOptions, MEMORY_MIN, load};
use tallyring_records::{Day, Schema};
use tallyring_tests::model::{ManualClock, world};
use tallyring_tests::sim_disk::SimDisk;

/// 2012-03-16T18:00:00Z.
const NOW: i64 = 1_331_920_800;
const LOAD: &str = "0123456789abcdef";
/// Enough for a run in every shard.
const KEYS: u32 = 40;

/// A store, and a load that waits to be adopted.
fn stand() -> (SimDisk, Store) {
    let disk = SimDisk::default();
    let world = world(disk.clone(), Arc::new(ManualClock::new(NOW * 1_000, true)));
    let schema = Schema::default_clicks();
    let (store, _) = Store::open(world, Options::default(), schema.clone()).expect("open");
    let mut rows = String::from("namespace,key,hour,count\n");
    for key in 0..KEYS {
        let _ = writeln!(rows, "l,k{key},2011-05-01T10:00:00Z,1");
    }
    let file = tempfile::NamedTempFile::new().expect("a file");
    std::fs::write(file.path(), rows).expect("written");
    let options = LoadOptions {
        id: LOAD,
        schema: &schema,
        keys: &long_keys_of(&disk.blobs()).expect("keys"),
        today: Day::of(NOW),
        latest: i64::MAX,
        shards: 3,
        level: 1,
        memory: MEMORY_MIN,
        fill: false,
    };
    let stop = |row| Err(LoadError::Row(row));
    let files = [file.path().to_owned()];
    let loaded = load(&disk.blobs(), &files, options, &stop, &|_| {}).expect("loaded");
    assert_eq!(loaded.runs.len(), 3);
    let staged = Staged {
        load: LOAD.to_owned(),
        store_id: store.manifest().store_id.clone(),
        rows: loaded.rows,
        is_final: false,
        runs: loaded.runs,
    };
    staged.write(&disk.blobs()).expect("staged");
    (disk, store)
}

#[test]
fn an_adoption_that_fails_at_any_call_leaves_no_name_and_can_be_tried_again() {
    let (disk, store) = stand();
    let before = disk.calls();
    store
        .ledger()
        .adopt("history", LOAD, false)
        .expect("adopted");
    let calls = disk.calls() - before;
    let (mut failed, mut uncertain) = (0, 0);
    for call in 1..=calls {
        let (disk, store) = stand();
        disk.fail_nth_call(call, ErrorKind::StorageFull);
        if store.ledger().adopt("history", LOAD, false).is_ok() {
            continue;
        }
        failed += 1;
        let runs = disk.list(names::RUNS).expect("runs");
        if store.ledger().must_restart().is_some() {
            // Whether a manifest names them is not known.
            uncertain += 1;
            assert_eq!(runs.len(), 3, "call {call}: {runs:?}");
            continue;
        }
        assert!(runs.is_empty(), "call {call}: {runs:?}");
        store
            .ledger()
            .adopt("history", LOAD, false)
            .expect("adopted at last");
    }
    assert!(
        failed > 3 && uncertain > 0,
        "{failed} of {calls}, {uncertain}"
    );
}
