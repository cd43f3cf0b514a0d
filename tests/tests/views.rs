//! A view never changes, however long it is held and whatever is counted, folded and flushed meanwhile. A view that is
//! held holds up nothing.

use std::sync::Arc;

use tallyring_realtime::{Batch, Options, Read, Store, View};
use tallyring_records::{Increment, Schema, TIME_MAX, TIME_MIN};
use tallyring_tests::model::{ManualClock, world};
use tallyring_tests::sim_disk::SimDisk;

/// 2012-03-16T18:00:00Z.
const NOW: i64 = 1_331_920_800;

fn open() -> Store {
    let clock = Arc::new(ManualClock::new(NOW * 1_000, true));
    let world = world(SimDisk::default(), clock);
    let opened = Store::open(world, Options::default(), Schema::default_clicks());
    opened.expect("open").0
}

/// Counts so many clicks, each with a referrer of its own.
fn count(store: &Store, clicks: std::ops::Range<u64>) {
    let click = |number: u64| Increment {
        by: vec![(
            "r".into(),
            format!("https://{number}.example/a/path").into(),
        )],
        ..Increment::new(
            NOW,
            1,
            [("l", "a"), ("u", &*format!("user {}", number % 50))],
        )
    };
    let batch = Batch {
        increments: clicks.map(click).collect(),
        ..Batch::default()
    };
    for outcome in store.intake().commit(vec![batch]) {
        outcome.expect("counted");
    }
}

/// Total, sum of all referrers, how many there are; and the sum of all keys of the other namespace.
fn seen(reader: &View<'_>) -> [u64; 4] {
    let read = Read {
        namespace: "l".into(),
        key: "a".into(),
        subtotal: Some("r".into()),
        from: TIME_MIN,
        to: TIME_MAX,
        rolled: Some(TIME_MIN..TIME_MAX),
    };
    let series = reader.read(&read, None).expect("a read");
    for value in &series.values {
        let text = reader.expand(&series, value).expect("a text").concat();
        assert!(text.starts_with("https://"), "{text}");
    }
    let ranking = reader.top("u", TIME_MIN..TIME_MAX, false, (100, true), None);
    [
        series.totals.sum(),
        series.sums.iter().sum(),
        series.values.len() as u64,
        ranking.expect("a ranking").total,
    ]
}

#[test]
fn views_that_are_held_stay_as_they_are_while_more_is_counted_folded_and_flushed() {
    let store = open();
    let mut counted = 0;
    let mut held = Vec::new();
    // Small groups, which are counted under the lock, and large ones, which are counted apart.
    for round in 0..60 {
        let more = if round % 3 == 0 { 300 } else { 1 + round % 7 };
        count(&store, counted..counted + more);
        counted += more;
        held.push((store.view(), counted));
        store.live().fold();
        if round == 40 {
            store.ledger().flush().expect("flushed");
        }
    }
    for (reader, expected) in &held {
        assert_eq!(seen(reader), [*expected; 4]);
    }
    assert!(!store.live().fold(), "views hold every layer");
    // In an order of their own.
    while held.len() > 1 {
        let (reader, expected) = held.swap_remove(held.len() / 3);
        assert_eq!(seen(&reader), [expected; 4]);
        drop(reader);
        store.live().fold();
    }
    held.clear();
    assert!(store.live().fold(), "nothing is held any more");
    assert_eq!(seen(&store.view()), [counted; 4]);
    store.ledger().flush().expect("flushed");
    assert_eq!(seen(&store.view()), [counted; 4]);
}
