//! The second copy of the log: which clicks are acknowledged while the copy fails, and which a restore brings back.

use std::sync::Arc;

use tallyring_archive::{Disk, Manifest};
use tallyring_realtime::oplog::{LogCopy, LogCopyAck, ReadFrom, scan};
use tallyring_realtime::{Accepted, Batch, BatchKey, Identity, Options, Refusal, Store};
use tallyring_rebuild::backup::{copy, join_log};
use tallyring_records::{Increment, Schema};
use tallyring_tests::answers;
use tallyring_tests::model::{ManualClock, world};
use tallyring_tests::sim_disk::{SimDisk, random};

/// 2012-03-16T00:00:00Z.
const START_MS: i64 = 1_331_856_000_000;

fn options() -> Options {
    Options {
        segment_bytes: 1 << 12,
        ..Options::default()
    }
}

fn open(disk: &SimDisk, copy: &SimDisk, ack: LogCopyAck) -> Result<Store, String> {
    let clock = Arc::new(ManualClock::new(START_MS, false));
    let (log, there) = (Arc::new(disk.clone()), Arc::new(copy.clone()));
    let copy = LogCopy::open(log, there, "copy".into(), ack, START_MS);
    let copy = copy.map_err(|error| error.to_string())?;
    let opened = Store::open(
        world(disk.clone(), clock),
        options(),
        Schema::default_clicks(),
    );
    let (store, _) = opened.map_err(|error| error.to_string())?;
    Ok(store.with_log_copy(copy))
}

fn click(id: u64) -> Batch {
    let increment = Increment {
        id: Some(id.to_string()),
        ..Increment::new(START_MS / 1_000, 1, [("l", "a")])
    };
    Batch {
        increments: vec![increment],
        ..Batch::default()
    }
}

fn keyed(key: &str) -> Batch {
    Batch {
        increments: vec![Increment::new(START_MS / 1_000, 1, [("l", "a")])],
        key: Some(BatchKey {
            text: key.into(),
            body: 7,
        }),
        ..Batch::default()
    }
}

fn commit(store: &Store, batch: Batch) -> Result<Accepted, Refusal> {
    store.intake().commit(vec![batch]).remove(0)
}

/// Why it was refused as not available.
fn refusal(store: &Store, batch: Batch) -> String {
    match commit(store, batch) {
        Err(Refusal::Unavailable(text)) => text,
        other => panic!("{other:?}"),
    }
}

fn total(store: &Store) -> u64 {
    answers::total(store, "l", "a")
}

/// The counts of a store on this disk, as its files alone tell them.
fn restored_total(disk: &SimDisk) -> u64 {
    let clock = Arc::new(ManualClock::new(START_MS, false));
    let store = Store::open_read_only(world(disk.clone(), clock), options());
    total(&store.expect("a whole store"))
}

fn behind(store: &Store) -> u64 {
    store.status().log_copy.expect("a copy").behind_records
}

#[test]
fn with_both_a_copy_that_cannot_be_written_refuses_and_what_the_log_has_counts_once() {
    let (disk, there) = (SimDisk::default(), SimDisk::default());
    let store = open(&disk, &there, LogCopyAck::Both).expect("open");
    assert_eq!(commit(&store, click(1)).expect("counted").accepted, 1);
    assert_eq!(behind(&store), 0, "nothing is acknowledged before");
    store.ready().expect("ready");

    there.set_free_bytes(0);
    for batch in [click(2), keyed("b")] {
        // The first finds out, the other is not even tried.
        let told = refusal(&store, batch);
        assert!(told.contains("second copy of the log"), "{told}");
    }
    assert_eq!(total(&store), 2, "memory is what the log says");
    let (told, appended) = (refusal(&store, click(3)), store.status().applied);
    assert!(told.starts_with("nothing was counted"), "{told}");
    let told = refusal(&store, click(1));
    assert!(
        told.starts_with("nothing was counted"),
        "a duplicate: {told}"
    );
    assert_eq!(store.status().applied, appended, "nothing was appended");
    assert!(store.ready().is_err());
    let status = store.status().log_copy.expect("a copy");
    assert!(
        status.failure.is_some() && status.behind_records >= 1,
        "{status:?}"
    );

    there.set_free_bytes(1 << 30);
    store.ready().expect("ready again");
    let again = commit(&store, click(2)).expect("known");
    assert_eq!((again.accepted, again.duplicates), (0, 1));
    assert_eq!(commit(&store, click(3)).expect("counted").accepted, 1);
    assert_eq!(commit(&store, keyed("b")).expect("counted").accepted, 1);
    assert_eq!(total(&store), 4);
    assert_eq!(
        (
            behind(&store),
            store.status().log_copy.expect("a copy").failure
        ),
        (0, None)
    );
}

