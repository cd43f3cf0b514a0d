//! Rankings and sums of all keys: over more keys than are summed at a time, and from what files keep of their keys.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use tallyring_archive::{Blobs, KeepDays, OsDisk, Staged};
use tallyring_realtime::{Batch, Options, Store, long_keys_of};
use tallyring_rebuild::load::{LoadError, LoadOptions, MEMORY_MIN, load};
use tallyring_rebuild::{BuildOptions, REWRITE_BYTES_MIN, build};
use tallyring_records::{Day, Increment, Schema};
use tallyring_tests::model::{Chance, ManualClock, world};

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

/// A store whose archive has the history.
fn stand(directory: &Path, history: String, options: Options) -> Store {
    let disk = OsDisk::new(directory).expect("a disk");
    let blobs = Blobs::new(Arc::new(disk.clone()));
    let world = world(disk.clone(), Arc::new(ManualClock::new(NOW_MS, true)));
    let schema = Schema::default_clicks();
    let (store, _) = Store::open(world, options, schema.clone()).expect("open");
    let file = directory.join("history.csv");
    std::fs::write(&file, history).expect("written");
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
        preset: None,
    };
    let stop = |row| Err(LoadError::Row(row));
    let loaded = load(&blobs, &[file], options, &stop, &|_| {}).expect("loaded");
    let staged = Staged {
        load: LOAD.to_owned(),
        store_id: store.manifest().store_id.clone(),
        rows: loaded.rows,
        is_final: false,
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
        rewrite_bytes_min: REWRITE_BYTES_MIN,
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
    let store = stand(directory.path(), history(), Options::default());
    // A key in memory stands behind all others.
    commit(
        &store,
        vec![Increment::new(NOW_MS / 1_000, 1, [("d", "z")])],
    );
    let range = YEAR..NOW_MS / 1_000 + 3_600;
    let ranking = store
        .view()
        .top("d", range.clone(), false, (HEAVY, false), None)
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
    let series = store.view().totals("d", range, false, None);
    assert_eq!(series.expect("totals").totals.sum(), ranking.total);
}

/// Counts a click of each key at `at`.
fn click(store: &Store, at: i64, keys: &[String]) {
    let increments = keys
        .iter()
        .map(|key| Increment::new(at, 1, [("l", key.clone())]));
    commit(store, increments.collect());
}

fn commit(store: &Store, increments: Vec<Increment>) {
    let batch = Batch {
        increments,
        ..Batch::default()
    };
    let mut answers = store.intake().commit(vec![batch]);
    answers.remove(0).expect("counted");
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
                let ranking = view
                    .top("l", range, false, (limit, false), None)
                    .expect("top");
                let listed: Vec<&String> = ranking.keys.iter().map(|top| &top.key).collect();
                assert_eq!(listed, keys[..limit].iter().collect::<Vec<_>>());
            }
        }
    }
}

/// 2011-11-01T00:00:00Z. The year 2011 is closed, and the months of 2012 are not.
const FIRST: i64 = 1_320_105_600;
const HOUR: i64 = 3_600;

/// Counts by key and hour.
#[derive(Default)]
struct Model(BTreeMap<(String, i64), u64>);

impl Model {
    fn add(&mut self, key: &str, at: i64, count: u64) {
        let hour = at - at.rem_euclid(HOUR);
        *self.0.entry((key.to_owned(), hour)).or_default() += count;
    }

    /// All keys of a range, the heaviest first.
    fn ranking(&self, range: &Range<i64>) -> Vec<(String, u64)> {
        let mut sums: BTreeMap<&str, u64> = BTreeMap::new();
        for ((key, _), count) in self.0.iter().filter(|((_, hour), _)| range.contains(hour)) {
            *sums.entry(key).or_default() += count;
        }
        let sums = sums.into_iter();
        let mut ranking: Vec<_> = sums.map(|(key, sum)| (key.to_owned(), sum)).collect();
        ranking.sort_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
        ranking
    }

    fn by_hour(&self, range: &Range<i64>) -> BTreeMap<i64, u64> {
        let mut sums = BTreeMap::new();
        for ((_, hour), count) in self.0.iter().filter(|((_, hour), _)| range.contains(hour)) {
            *sums.entry(*hour).or_default() += count;
        }
        sums
    }
}

