//! Identities: ids, producers and keys of batches count once for each identity that sends them, over flushes, restarts
//! and a recount. Ids from before there were identities are known to all of them.

use std::sync::Arc;

use tallyring_realtime::{
    Accepted, Batch, BatchKey, IdHistory, Options, Recount, Refusal, RefusedItem, Store,
};
use tallyring_records::{Increment, Origin, Record, Schema, Text};
use tallyring_tests::answers;
use tallyring_tests::model::{ManualClock, world};
use tallyring_tests::sim_disk::SimDisk;

/// 2012-03-16T00:00:00Z.
const START_MS: i64 = 1_331_856_000_000;
const HOUR_MS: i64 = 3_600_000;

/// A store that can be opened again.
struct Stand {
    disk: SimDisk,
    clock: Arc<ManualClock>,
    store: Store,
}

fn open(disk: &SimDisk, clock: &Arc<ManualClock>) -> Store {
    let world = world(disk.clone(), Arc::clone(clock) as _);
    let opened = Store::open(world, Options::default(), Schema::default_clicks());
    opened.expect("open").0
}

fn click() -> Increment {
    Increment::new(START_MS / 1_000, 1, [("l", "a")])
}

fn with_id(id: &str) -> Increment {
    Increment {
        id: Some(id.into()),
        ..click()
    }
}

fn numbered(sequence: u64) -> Increment {
    let origin = Origin {
        producer: "p".into(),
        epoch: 0,
        sequence,
    };
    Increment {
        origin: Some(Box::new(origin)),
        ..click()
    }
}

fn name(identity: &str) -> Option<Text> {
    (!identity.is_empty()).then(|| identity.into())
}

impl Stand {
    fn new() -> Self {
        let disk = SimDisk::default();
        let clock = Arc::new(ManualClock::new(START_MS, true));
        let store = open(&disk, &clock);
        Self { disk, clock, store }
    }

    /// An identity sends increments; an empty one is none.
    fn send(&self, identity: &str, increments: Vec<Increment>) -> Result<Accepted, Refusal> {
        let batch = Batch {
            increments,
            identity: name(identity),
            ..Batch::default()
        };
        self.store.intake().commit(vec![batch]).remove(0)
    }

    /// True when the id counts.
    fn counts(&self, identity: &str, id: &str) -> bool {
        let accepted = self.send(identity, vec![with_id(id)]).expect("taken");
        accepted.accepted == 1
    }

    /// True when the number counts.
    fn counts_number(&self, identity: &str, sequence: u64) -> Result<bool, Refusal> {
        let accepted = self.send(identity, vec![numbered(sequence)])?;
        Ok(accepted.accepted == 1)
    }

    /// The answer to a batch of `n` clicks with this key.
    fn keyed(&self, identity: &str, text: &str, n: u8) -> Result<u64, Refusal> {
        let batch = Batch {
            increments: (0..n).map(|_| click()).collect(),
            identity: name(identity),
            key: Some(BatchKey {
                text: text.into(),
                body: n.into(),
            }),
            ..Batch::default()
        };
        let accepted = self.store.intake().commit(vec![batch]).remove(0)?;
        Ok(accepted.accepted)
    }

    fn history(&self, identity: &str, id: &str) -> IdHistory {
        let history = self.store.intake().id_history(name(identity).as_ref(), id);
        history.expect("a history")
    }

    fn flush(&self) {
        self.store.ledger().flush().expect("flush");
    }

    fn reopened(self) -> Self {
        let Self { disk, clock, store } = self;
        drop(store);
        let store = open(&disk, &clock);
        Self { disk, clock, store }
    }

    /// Counts all of the log again.
    fn recounted(self) -> Self {
        let Self { disk, clock, store } = self;
        let shards = store.options().shards;
        drop(store);
        let blobs = disk.blobs();
        let recount = Recount::plan(&blobs, None, &Schema::default_clicks(), shards);
        let recount = recount.expect("a plan");
        recount.manifest.commit(&blobs).expect("committed");
        let store = open(&disk, &clock);
        Self { disk, clock, store }
    }