#[test]
fn a_store_that_got_its_first_api_key_goes_on_with_its_copy() {
    let (disk, there) = (SimDisk::default(), SimDisk::default());
    let store = open(&disk, &there, LogCopyAck::Both).expect("open");
    commit(&store, click(0)).expect("counted");
    Identity::mark_keyed(&disk.blobs()).expect("noted");
    drop(store);
    let store = open(&disk, &there, LogCopyAck::Both).expect("it is the copy of this store");
    for id in 1..200 {
        commit(&store, click(id)).expect("counted");
    }
    let identity = |disk: &SimDisk| Identity::load(&disk.blobs()).expect("read");
    let copied = identity(&there).expect("an identity");
    assert!(copied.is_keyed, "a restore from the copy opens to nobody");
}

#[test]
fn a_copy_that_knows_of_api_keys_does_not_forget_them() {
    let (disk, there) = (SimDisk::default(), SimDisk::default());
    let store = open(&disk, &there, LogCopyAck::Both).expect("open");
    commit(&store, click(0)).expect("counted");
    // As where the identity was put back from before the first key.
    Identity::mark_keyed(&there.blobs()).expect("noted");
    for id in 1..200 {
        commit(&store, click(id)).expect("counted");
    }
    let copied = Identity::load(&there.blobs()).expect("read");
    assert!(copied.is_some_and(|copied| copied.is_keyed));
}

#[test]
fn with_local_a_copy_that_cannot_be_written_holds_up_nobody_and_catches_up() {
    let (disk, there) = (SimDisk::default(), SimDisk::default());
    let store = open(&disk, &there, LogCopyAck::Local).expect("open");
    assert!(store.intake().copy_log().expect("copied"));
    there.set_free_bytes(0);
    for id in 0..500 {
        commit(&store, click(id)).expect("counted");
    }
    assert!(store.intake().copy_log().is_err());
    let status = store.status().log_copy.expect("a copy");
    assert_eq!(status.behind_records, 500);
    assert!(
        status.failure.is_some() && status.behind_bytes > 500,
        "{status:?}"
    );
    store.ready().expect("ready");
    there.set_free_bytes(1 << 30);
    assert!(store.intake().copy_log().expect("copied"));
    assert_eq!(behind(&store), 0);
    for (file, _) in disk.files() {
        if file.ends_with(".tlog") {
            let [log, copy] = [&disk, &there].map(|disk| disk.read(&file).expect("both have it"));
            assert!(log.starts_with(&copy), "{file}");
        }
    }
}

/// A store that was backed up after some clicks, and whose log was copied since.
fn backed_up(ack: LogCopyAck, there: &SimDisk) -> (SimDisk, SimDisk, Store) {
    let (disk, backup) = (SimDisk::default(), SimDisk::default());
    let store = open(&disk, there, ack).expect("open");
    for id in 0..20 {
        commit(&store, click(id)).expect("counted");
    }
    copy(&disk.blobs(), &backup.blobs(), &|_| true, &|_, _| {}).expect("backed up");
    (disk, backup, store)
}

#[test]
fn a_backup_and_a_copy_that_was_torn_anywhere_are_what_both_had() {
    for stop in 1.. {
        let there = SimDisk::default();
        let (disk, backup, store) = backed_up(LogCopyAck::Both, &there);
        there.stop_at_nth_call(stop);
        let mut acknowledged = 20;
        while acknowledged < 60 && commit(&store, click(acknowledged)).is_ok() {
            acknowledged += 1;
        }
        let place = format!("call {stop}, {acknowledged} acknowledged");
        let counted = total(&store);
        assert!(counted <= acknowledged + 1, "{place}");
        drop(store);
        let torn = there.crash(&mut random(stop));
        let joined = join_log(&backup.blobs(), &torn.blobs())
            .unwrap_or_else(|error| panic!("{place}: {error}"));
        let restored = restored_total(&backup);
        assert!(
            (acknowledged..=counted).contains(&restored),
            "{place}: {restored} are restored, {joined:?}"
        );
        // The restored store goes on with that copy, in which no torn byte stays.
        let store = open(&backup, &torn, LogCopyAck::Both).expect("open");
        for id in 100..150 {
            commit(&store, click(id)).expect("counted");
        }
        drop(store);
        let scanned = scan(&torn, None, ReadFrom::Oldest, &mut |_| Ok(()));
        scanned.unwrap_or_else(|error| panic!("{place}: {error}"));
        // Where the first log is still there, it goes on from where the copy was torn.
        let torn = there.crash(&mut random(stop));
        let store = open(&disk, &torn, LogCopyAck::Both).expect("open");
        let again = commit(&store, click(acknowledged)).expect("counted");
        assert_eq!(total(&store), acknowledged + 1, "{place}: {again:?}");
        if acknowledged == 60 {
            assert!(stop > 40, "{place}");
            break;
        }
    }
}

