//! Files that go bad while nobody reads them are found within a week.

use std::collections::BTreeSet;
use std::sync::Arc;

use tallyring_realtime::{Batch, Options, Store};
use tallyring_records::{Increment, Schema};
use tallyring_tests::model::{ManualClock, world};
use tallyring_tests::sim_disk::SimDisk;

/// 2012-03-16T00:00:00Z.
const START_MS: i64 = 1_331_856_000_000;

#[test]
fn a_file_that_went_bad_is_told_of_until_it_is_whole_or_counts_no_more() {
    let disk = SimDisk::default();
    let world = world(disk.clone(), Arc::new(ManualClock::new(START_MS, true)));
    let opened = Store::open(world, Options::default(), Schema::default_clicks());
    let (store, _) = opened.expect("open");
    for number in 0..9 {
        let key = format!("k{number}");
        let increments = vec![Increment::new(START_MS / 1_000, 1, [("l", key)])];
        let batch = Batch {
            increments,
            ..Batch::default()
        };
        assert!(store.intake().commit(vec![batch])[0].is_ok());
        store.ledger().flush().expect("flush");
    }
    // They are few bytes: all have their turn in every night.
    let files = store.ledger().files_to_scrub(7);
    let named: BTreeSet<_> = files.iter().map(|file| file.name.clone()).collect();
    let manifest = store.manifest();
    assert_eq!(
        named,
        manifest.files().map(|file| file.name.clone()).collect()
    );
    for file in &files {
        store.ledger().scrub(file, &mut || {}).expect("whole");
    }
    assert_eq!(store.status().damaged_files, [""; 0]);

    let bad = &files[0];
    let flip = || disk.flip_bit(&bad.name, 99);
    flip();
    let found = store
        .ledger()
        .scrub(bad, &mut || {})
        .expect_err("damaged")
        .to_string();
    assert!(found.contains(&bad.name), "{found}");
    assert_eq!(store.status().damaged_files, [bad.name.as_str()]);
    flip();
    store.ledger().scrub(bad, &mut || {}).expect("healed");
    assert_eq!(store.status().damaged_files, [""; 0]);

    // Merged with others it is not needed any more.
    for file in &files {
        disk.flip_bit(&file.name, 99);
        assert!(store.ledger().scrub(file, &mut || {}).is_err());
        disk.flip_bit(&file.name, 99);
    }
    assert_eq!(store.status().damaged_files.len(), files.len());
    while store.manifest().files().any(|file| *file == *bad) {
        let increments = vec![Increment::new(START_MS / 1_000, 1, [("l", "more")])];
        let batch = Batch {
            increments,
            ..Batch::default()
        };
        assert!(store.intake().commit(vec![batch])[0].is_ok());
        store.ledger().flush().expect("flush");
    }
    assert!(!store.status().damaged_files.contains(&bad.name));
    store
        .ledger()
        .scrub(bad, &mut || {})
        .expect("nobody needs it");
}
