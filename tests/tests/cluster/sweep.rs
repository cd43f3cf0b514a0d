//! The node that writes removes old objects, and no other one does.

use std::collections::BTreeSet;
use std::sync::Arc;

use tallyring_archive::{Manifest, Swept, manifest, names};
use tallyring_realtime::{Batch, Follower, Store};
use tallyring_records::Increment;

use super::stand::{START, Stand, commit, compare, follow, take_over};

const HOUR: i64 = 3_600;

/// Lets time pass on all clocks.
fn pass(stand: &Stand, now: &mut i64, seconds: i64) {
    *now += seconds;
    stand.clock.pass(seconds * 1_000);
    stand.objects.set_now_ms(*now * 1_000);
}

/// Counts one click with an id, and writes it to files.
fn count_and_flush(store: &Store, id: &str, now: i64) {
    let increment = Increment {
        id: Some(id.into()),
        ..Increment::new(now, 1, [("l", id)])
    };
    let batch = Batch {
        increments: vec![increment],
        ..Batch::default()
    };
    commit(store, batch).expect("counted");
    store.ledger().flush().expect("flushed");
}

/// A store with objects that no manifest names, and that have been there for more than a day.
fn aged(stand: &mut Stand, node: usize) -> (Arc<Store>, Vec<String>, i64) {
    let mut now = START;
    stand.objects.set_now_ms(now * 1_000);
    let store = stand.writer(node);
    let mut ids = Vec::new();
    for hours in (0..20).map(|_| 0).chain([30, 0]) {
        pass(stand, &mut now, hours * HOUR + 1);
        store.intake().tick().expect("turned");
        ids.push(format!("id {}", ids.len()));
        count_and_flush(&store, &ids[ids.len() - 1], now);
    }
    (store, ids, now)
}

fn sweep(store: &Store) {
    while store.ledger().sweep().expect("swept") {}
}

/// The objects of sorted files: all of them, and those that no manifest names.
fn objects(stand: &Stand, store: &Store) -> (BTreeSet<String>, BTreeSet<String>) {
    let keys = stand.objects.keys().into_iter();
    let all: BTreeSet<String> = keys.filter(|key| key.starts_with("blobs/")).collect();
    let blobs = store.world().blobs();
    let mut unnamed = all.clone();
    for number in manifest::numbers(&blobs).expect("manifests") {
        let manifest = Manifest::load_number(&blobs, number).expect("a manifest");
        for name in manifest.file_names() {
            let key = names::object_key(name).expect("it is shared");
            assert!(
                all.contains(&key),
                "manifest {number} names {key}, which is gone"
            );
            unnamed.remove(&key);
        }
    }
    (all, unnamed)
}

#[test]
fn the_writer_removes_old_objects_an_hour_after_it_began() {
    let mut stand = Stand::new();
    let (store, ids, mut now) = aged(&mut stand, 1);
    let (_, mut follower) = stand.follower(2);
    let (before, _) = objects(&stand, &store);
    // The first look notes that it writes.
    sweep(&store);
    for _ in 0..2 {
        pass(&stand, &mut now, HOUR / 2 - 1);
        sweep(&store);
        assert_eq!(
            store.ledger().swept(),
            Swept::default(),
            "it began a moment ago"
        );
    }
    assert_eq!(objects(&stand, &store).0, before);
    pass(&stand, &mut now, 2);
    sweep(&store);
    let swept = store.ledger().swept();
    let (after, unnamed) = objects(&stand, &store);
    assert_eq!(unnamed, BTreeSet::new());
    assert_eq!(swept.objects, (before.len() - after.len()) as u64);
    assert!(
        swept.objects > 5 && swept.bytes > swept.objects,
        "{swept:?}"
    );
    assert!(
        swept.manifests > 5 && swept.restored + swept.gone == 0,
        "{swept:?}"
    );
    sweep(&store);
    assert_eq!(store.ledger().swept(), swept, "the next one is in an hour");

    follow(&mut follower);
    compare(&store, follower.store(), now, &ids);
    let (_, third) = stand.follower(3);
    compare(&store, third.store(), now, &ids);
}

#[test]
fn a_deposed_writer_removes_nothing_and_the_next_one_goes_on() {
    // It is deposed before each of its turns.
    let mut removed_all = false;
    for turns in 0..40 {
        let mut stand = Stand::new();
        let (old, ids, mut now) = aged(&mut stand, 1);
        let (_, follower) = stand.follower(2);
        assert!(!old.ledger().sweep().expect("noted"));
        pass(&stand, &mut now, HOUR);
        removed_all = !(0..turns).all(|_| old.ledger().sweep().expect("swept"));
        let new = take_over(follower, stand.owner());
        let (before, swept) = (objects(&stand, &old).0, old.ledger().swept());
        while let Ok(true) = old.ledger().sweep() {}
        assert_eq!(objects(&stand, &old).0, before, "{turns} turns");
        assert_eq!(old.ledger().swept(), swept, "{turns} turns");
        let mut follower = Follower::step_down(old).expect("it wrote");
        assert!(!follower.store().ledger().sweep().expect("it only follows"));

        sweep(&new);
        pass(&stand, &mut now, HOUR);
        sweep(&new);
        let (after, unnamed) = objects(&stand, &new);
        assert_eq!(unnamed, BTreeSet::new());
        let by_both = swept.objects + new.ledger().swept().objects;
        assert!(by_both > 5 && before.len() >= after.len(), "{by_both}");
        follow(&mut follower);
        compare(&new, follower.store(), now, &ids);
        if removed_all {
            break;
        }
    }
    assert!(removed_all, "a sweep takes less than 40 turns");
}

#[test]
fn an_object_that_another_node_removes_late_is_put_back_before_or_after_its_name() {
    let begin = || {
        let mut stand = Stand::new();
        stand.objects.set_now_ms(START * 1_000);
        let store = stand.writer(1);
        sweep(&store);
        (stand, store)
    };
    let (stand, store) = begin();
    let calls = stand.objects.calls();
    count_and_flush(&store, "a", START);
    let calls = stand.objects.calls() - calls;
    let made = objects(&stand, &store).0;
    assert!(made.len() > 1 && calls > 5, "{made:?}, {calls} calls");
    let (mut before, mut after) = (0, 0);
    for (key, call) in made
        .iter()
        .flat_map(|key| (1..=calls).map(move |n| (key, n)))
    {
        let (stand, store) = begin();
        stand.objects.remove_late(key, call);
        count_and_flush(&store, "a", START);
        let is_gone = !stand.objects.keys().contains(key);
        match is_gone {
            true => after += 1,
            false => before += 1,
        }
        let mut now = START;
        pass(&stand, &mut now, HOUR);
        sweep(&store);
        assert_eq!(
            store.ledger().swept().restored,
            u64::from(is_gone),
            "call {call}"
        );
        assert_eq!(objects(&stand, &store), (made.clone(), BTreeSet::new()));
        let (_, second) = stand.follower(2);
        compare(&store, second.store(), now, &["a".into()]);
    }
    assert!(before > 5 && after > 0, "{before} before, {after} after");
}