#[test]
fn a_restored_log_goes_on_with_the_copy_it_was_joined_with() {
    let there = SimDisk::default();
    let (disk, backup, store) = backed_up(LogCopyAck::Both, &there);
    for id in 20..200 {
        commit(&store, click(id)).expect("counted");
    }
    drop(store);
    // Without the copied log the restored one is behind it, and the copy is not touched.
    let alone = SimDisk::default();
    copy(&backup.blobs(), &alone.blobs(), &|_| true, &|_, _| {}).expect("restored");
    let files = there.files();
    let refused = open(&alone, &there, LogCopyAck::Both)
        .err()
        .expect("refused");
    assert!(refused.contains("--log"), "{refused}");
    assert_eq!(there.files(), files);

    let restored = SimDisk::default();
    copy(&backup.blobs(), &restored.blobs(), &|_| true, &|_, _| {}).expect("restored");
    let joined = join_log(&restored.blobs(), &there.blobs()).expect("joined");
    assert_eq!((joined.records, joined.left), (180, None));
    assert_eq!(restored_total(&restored), 200);
    assert_eq!(
        Manifest::load(&restored.blobs()).expect("a manifest"),
        Manifest::load(&disk.blobs()).expect("a manifest")
    );
    let store = open(&restored, &there, LogCopyAck::Both).expect("it goes on");
    commit(&store, click(200)).expect("counted");
    let again = commit(&store, click(0)).expect("known");
    assert_eq!((again.duplicates, total(&store)), (1, 201));
}

#[test]
fn a_log_that_does_not_go_on_from_the_backup_is_refused_with_the_reason() {
    let there = SimDisk::default();
    let (_disk, backup, store) = backed_up(LogCopyAck::Both, &there);
    for id in 20..200 {
        commit(&store, click(id)).expect("counted");
    }
    drop(store);
    let without = |first: usize, until: usize| {
        let gap = there.kill();
        let segments = gap.list("oplog").expect("a log");
        for segment in &segments[first..until] {
            gap.remove(&format!("oplog/{segment}")).expect("removed");
        }
        gap
    };
    let mut kept = there.files();
    kept.retain(|(file, _)| file.ends_with(".tlog"));
    assert!(kept.len() > 3, "{kept:?}");
    let other = SimDisk::default();
    let foreign = SimDisk::default();
    let store = open(&SimDisk::default(), &foreign, LogCopyAck::Both).expect("open");
    commit(&store, click(1_000)).expect("counted");
    let restore = |log: &SimDisk| {
        let restored = SimDisk::default();
        copy(&backup.blobs(), &restored.blobs(), &|_| true, &|_, _| {}).expect("restored");
        let joined = join_log(&restored.blobs(), &log.blobs()).map_err(|error| error.to_string());
        (joined, restored)
    };
    for (log, told) in [
        (&other, "the copy ends before record 2"),
        (&foreign, "differ"),
    ] {
        let refused = restore(log).0.expect_err("refused");
        assert!(refused.contains(told), "{refused}");
    }
    let newest_of_backup = backup.list("oplog").expect("a log").len();
    let gap = without(newest_of_backup + 1, newest_of_backup + 2);
    let (joined, restored) = restore(&gap);
    let joined = joined.expect("as far as it goes");
    let left = joined.left.expect("what is left is told");
    assert!(
        left.contains("neither the backup nor the copy has records"),
        "{left}"
    );
    assert!((21..200).contains(&restored_total(&restored)));
    let gap = {
        let all = gap;
        let segments = all.list("oplog").expect("a log");
        for segment in &segments[..=newest_of_backup] {
            all.remove(&format!("oplog/{segment}")).expect("removed");
        }
        all
    };
    let refused = restore(&gap).0.expect_err("refused");
    assert!(
        refused.contains("neither the backup nor the copy has records"),
        "{refused}"
    );
}
