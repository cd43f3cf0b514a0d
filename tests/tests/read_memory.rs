//! The budget of reads counts what the allocator sees: at the worst moment of every kind of read it holds at least four
//! fifths of the bytes that the read has allocated and not freed.

use std::alloc::{GlobalAlloc, Layout, System};
use std::fmt::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};

use axum::body::Body;
use axum::http::Request;
use serde_json::json;
use tallyring_api::{App, ask};
use tallyring_realtime::{Batch, Options, Service, Store};
use tallyring_records::{Increment, Schema};
use tallyring_tests::api;
use tallyring_tests::model::{ManualClock, world};
use tallyring_tests::sim_disk::SimDisk;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

static LIVE: AtomicUsize = AtomicUsize::new(0);
static MOST: AtomicUsize = AtomicUsize::new(0);

/// Counts the bytes that are allocated.
struct Counting;

// SAFETY: every call goes to the system's allocator as it came.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let live = LIVE.fetch_add(layout.size(), Relaxed) + layout.size();
        MOST.fetch_max(live, Relaxed);
        // SAFETY: as the caller promises.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        LIVE.fetch_sub(layout.size(), Relaxed);
        // SAFETY: as the caller promises.
        unsafe { System.dealloc(memory, layout) }
    }
}

/// 2012-03-16T18:00:00Z.
const NOW: i64 = 1_331_920_800;
const HOUR: i64 = 3_600;

/// Referrers of the key `hot` in every hour of a day.
const REFERRERS: usize = 5_000;
/// Keys that are counted once.
const KEYS: usize = 60_000;

fn stand() -> (Arc<Store>, Arc<App>) {
    let clock = Arc::new(ManualClock::new(NOW * 1_000, true));
    let mut schema = Schema::default_clicks();
    for namespace in &mut schema.namespaces {
        namespace.minutes = true;
        namespace.uniques = true;
    }
    let options = Options {
        cache_bytes: 64 << 20,
        // This disk is in memory, too, and a segment is made ahead.
        segment_bytes: 1 << 20,
        ..Options::default()
    };
    let (store, _) = Store::open(world(SimDisk::default(), clock), options, schema).expect("open");
    let store = Arc::new(store);
    for part in 0..2 {
        let hot = (0..24 * REFERRERS).filter(|number| number % 2 == part);
        let hot = hot.map(|number| {
            let at = NOW - HOUR * (number / REFERRERS) as i64 + (number % 60) as i64 * 60;
            Increment {
                by: vec![
                    ("c".into(), format!("{:02}", number % 90).into()),
                    (
                        "r".into(),
                        format!("https://{}.example/", number % REFERRERS).into(),
                    ),
                ],
                user: Some(format!("user {number}")),
                ..Increment::new(at.min(NOW), 1, [("l", "hot")])
            }
        });
        let once = (0..KEYS).filter(|number| number % 2 == part);
        let once = once.map(|number| {
            let at = NOW - 60 * (number % 1_440) as i64;
            let key = format!("a key of its own {number}");
            Increment::new(at, 1, [("l", key), ("u", "jo".to_owned())])
        });
        let increments: Vec<Increment> = hot.chain(once).collect();
        for increments in increments.chunks(10_000) {
            let batch = Batch {
                increments: increments.to_vec(),
                ..Batch::default()
            };
            for outcome in store.intake().commit(vec![batch]) {
                outcome.expect("counted");
            }
        }
        if part == 0 {
            store.ledger().flush().expect("flushed");
        }
    }
    while !store.live().fold() {}
    // Its threads would take memory for both while reads are measured, and on a busy machine during all of them.
    let stop = AtomicBool::new(false);
    store.live().learn_heavy_keys(&stop).expect("learned");
    while let Some(first) = store.ledger().to_pack(0).expect("a log") {
        store.ledger().pack(first, &stop).expect("packed");
    }
    let state = api::state(Arc::new(
        Service::start(Arc::clone(&store)).expect("threads"),
    ));
    (store, Arc::new(App::new(state)))
}

