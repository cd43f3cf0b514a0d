//! Counts and users of one view: a read has nothing of a click that is counted, flushed or published while it goes on.

use std::collections::BTreeMap;
use std::sync::Arc;

use tallyring_realtime::{Batch, Options, Read, Store, UsersView};
use tallyring_records::{Increment, Schema, TIME_MAX, TIME_MIN};
use tallyring_tests::model::{ManualClock, world};
use tallyring_tests::sim_disk::SimDisk;

/// 2012-03-16T18:00:00Z.
const NOW: i64 = 1_331_920_800;
const HOUR: i64 = 3_600;

fn open() -> Store {
    let world = world(
        SimDisk::default(),
        Arc::new(ManualClock::new(NOW * 1_000, true)),
    );
    let mut schema = Schema::default_clicks();
    schema.namespaces[0].uniques = true;
    let (store, _) = Store::open(world, Options::default(), schema).expect("open");
    store
}

/// Counts a click of each of these users at `at`.
fn count(store: &Store, at: i64, users: std::ops::Range<u32>) {
    let increment = |user: u32| Increment {
        user: Some(format!("user {user}")),
        ..Increment::new(at, 1, [("l", "a")])
    };
    let batch = Batch {
        increments: users.map(increment).collect(),
        ..Batch::default()
    };
    for outcome in store.intake().commit(vec![batch]) {
        outcome.expect("counted");
    }
}

fn view(store: &Store) -> UsersView<'_> {
    let read = Read {
        namespace: "l".into(),
        key: "a".into(),
        subtotal: None,
        from: TIME_MIN,
        to: TIME_MAX,
        rolled: None,
    };
    store.view().users(read, None).expect("a view")
}

/// By hour: what was counted, and how many users.
fn found(view: &UsersView<'_>) -> BTreeMap<i64, (u64, u64)> {
    let hour = |start: i64| usize::try_from(start / HOUR).ok();
    let all = TIME_MIN..TIME_MAX;
    let users = view.unite(&all, hour).expect("users");
    let counts = view.series.totals.iter();
    let of = |start: i64| users.get(&hour(start).expect("a time")).expect("users");
    let rows = counts.map(|(code, count)| (code.start(), (count, of(code.start()).estimate())));
    let rows: BTreeMap<_, _> = rows.collect();
    assert_eq!(rows.len(), users.len(), "users of nothing that was counted");
    for (&start, &(_, estimate)) in &rows {
        let alone = view.unite(&(start..start + HOUR), hour);
        let alone = alone.expect("users").into_values();
        let alone: Vec<u64> = alone.map(|users| users.estimate()).collect();
        assert_eq!(alone, [estimate], "the users of one hour");
    }
    rows
}

#[test]
fn users_are_those_of_the_counts_whatever_comes_between() {
    let store = open();
    count(&store, NOW - HOUR, 0..20);
    store.ledger().flush().expect("flush");
    count(&store, NOW - HOUR, 20..30);
    let before = view(&store);
    // Other users of a counted hour, and an hour more: in memory, then in a run.
    count(&store, NOW - HOUR, 100..150);
    count(&store, NOW, 0..5);
    let expected = BTreeMap::from([(NOW - HOUR, (30, 30))]);
    assert_eq!(found(&before), expected);
    store.ledger().flush().expect("flush");
    assert_eq!(found(&before), expected, "the runs of the view");
    let after = BTreeMap::from([(NOW - HOUR, (80, 80)), (NOW, (5, 5))]);
    assert_eq!(found(&view(&store)), after);
}
