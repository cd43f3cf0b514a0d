//! Rankings over more keys than are summed at a time, some of which have more than a line in a file.

use std::fmt::Write as _;
use std::path::Path;
use std::sync::Arc;

use tallyring_archive::{Blobs, KeepDays, OsDisk, Staged};
use tallyring_realtime::{Batch, Options, Store, long_keys_of};
use tallyring_rebuild::load::{LoadError, LoadOptions, MEMORY_MIN, load};
use tallyring_rebuild::{BuildOptions, build};
use tallyring_records::{Day, Increment, Schema};
use tallyring_tests::model::{ManualClock, world};

/// 2012-03-16T12:00:00Z.
const NOW_MS: i64 = 1_331_899_200_000;
/// 2010-01-01T00:00:00Z.
const YEAR: i64 = 1_262_304_000;
const HOURS: i64 = 365 * 24;
/// Keys that are summed at a time, of the files of four shards; a fifth part is of the file of today.
const ONCE: usize = 80_000;
const HEAVY: usize = 100;
const LOAD: &str = "0123456789abcdef";

/// Light keys with one click each, up to where files are read at once, and behind them heavy ones with a click in every
/// hour.
fn history() -> String {
    let mut rows = String::from("namespace,key,hour,count\n");
    for light in 0..ONCE - 2 * HEAVY {
        let _ = writeln!(rows, "d,a{light:06},{YEAR},1");
    }
    for heavy in 0..HEAVY {
        for hour in 0..HOURS {
            let _ = writeln!(
                rows,
                "d,m{heavy:03},{},{}",
                YEAR + hour * 3_600,
                10 + heavy % 90
            );
        }
    }
    rows
}

/// A store whose archive has the history, and a key in memory behind all of it.
fn stand(directory: &Path) -> Store {
    let disk = OsDisk::new(directory).expect("a disk");
    let blobs = Blobs::new(Arc::new(disk.clone()));
    let world = world(disk.clone(), Arc::new(ManualClock::new(NOW_MS, true)));
    let schema = Schema::default_clicks();
    let (store, _) = Store::open(world, Options::default(), schema.clone()).expect("open");
    let click = Increment::new(
        store.world().clock.now_ms() / 1_000,
        1,
        [("d", "z".to_owned())],
    );
    let batch = Batch {
        increments: vec![click],
        ..Batch::default()
    };
    store
        .intake()
        .commit(vec![batch])
        .remove(0)
        .expect("counted");
    let file = directory.join("history.csv");
    std::fs::write(&file, history()).expect("written");
    let options = LoadOptions {
        id: LOAD,
        schema: &schema,
        keys: &long_keys_of(&blobs).expect("keys"),
        today: Day::of(NOW_MS / 1_000),
        latest: i64::MAX,
        shards: 4,
        level: 1,
        memory: MEMORY_MIN,
        fill: false,
    };
    let stop = |row| Err(LoadError::Row(row));
    let loaded = load(&blobs, &[file], options, &stop, &|_| {}).expect("loaded");
    let staged = Staged {
        load: LOAD.to_owned(),
        store_id: store.manifest().store_id.clone(),
        rows: loaded.rows,
        runs: loaded.runs,
    };
    staged.write(&blobs).expect("staged");
    store
        .ledger()
        .adopt("history", LOAD, false)
        .expect("adopted");
    let manifest = store.ledger().cut().expect("cut");
    let options = BuildOptions {
        breakdown_hours: 3,
        shards: 4,
        level: 1,
        keep: KeepDays::default(),
    };
    let built = build(&blobs, &manifest, options, &|_, _| {}).expect("built");
    store
        .ledger()
        .publish(&built.expect("something to build"))
        .expect("published");
    store
}

#[test]
fn a_key_of_several_lines_counts_once_wherever_a_chunk_ends() {
    let directory = tempfile::tempdir().expect("a directory");
    let store = stand(directory.path());
    let range = YEAR..NOW_MS / 1_000 + 3_600;
    let ranking = store
        .view()
        .top("d", range.clone(), false, HEAVY, None)
        .expect("top");
    let heaviest = |rank: usize| (10 + (89 - rank as u64)) * HOURS as u64;
    assert_eq!(ranking.keys[0].key, "m089");
    for (rank, key) in ranking.keys.iter().take(80).enumerate() {
        assert_eq!(
            (&*key.key, key.count),
            (&*format!("m{:03}", 89 - rank), heaviest(rank))
        );
    }
    let all: u64 = (0..HEAVY as u64)
        .map(|heavy| (10 + heavy % 90) * HOURS as u64)
        .sum();
    let light = (ONCE - 2 * HEAVY) as u64;
    assert_eq!(ranking.total, all + light + 1);
    let totals = store
        .view()
        .totals("d", range, false, None)
        .expect("totals")
        .totals;
    assert_eq!(
        totals.iter().map(|(_, count)| count).sum::<u64>(),
        ranking.total
    );
}

/// Counts a click of each key at `at`.
fn click(store: &Store, at: i64, keys: &[String]) {
    let increments = keys
        .iter()
        .map(|key| Increment::new(at, 1, [("l", key.clone())]));
    let batch = Batch {
        increments: increments.collect(),
        ..Batch::default()
    };
    store
        .intake()
        .commit(vec![batch])
        .remove(0)
        .expect("counted");
}

#[test]
fn keys_with_equal_counts_are_ranked_by_their_texts_long_ones_too() {
    let directory = tempfile::tempdir().expect("a directory");
    let disk = OsDisk::new(directory.path()).expect("a disk");
    let world = world(disk, Arc::new(ManualClock::new(NOW_MS, true)));
    let (store, _) =
        Store::open(world, Options::default(), Schema::default_clicks()).expect("open");
    // Every second key is long, and stored as a hash.
    let key = |number: usize| match number % 2 {
        0 => format!("k{number:03}"),
        _ => format!("k{number:03} is a key that is stored as a hash"),
    };
    let keys: Vec<String> = (0..60).map(key).collect();
    let now = NOW_MS / 1_000;
    for is_flushed in [false, true] {
        click(&store, now, &keys);
        if is_flushed {
            store.ledger().flush().expect("flushed");
        }
        for limit in [1, 7, 40, 59] {
            // Whole hours of today are ranked from memory, where the limit allows it; the other range is read.
            for range in [now..now + 3_600, now - 60..now + 3_600] {
                let view = store.view();
                let ranking = view.top("l", range, false, limit, None).expect("top");
                let listed: Vec<&String> = ranking.keys.iter().map(|top| &top.key).collect();
                assert_eq!(listed, keys[..limit].iter().collect::<Vec<_>>());
            }
        }
    }
}
