//! Several strands as one store: increments, people and what an operator orders are divided among three stores, of
//! which the first gets all datasets, and one more gets all of it. A view over the three answers every question as a
//! view of the one does.
//!
//! `TALLYRING_SEED=n` replays one life, `TALLYRING_SEEDS=n` runs that many.

mod answers;
mod consumer;
mod found_keys;
mod life;
mod rankings;

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use life::{Life, START};
use tallyring_realtime::{Batch, Options, Service, Store, Strands};
use tallyring_records::{Increment, TIME_MAX, TIME_MIN};
use tallyring_tests::model::{ManualClock, schema_without_lists, world};
use tallyring_tests::sim_disk::SimDisk;

const SEEDS: u64 = 8;
const STEPS: u64 = 60;

#[test]
fn strands_answer_as_one_store_that_got_everything() {
    let one = setting("TALLYRING_SEED");
    let seeds = one.map_or(1..=setting("TALLYRING_SEEDS").unwrap_or(SEEDS), |seed| {
        seed..=seed
    });
    let mut done = BTreeMap::new();
    for seed in seeds {
        let mut life = Life::new(seed);
        let lived = catch_unwind(AssertUnwindSafe(|| life.live(STEPS)));
        assert!(lived.is_ok(), "seed {seed}:\n{}", life.steps.join("\n"));
        for (kind, times) in life.done {
            *done.entry(kind).or_insert(0) += times;
        }
    }
    // A test that never gets anywhere would pass too.
    let is_much = done.len() == 10 && done.values().all(|&times| times >= SEEDS);
    assert!(one.is_some() || is_much, "{done:?}");
}

#[test]
fn seconds_arrivals_and_views_are_those_of_all_strands() {
    let clock = Arc::new(ManualClock::new(START * 1_000, true));
    let service = |_| {
        let world = world(SimDisk::default(), Arc::clone(&clock) as _);
        let opened = Store::open(world, Options::default(), schema_without_lists(2));
        let store = Arc::new(opened.expect("open").0);
        Arc::new(Service::start(store).expect("threads"))
    };
    let strands = Strands::new((0..3).map(service).collect());
    clock.pass(90_000);
    let now = START + 90;
    for (number, service) in strands.services().iter().enumerate() {
        let batch = |at, n| Batch {
            increments: vec![Increment::new(at, n, [("q", "a")])],
            ..Batch::default()
        };
        let batches = vec![batch(now, 1 << number), batch(now - 2, 8)];
        for outcome in service.store().intake().commit(batches) {
            outcome.expect("counted");
        }
    }
    let stores = strands.stores();
    let seconds = stores.last_seconds("q", "a", 3, now);
    assert_eq!((seconds.counts, seconds.complete), (vec![24, 0, 7], true));
    assert_eq!(stores.arrivals(now + 1)[59], 31);
    let view = stores.view();
    let totals = view.totals("q", TIME_MIN..TIME_MAX, false, None);
    assert_eq!(totals.expect("totals").totals.sum(), 31);
    let declared = view.schema().namespace("q").expect("declared");
    let reader = stores.closed(&view, declared, now);
    let cursor = reader.begin(Some(now - 600));
    assert!(reader.has_more(&cursor) && !reader.is_ahead(&cursor));
}

#[test]
#[should_panic(expected = "BUG: a store has a strand")]
fn a_store_without_a_strand_is_a_bug() {
    drop(Strands::new(Vec::new()));
}

fn setting(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    Some(
        text.parse()
            .unwrap_or_else(|_| panic!("{name} is a number")),
    )
}
