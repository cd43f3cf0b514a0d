//! API keys in the log: over crashes, restarts, an expired log and a recount.

use std::sync::Arc;

use tallyring_realtime::oplog::{ReadFrom, scan};
use tallyring_realtime::{Batch, Options, Recount, Store};
use tallyring_records::{Increment, KeyEntry, Record, Schema, Scope, Shared, decode_all};
use tallyring_tests::model::{ManualClock, world};
use tallyring_tests::sim_disk::{SimDisk, random};

/// 2012-03-26T12:00:00Z.
const START: i64 = 1_332_763_200;
const DAY: i64 = 86_400;

fn open(disk: &SimDisk, now: i64) -> (tallyring_realtime::Result<Store>, Arc<ManualClock>) {
    let clock = Arc::new(ManualClock::new(now * 1_000, true));
    let world = world(disk.clone(), Arc::clone(&clock) as _);
    let options = Options {
        segment_bytes: 4 << 10,
        oplog_days: 4,
        id_hours: 24,
        ..Options::default()
    };
    let opened = Store::open(world, options, Schema::default_clicks());
    (opened.map(|(store, _)| store), clock)
}

fn key(id: &str) -> KeyEntry {
    KeyEntry {
        namespaces: Some(vec!["l".into()]),
        limit: Some(100),
        identity: Some("all".into()),
        note: Some("a note".into()),
        ..KeyEntry::new(id.into(), [7; 32], vec![Scope::Write], START * 1_000)
    }
}

fn revoked(id: &str) -> KeyEntry {
    KeyEntry {
        revoked_ms: Some(START * 1_000 + 7),
        ..key(id)
    }
}

fn count(store: &Store, at: i64) {
    let increments = (0..20).map(|key| Increment::new(at, 1, [("l", &*format!("k{key}"))]));
    let batch = Batch {
        increments: increments.collect(),
        ..Batch::default()
    };
    let counted = store.intake().commit(vec![batch]).remove(0);
    counted.expect("counted");
}

/// The number of records of keys in the log.
fn logged(disk: &SimDisk) -> usize {
    let mut found = 0;
    let blobs = disk.blobs();
    let read = scan(blobs.disk(), None, ReadFrom::Oldest, &mut |frame| {
        let records = decode_all(frame.payload, frame.count)?;
        let is_key = |record: &&Record| matches!(record, Record::Key(_));
        found += records.iter().filter(is_key).count();
        Ok(())
    });
    read.expect("the log is read");
    found
}

/// Makes keys and revokes one, and tells `done` of each change that was acknowledged.
fn change(store: &Store, done: &mut Vec<KeyEntry>) -> tallyring_realtime::Result<()> {
    count(store, START);
    for (number, next) in [key("a"), key("b"), revoked("a"), key("c")]
        .into_iter()
        .enumerate()
    {
        store.intake().put_key(next.clone())?;
        done.retain(|known| known.id != next.id);
        done.push(next);
        if number == 1 {
            store.ledger().flush()?;
        }
    }
    Ok(())
}

#[test]
fn an_acknowledged_change_of_a_key_outlives_a_crash_at_any_call_of_the_disk() {
    let mut crashes = 0;
    for call in 1..1_000 {
        let disk = SimDisk::default();
        let (store, _) = open(&disk, START);
        let store = store.expect("a new store");
        let mut done = Vec::new();
        disk.stop_at_nth_call(call);
        // An increment of before is refused where the disk stops so early.
        let tried =
            std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| change(&store, &mut done)));
        if matches!(tried, Ok(Ok(()))) {
            break;
        }
        crashes += 1;
        drop(store);
        let disk = disk.crash(&mut random(call));
        let (store, _) = open(&disk, START);
        let keys = store.expect("opened").intake().keys();
        for acknowledged in &done {
            let found = keys.iter().find(|key| key.id == acknowledged.id);
            let is_kept = found
                .is_some_and(|found| found == acknowledged || *found == revoked(&acknowledged.id));
            assert!(is_kept, "call {call}: {acknowledged:?} is {found:?}");
        }
    }
    assert!(crashes > 10, "{crashes} crashes");
}