/// A number from 0 to 1.
fn part(dice: &mut Chance) -> f64 {
    dice.below(1 << 53) as f64 / (1_u64 << 53) as f64
}

/// A link by its rank: links of high ranks are clicked seldom, and each for some days only.
fn link(dice: &mut Chance, hours: i64) -> (String, i64) {
    let rank = (4_000.0 * part(dice).powi(3)) as u64;
    let made = (rank * 7_919) as i64 % hours;
    let age = (600.0 * part(dice).powi(2)) as i64;
    let hour = match rank < 400 {
        true => dice.below(hours as u64) as i64,
        false => (made + age) % hours,
    };
    let name = match rank % 5 {
        0 => format!("link {rank} is stored as a hash"),
        _ => format!("k{rank}"),
    };
    (name, hour)
}

/// History of several months that files keep sums and lists of, and counts of the last days beside it: in memory, in
/// flushed runs, and late.
fn stand_with_lists(directory: &Path, dice: &mut Chance, options: Options) -> (Store, Model) {
    let today = NOW_MS / 1_000 - (NOW_MS / 1_000).rem_euclid(86_400);
    let mut model = Model::default();
    let mut rows = String::from("namespace,key,hour,count\n");
    for _ in 0..400_000 {
        let (key, hour) = link(dice, (today - 86_400 - FIRST) / HOUR);
        let (at, count) = (FIRST + hour * HOUR, 1 + dice.below(3));
        model.add(&key, at, count);
        let _ = writeln!(rows, "l,{key},{at},{count}");
    }
    let store = stand(directory, rows, options);
    for round in 0..4 {
        count_clicks(&store, &mut model, dice, 800);
        if round == 1 {
            store.ledger().flush().expect("flushed");
        }
    }
    (store, model)
}

/// Counts so many clicks, most of them of yesterday and today.
fn count_clicks(store: &Store, model: &mut Model, dice: &mut Chance, clicks: usize) {
    let today = NOW_MS / 1_000 - (NOW_MS / 1_000).rem_euclid(86_400);
    let increments = (0..clicks).map(|_| {
        let (key, _) = link(dice, 1_000);
        let at = match dice.below(10) {
            0 => FIRST + HOUR * dice.below(2_000) as i64,
            _ => today - 86_400 + HOUR * dice.below(36) as i64,
        };
        model.add(&key, at, 1);
        Increment::new(at, 1, [("l", key)])
    });
    commit(store, increments.collect());
}

/// Asks for a ranking and for the sums by hour, and compares both with all counts.
fn compare(store: &Store, model: &Model, range: &Range<i64>, limit: usize) {
    let view = store.view();
    let found = view.top("l", range.clone(), false, (limit, true), None);
    let found = found.expect("a ranking");
    let expected = model.ranking(range);
    let keys = found.keys.iter().map(|top| (top.key.clone(), top.count));
    let listed = &expected[..limit.min(expected.len())];
    assert_eq!(keys.collect::<Vec<_>>(), listed, "{limit} of {range:?}");
    let sum: u64 = expected.iter().map(|(_, count)| count).sum();
    assert_eq!(found.total, sum, "{range:?}");
    let totals = view.totals("l", range.clone(), false, None).expect("sums");
    let totals = totals
        .totals
        .iter()
        .map(|(code, count)| (code.start(), count));
    assert_eq!(totals.collect::<BTreeMap<_, _>>(), model.by_hour(range));
}

#[test]
fn rankings_and_sums_from_lists_are_those_of_all_counts() {
    let directory = tempfile::tempdir().expect("a directory");
    let mut dice = Chance::new(7);
    let (store, mut model) = stand_with_lists(directory.path(), &mut dice, Options::default());
    let learned = store.live().learn_heavy_keys(&AtomicBool::new(false));
    learned.expect("learned");
    let (now, months) = (NOW_MS / 1_000, [31 + 30, 31, 29, 15]);
    let mut starts = vec![FIRST];
    starts.extend(months.iter().scan(FIRST, |at, days| {
        *at += days * 86_400;
        Some(*at)
    }));
    for round in 0..150 {
        let mut edge = || match dice.below(5) {
            0 => starts[dice.below(starts.len() as u64) as usize],
            1 => FIRST + 86_400 * dice.below(136) as i64,
            2 => FIRST + HOUR * dice.below(136 * 24) as i64,
            _ => now - HOUR * dice.below(60) as i64,
        };
        let (one, other) = (edge(), edge());
        let range = one.min(other)..one.max(other) + HOUR;
        let limit = 1 + dice.below(60) as usize;
        compare(&store, &model, &range, limit);
        compare(&store, &model, &range, limit);
        let clicks = 1 + dice.below(300) as usize;
        count_clicks(&store, &mut model, &mut dice, clicks);
        if round % 25 == 0 {
            store.ledger().flush().expect("flushed");
        }
        compare(&store, &model, &range, limit);
    }
}