fn queries(many: usize, query: impl Fn(usize) -> serde_json::Value) -> (String, Option<String>) {
    let queries: Vec<_> = (0..many).map(query).collect();
    let body = json!({ "queries": queries }).to_string();
    ("/v1/query".into(), Some(body))
}

/// Paths, and the bodies of those that are posted.
fn shapes() -> Vec<(String, Option<String>)> {
    let mut shapes: Vec<(String, Option<String>)> = [
        "/v1/l/hot/counts?units=30",
        "/v1/l/hot/counts?unit=hour&units=2000",
        "/v1/l/hot/counts?unit=minute&units=1440",
        "/v1/l/hot/counts?units=-1",
        "/v1/l/hot/counts.csv?unit=hour&units=2000",
        "/v1/l/hot/counts.svg?unit=hour&units=72&compare=before",
        "/v1/l/hot/summary?unit=hour&units=10000",
        "/v1/l/hot/by/c?units=7",
        "/v1/l/hot/by/r?units=7",
        "/v1/l/hot/by/r?units=7&limit=10000",
        "/v1/l/hot/by/r?unit=hour&units=48&rollup=false",
        "/v1/l/hot/by/r?unit=hour&units=10&rollup=false&limit=10000",
        "/v1/l/hot/by/r.csv?unit=hour&units=3",
        "/v1/l/hot/by/r.svg?units=7",
        "/v1/l/hot/by/r?unit=minute&units=150",
        "/v1/l/hot/by/c?unit=minute&units=150&rollup=false&limit=100",
        "/v1/l/hot/uniques?unit=hour&units=48",
        "/v1/l/hot/uniques?unit=minute&units=150",
        "/v1/l/top?units=1",
        "/v1/l/top?units=-1&limit=10000",
        "/v1/l/top.csv?units=-1",
        "/v1/l/top?unit=minute&units=77&limit=100",
        "/v1/l/counts?unit=hour&units=100",
        "/v1/l/counts?unit=minute&units=1440",
        "/v3/link/referrers?link=http://bit.ly/hot&unit=day&units=7",
    ]
    .map(|path| (path.to_owned(), None))
    .into();
    shapes.push(queries(
        1_000,
        |key| json!({"namespace": "l", "key": format!("a key of its own {key}"), "units": 30}),
    ));
    shapes.push(queries(
        500,
        |_| json!({"namespace": "l", "key": "hot", "by": "r", "units": 7}),
    ));
    shapes.push(queries(16, |of| {
        let units = 24 + of;
        json!({"namespace": "l", "key": "hot", "by": "r", "unit": "hour", "units": units, "rollup": false})
    }));
    shapes
}

#[test]
fn every_kind_of_read_is_charged_for_what_it_allocates() {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .expect("a runtime");
    let _guard = runtime.enter();
    let (store, app) = stand();
    let budget = Arc::clone(store.read_budget());
    let mut wrong = String::new();
    let shapes = shapes();
    assert!(shapes.len() >= 20);
    for (path, body) in shapes {
        let request = || {
            let method = if body.is_some() { "POST" } else { "GET" };
            let request = Request::builder().method(method).uri(&path);
            let request = request.header("content-type", "application/json");
            let body = body.clone().map_or(Body::empty(), Body::from);
            request.body(body).expect("a request")
        };
        // Blocks, zones and tables that stay are made by the first.
        let (status, _) = runtime.block_on(ask(&app, request())).expect("an answer");
        assert_eq!(status, 200, "{path}");
        // The store's own threads allocate now and then.
        let (live, charged) = (0..3)
            .map(|_| {
                let request = request();
                budget.take_most();
                let before = LIVE.load(Relaxed);
                MOST.store(before, Relaxed);
                runtime.block_on(ask(&app, request)).expect("an answer");
                (MOST.load(Relaxed) - before, budget.take_most())
            })
            .min()
            .expect("three");
        if 5 * charged < 4 * live {
            writeln!(wrong, "{path}: {live} bytes were live, {charged} charged").expect("text");
        }
    }
    assert!(wrong.is_empty(), "{wrong}");
    assert_eq!(budget.held(), 0, "what was held is given back");
}