#[test]
fn keys_outlive_their_records_a_restart_and_a_recount() {
    let disk = SimDisk::default();
    let (store, clock) = open(&disk, START);
    let store = store.expect("a new store");
    change(&store, &mut Vec::new()).expect("changed");
    let all = [revoked("a"), key("b"), key("c")];
    assert_eq!(store.intake().keys(), all);
    assert_eq!(logged(&disk), 4);
    for day in 1..9 {
        clock.set((START + day * DAY) * 1_000);
        store.intake().tick().expect("a new day");
        for _ in 0..20 {
            count(&store, START + day * DAY);
        }
        store.ledger().flush().expect("flushed");
        store.intake().seal().expect("sealed");
        store.ledger().expire_log().expect("expired");
    }
    assert_eq!(logged(&disk), 0, "their records left the log");
    let shards = store.options().shards;
    drop(store);
    let now = START + 9 * DAY;
    let store = open(&disk, now).0.expect("opened");
    assert_eq!(store.intake().keys(), all);
    // Keys that the index of an older build has besides are told once.
    let of_index = [key("a"), key("d")];
    for _ in 0..2 {
        store.intake().adopt_keys(&of_index).expect("logged");
        assert_eq!(logged(&disk), 1);
    }
    let all = [&all[..], &[key("d")]].concat();
    assert_eq!(store.intake().keys(), all);
    drop(store);
    let blobs = disk.blobs();
    let recount = Recount::plan(&blobs, None, &Schema::default_clicks(), shards);
    let recount = recount.expect("a plan");
    recount.manifest.commit(&blobs).expect("committed");
    let store = open(&disk, now).0.expect("opened");
    assert_eq!(store.intake().keys(), all);
}

#[test]
fn a_share_leaves_by_itself_when_it_expires_and_its_records_bring_it_back_never() {
    let disk = SimDisk::default();
    let (store, clock) = open(&disk, START);
    let store = store.expect("a new store");
    let share = |id: &str, days: i64| KeyEntry {
        scopes: Vec::new(),
        shared: Some(Shared {
            key: None,
            expires_ms: (START + days * DAY) * 1_000,
        }),
        ..key(id)
    };
    let gone = KeyEntry {
        revoked_ms: Some(START * 1_000 + 7),
        ..share("b", 1)
    };
    let put = [
        key("k"),
        share("a", 1),
        share("b", 1),
        gone.clone(),
        share("c", 3),
    ];
    for entry in &put {
        store.intake().put_key(entry.clone()).expect("logged");
    }
    let flushed = |store: &Store| {
        count(store, START);
        store.ledger().flush().expect("flushed");
        let named = store.manifest().intake.keys.clone();
        assert_eq!(store.intake().keys(), named);
        named
    };
    let all = [share("a", 1), gone, share("c", 3), key("k")];
    assert_eq!(flushed(&store), all);
    clock.set((START + DAY) * 1_000 - 1);
    assert_eq!(flushed(&store), all);
    clock.set((START + DAY) * 1_000);
    assert_eq!(flushed(&store), all[2..]);
    let shards = store.options().shards;
    drop(store);
    // The log still tells of all of them.
    let blobs = disk.blobs();
    let recount = Recount::plan(&blobs, None, &Schema::default_clicks(), shards);
    let recount = recount.expect("a plan");
    recount.manifest.commit(&blobs).expect("committed");
    let (store, clock) = open(&disk, START + DAY);
    let store = store.expect("opened");
    assert_eq!(logged(&disk), put.len());
    assert_eq!(flushed(&store), all[2..]);
    clock.set((START + 3 * DAY) * 1_000);
    assert_eq!(flushed(&store), all[3..]);
}