    /// Sums of all clicks.
    fn total(&self) -> u64 {
        answers::total(&self.store, "l", "a")
    }
}

/// The ways in which a store comes to the same state again.
const AGAIN: [fn(Stand) -> Stand; 5] = [
    |stand| stand,
    Stand::reopened,
    |stand| {
        stand.flush();
        stand
    },
    Stand::reopened,
    Stand::recounted,
];

#[test]
fn an_id_counts_once_for_each_identity() {
    let mut stand = Stand::new();
    for identity in ["", "a", "b", "installation"] {
        // The last one came before there were identities.
        let id = if identity.is_empty() { "old" } else { "one" };
        assert!(stand.counts(identity, id), "{identity}");
    }
    for again in AGAIN {
        stand = again(stand);
        for identity in ["a", "b", "installation"] {
            assert!(!stand.counts(identity, "one"), "{identity}");
            assert!(!stand.counts(identity, "old"), "{identity}");
        }
        assert_eq!(stand.total(), 4);
    }
    // No text without an identity is taken for that of one.
    assert!(stand.counts("", "a\none"));
    assert!(stand.counts("", "one"));
}

#[test]
fn an_id_from_before_the_first_key_is_known_to_all_until_its_window_is_over() {
    let mut stand = Stand::new();
    assert!(stand.counts("", "old"));
    stand.clock.set(START_MS + HOUR_MS);
    assert!(stand.counts("a", "new"));
    for again in AGAIN {
        stand = again(stand);
        assert!(!stand.counts("a", "old"));
        assert!(stand.history("a", "old").counts.is_empty());
    }
    let last = START_MS + 24 * HOUR_MS;
    stand.clock.set(last);
    stand.flush();
    assert!(!stand.counts("b", "old"), "it is a day old");
    stand.clock.set(START_MS + 25 * HOUR_MS + 1_000);
    stand.flush();
    assert!(!stand.counts("a", "new"), "it is a day old");
    stand.flush();
    let manifest = stand.store.manifest();
    assert_eq!(manifest.intake.ids.unowned_until_ms, Some(0));
    stand = stand.reopened();
    assert!(stand.counts("c", "old"), "its window is over");
    assert!(!stand.counts("c", "old"));
}

#[test]
fn a_producer_has_numbers_for_each_identity_and_goes_on_with_those_from_before() {
    let mut stand = Stand::new();
    for sequence in 0..3 {
        assert_eq!(stand.counts_number("", sequence), Ok(true));
    }
    // Its numbers go on once it has a key.
    assert_eq!(stand.counts_number("a", 2), Ok(false));
    assert_eq!(stand.counts_number("a", 3), Ok(true));
    for again in AGAIN {
        stand = again(stand);
        assert_eq!(stand.counts_number("a", 3), Ok(false));
        assert_eq!(stand.counts_number("a", 0), Ok(false));
        assert!(stand.counts_number("a", 5).is_err(), "4 is missing");
        assert_eq!(stand.counts_number("b", 2), Ok(false), "as before the key");
        assert_eq!(stand.total(), 4);
    }
    // The number of one is not that of the other.
    assert_eq!(stand.counts_number("b", 3), Ok(true));
    assert_eq!(stand.counts_number("b", 4), Ok(true));
    assert_eq!(stand.counts_number("a", 4), Ok(true));
    let stand = Stand::new();
    assert_eq!(stand.counts_number("a", 7), Ok(true));
    assert_eq!(stand.counts_number("b", 100), Ok(true));
    assert_eq!(stand.counts_number("a", 8), Ok(true));
}

