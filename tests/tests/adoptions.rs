//! An adoption of a load may fail at any call of the disk: it leaves no name that holds bytes, and can be tried again.

use std::fmt::Write as _;
use std::io::ErrorKind;
use std::sync::Arc;

use tallyring_archive::{Disk, KeepDays, Staged, names};
use tallyring_realtime::oplog::{ReadFrom, scan};
use tallyring_realtime::{Options, Store, long_keys_of};
use tallyring_rebuild::load::{LoadError, LoadOptions, MEMORY_MIN, load};
use tallyring_rebuild::{BuildOptions, REWRITE_BYTES_MIN, build};
use tallyring_records::{Day, Record, Schema, decode_all};
use tallyring_tests::model::{ManualClock, world};
use tallyring_tests::sim_disk::SimDisk;

/// 2012-03-16T18:00:00Z.
const NOW: i64 = 1_331_920_800;
const LOAD: &str = "0123456789abcdef";
/// Enough for a run in every shard.
const KEYS: u32 = 40;

fn open(disk: &SimDisk) -> Store {
    let world = world(disk.clone(), Arc::new(ManualClock::new(NOW * 1_000, true)));
    let opened = Store::open(world, Options::default(), Schema::default_clicks());
    opened.expect("open").0
}

/// A store, and a load that waits to be adopted.
fn stand(is_final: bool) -> (SimDisk, Store) {
    let disk = SimDisk::default();
    let (store, schema) = (open(&disk), Schema::default_clicks());
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
        preset: None,
    };
    let stop = |row| Err(LoadError::Row(row));
    let files = [file.path().to_owned()];
    let loaded = load(&disk.blobs(), &files, options, &stop, &|_| {}).expect("loaded");
    assert_eq!(loaded.runs.len(), 3);
    let staged = Staged {
        load: LOAD.to_owned(),
        store_id: store.manifest().store_id.clone(),
        rows: loaded.rows,
        is_final,
        runs: loaded.runs,
    };
    staged.write(&disk.blobs()).expect("staged");
    (disk, store)
}

#[test]
fn an_adoption_that_fails_at_any_call_leaves_no_name_and_can_be_tried_again() {
    let (disk, store) = stand(false);
    let before = disk.calls();
    store
        .ledger()
        .adopt("history", LOAD, false)
        .expect("adopted");
    let calls = disk.calls() - before;
    let (mut failed, mut uncertain) = (0, 0);
    for call in 1..=calls {
        let (disk, store) = stand(false);
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

/// Publishes a generation where there is one to make; false where there is none.
fn rebuild(disk: &SimDisk, store: &Store) -> bool {
    let manifest = store.ledger().cut().expect("cut");
    let options = BuildOptions {
        breakdown_hours: 3,
        rewrite_bytes_min: REWRITE_BYTES_MIN,
        shards: 3,
        level: 1,
        keep: KeepDays::default(),
    };
    let built = build(&disk.blobs(), &manifest, options, &|_, _| {}).expect("built");
    match &built {
        Some(built) => store.ledger().publish(built).expect("published"),
        None => store.ledger().prove_datasets().expect("proven"),
    }
    built.is_some()
}

/// Records of final datasets in the log.
fn told(disk: &SimDisk) -> usize {
    let mut told = 0;
    let read = scan(disk, None, ReadFrom::Oldest, &mut |frame| {
        let records = decode_all(frame.payload, frame.count)?;
        let datasets = records.iter();
        let datasets = datasets.filter(|record| matches!(record, Record::Dataset(_)));
        told += datasets.count();
        Ok(())
    });
    read.expect("the log is read");
    told
}

#[test]
fn the_log_is_told_of_a_final_dataset_of_an_older_build_though_nothing_is_published() {
    let (disk, store) = stand(true);
    store.ledger().adopt("h", LOAD, false).expect("adopted");
    assert!(rebuild(&disk, &store));
    store.ledger().flush().expect("flushed");
    assert_eq!(told(&disk), 1);
    // An older build had no proof, and wrote no record.
    let mut older = store.manifest().as_ref().clone();
    drop(store);
    older.number += 1;
    older.archive.datasets[0].proof = None;
    let disk = disk.kill();
    older.commit(&disk.blobs()).expect("committed");
    let store = open(&disk);
    assert!(!rebuild(&disk, &store), "there is nothing to publish");
    assert_eq!(told(&disk), 2);
    let proof = store.manifest().archive.datasets[0].proof.clone();
    assert!(proof.is_some());
    assert!(!rebuild(&disk, &store));
    assert_eq!(told(&disk), 2, "once");
}