#[test]
fn a_ranking_asked_again_after_more_counts_decodes_no_block() {
    let directory = tempfile::tempdir().expect("a directory");
    let mut dice = Chance::new(9);
    // The blocks of all files take more, their lists a tenth of it.
    let options = Options {
        cache_bytes: 1 << 20,
        ..Options::default()
    };
    let (store, mut model) = stand_with_lists(directory.path(), &mut dice, options);
    let learned = store.live().learn_heavy_keys(&AtomicBool::new(false));
    learned.expect("learned");
    let now = NOW_MS / 1_000;
    let mut decoded = Vec::new();
    for _ in 0..4 {
        let before = store.live().blocks_decoded();
        compare(&store, &model, &(FIRST + 86_400 * 20..now + HOUR), 10);
        decoded.push(store.live().blocks_decoded() - before);
        click(&store, now, &["k7".to_owned()]);
        model.add("k7", now, 1);
    }
    assert!(decoded[0] > 0, "{decoded:?}");
    assert_eq!(decoded[3], 0, "{decoded:?}");
}

/// Sums by hour and value.
type ByValue = BTreeMap<(i64, String), u64>;

/// Values of a click: a country, and mostly a referrer, which is long.
fn values_of(dice: &mut Chance) -> [Option<String>; 2] {
    let referrer = dice.below(60) * dice.below(60) / 12;
    let country = format!("C{}", dice.below(6) * dice.below(6));
    let referrer = format!("http://site{referrer}.example/");
    [Some(country), (dice.below(8) > 0).then_some(referrer)]
}

/// Counts the values of a click, or that it has none.
fn note(models: &mut [ByValue; 2], at: i64, values: &[Option<String>; 2], count: u64) {
    let hour = at - at.rem_euclid(HOUR);
    for (model, value) in models.iter_mut().zip(values) {
        let value = value.clone().unwrap_or_else(|| "-".to_owned());
        *model.entry((hour, value)).or_default() += count;
    }
}

/// History of clicks with values, and counts of the last days beside it: in memory, in flushed runs, and late.
fn stand_with_values(directory: &Path, dice: &mut Chance) -> (Store, [ByValue; 2]) {
    let today = NOW_MS / 1_000 - (NOW_MS / 1_000).rem_euclid(86_400);
    let mut models = [ByValue::new(), ByValue::new()];
    let mut rows = String::from("namespace,key,hour,count,subtotal,value\n");
    for _ in 0..60_000 {
        let (key, hour) = link(dice, (today - 86_400 - FIRST) / HOUR);
        let (at, count) = (FIRST + hour * HOUR, 1 + dice.below(3));
        // History says all values or none.
        let values = values_of(dice).map(|value| value.or_else(|| Some("none".to_owned())));
        note(&mut models, at, &values, count);
        let _ = writeln!(rows, "l,{key},{at},{count},,");
        for (subtotal, value) in ["c", "r"].into_iter().zip(&values) {
            if let Some(value) = value {
                let _ = writeln!(rows, "l,{key},{at},{count},{subtotal},{value}");
            }
        }
    }
    let store = stand(directory, rows, Options::default());
    for round in 0..4 {
        let increments = (0..800).map(|_| {
            let (key, _) = link(dice, 1_000);
            let at = match dice.below(10) {
                0 => FIRST + HOUR * dice.below(2_000) as i64,
                _ => today - 86_400 + HOUR * dice.below(36) as i64,
            };
            let values = values_of(dice);
            note(&mut models, at, &values, 1);
            let mut increment = Increment::new(at, 1, [("l", key)]);
            let by = ["c", "r"].into_iter().zip(values);
            let by = by.filter_map(|(name, value)| Some((name.into(), value?.into())));
            increment.by = by.collect();
            increment
        });
        commit(&store, increments.collect());
        if round == 1 {
            store.ledger().flush().expect("flushed");
        }
    }
    (store, models)
}