#[test]
fn a_key_of_a_batch_is_that_of_its_identity() {
    let mut stand = Stand::new();
    // An older build wrote the id of the API key so.
    assert_eq!(stand.keyed("", "a\nupgraded", 2), Ok(2));
    assert_eq!(stand.keyed("", "before", 3), Ok(3));
    assert_eq!(stand.keyed("a", "k", 4), Ok(4));
    assert_eq!(stand.keyed("b", "k", 5), Ok(5));
    for again in AGAIN {
        stand = again(stand);
        assert_eq!(stand.keyed("a", "k", 4), Ok(4));
        assert_eq!(stand.keyed("b", "k", 5), Ok(5));
        assert_eq!(stand.keyed("b", "k", 4), Err(Refusal::KeyReused));
        assert_eq!(stand.keyed("a", "upgraded", 2), Ok(2));
        assert_eq!(stand.keyed("a", "before", 3), Ok(3));
        assert_eq!(stand.total(), 14);
    }
    assert_eq!(stand.keyed("b", "upgraded", 2), Ok(2));
    assert_eq!(stand.keyed("b", "before", 3), Ok(3));
    assert_eq!(stand.total(), 16);
    // Another body is another sender's.
    assert_eq!(stand.keyed("b", "before", 1), Ok(1));
    assert_eq!(stand.keyed("b", "before", 3), Err(Refusal::KeyReused));
    assert_eq!(stand.total(), 17);
}

#[test]
fn one_group_with_batches_of_several_identities_counts_each_once() {
    let stand = Stand::new();
    let batch = |identity: &str, n: u8| Batch {
        increments: vec![with_id("one")],
        identity: name(identity),
        key: Some(BatchKey {
            text: "k".into(),
            body: n.into(),
        }),
        ..Batch::default()
    };
    let group = vec![
        batch("a", 1),
        batch("b", 2),
        batch("a", 1),
        batch("b", 1),
        batch("b", 2),
    ];
    let outcomes = stand.store.intake().commit(group);
    let counted = outcomes
        .into_iter()
        .map(|outcome| outcome.map(|accepted| accepted.accepted));
    let wanted = [Ok(1), Ok(1), Ok(1), Err(Refusal::KeyReused), Ok(1)];
    assert_eq!(counted.collect::<Vec<_>>(), wanted);
    assert_eq!(stand.total(), 2);
}

#[test]
fn the_history_of_an_id_is_that_of_its_identity() {
    let mut stand = Stand::new();
    assert!(stand.counts("", "old"));
    for identity in ["a", "b", "a", "b"] {
        stand.counts(identity, "one");
    }
    assert!(!stand.counts("a", "old"));
    let refused = Batch {
        identity: name("b"),
        refused: vec![RefusedItem {
            id: "wrong".into(),
            field: "n".into(),
            detail: "is 0".into(),
            namespaces: vec!["l".into()],
        }],
        ..Batch::default()
    };
    stand
        .store
        .intake()
        .commit(vec![refused])
        .remove(0)
        .expect("taken");
    for again in AGAIN {
        stand = again(stand);
        let places = ["a", "b"].map(|identity| {
            let history = stand.history(identity, "one");
            let count = history.counts.first().expect("it counted");
            let (counted, again) = (&count.logged, history.again(count));
            assert_eq!(counted.record.identity(), name(identity).as_ref());
            let again = &again.expect("it came again").record;
            assert_eq!(again.identity(), name(identity).as_ref());
            let of = counted.offset.sequence;
            assert!(matches!(again, Record::Duplicate { of: found, .. } if *found == of));
            of
        });
        assert_ne!(places[0], places[1]);
        assert!(stand.history("b", "wrong").refused.is_some());
        for (identity, id) in [("", "one"), ("c", "one"), ("a", "wrong"), ("b", "old")] {
            assert!(stand.history(identity, id).is_empty(), "{identity} {id}");
        }
        let old = stand.history("a", "old").and(stand.history("", "old"));
        let count = old.counts.first().expect("it counted");
        assert!(old.again(count).is_some(), "it came again");
    }
}