#[test]
fn values_of_all_keys_together_are_those_of_all_clicks() {
    let directory = tempfile::tempdir().expect("a directory");
    let mut dice = Chance::new(11);
    let (store, models) = stand_with_values(directory.path(), &mut dice);
    let now = NOW_MS / 1_000;
    for round in 0..60 {
        let mut edge = || match round % 3 {
            0 => FIRST + 86_400 * dice.below(137) as i64,
            1 => FIRST + HOUR * dice.below(137 * 24) as i64,
            _ => now - HOUR * dice.below(60) as i64,
        };
        let (one, other) = (edge(), edge());
        let range = match round {
            0 => FIRST..now + HOUR,
            _ => one.min(other)..one.max(other) + HOUR,
        };
        let view = store.view();
        for (subtotal, model) in ["c", "r"].into_iter().zip(&models) {
            let series = view.values(("l", subtotal), range.clone(), range.clone(), None);
            let series = series.expect("values");
            let text = |value: &str| view.expand(&series, value).expect("a text").join("*");
            let found = series.values.iter().map(|value| text(value));
            let found: BTreeMap<String, u64> = found.zip(series.sums.clone()).collect();
            let mut expected: BTreeMap<String, u64> = BTreeMap::new();
            for ((hour, value), count) in model {
                if range.contains(hour) {
                    *expected.entry(value.clone()).or_default() += count;
                }
            }
            assert_eq!(found, expected, "{subtotal} in {range:?}");
        }
    }
}

#[test]
fn a_ranking_whose_candidates_have_no_room_is_read_in_one_pass() {
    let directory = tempfile::tempdir().expect("a directory");
    let mut rows = String::from("namespace,key,hour,count\n");
    // So few counts an hour that no file keeps lists.
    for key in 0..30_000 {
        let _ = writeln!(
            rows,
            "l,k{key},{},{}",
            YEAR + key % 1_000 * HOUR,
            1 + key % 7
        );
    }
    let options = Options {
        read_bytes_max: 6 << 20,
        ..Options::default()
    };
    let store = stand(directory.path(), rows, options);
    let ranking = store
        .view()
        .top("l", YEAR..YEAR + 1_000 * HOUR, false, (10, false), None);
    let ranking = ranking.expect("a ranking");
    assert_eq!(ranking.keys.len(), 10);
    assert!(ranking.keys.iter().all(|top| top.count == 7));
    assert_eq!(ranking.bound, None);
}

#[test]
fn a_ranking_in_a_cache_that_is_too_small_decodes_no_more_than_passes_do() {
    let directory = tempfile::tempdir().expect("a directory");
    let (mut rows, mut dice) = ("namespace,key,hour,count\n".to_owned(), Chance::new(3));
    // Keys at the end of the ranking are in the lists of some months, and in the files of all.
    for at in 0..600_000_u64 {
        let (key, month) = (at / 10, (at % 10) as i64);
        let hour = YEAR + month * 30 * 86_400 + HOUR * dice.below(30 * 24) as i64;
        let more = [2, 10, 10, 10, 30, 60][dice.below(6) as usize] * 1_000;
        let _ = writeln!(rows, "l,key{key},{hour},{}", 1 + more / (key + 50));
    }
    let options = Options {
        cache_bytes: 64 << 10,
        ..Options::default()
    };
    let store = stand(directory.path(), rows, options);
    let decoded = [1_001, 900].map(|limit| {
        let before = store.live().blocks_decoded();
        let range = YEAR + 42 * 86_400..YEAR + 290 * 86_400;
        let ranking = store.view().top("l", range, false, (limit, false), None);
        assert_eq!(ranking.expect("a ranking").keys.len(), limit);
        store.live().blocks_decoded() - before
    });
    assert!(decoded[1] <= 256 + 2 * decoded[0], "{decoded:?}");
}
