//! A month of nights: exports wait to be merged, so that the rebuilds of a month write about twice its bytes.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use tallyring_archive::{KeepDays, Origin, RunEntry};
use tallyring_realtime::{Batch, Options, Read, Store};
use tallyring_rebuild::{BuildOptions, REWRITE_BYTES_MIN, build};
use tallyring_records::{Increment, Schema, is_breakdown_section};
use tallyring_tests::model::{Chance, ManualClock, world};
use tallyring_tests::sim_disk::SimDisk;

/// 2012-03-01T00:00:00Z.
const FIRST: i64 = 1_330_560_000;
const DAY: i64 = 86_400;
const DAYS: i64 = 31;
/// Hardly a key comes twice, so a day takes about 300 kB.
const CLICKS: usize = 30_000;

fn count(store: &Store, increments: Vec<Increment>) {
    let batch = Batch {
        increments,
        ..Batch::default()
    };
    let commit = store.intake().commit(vec![batch]);
    commit.into_iter().for_each(|answer| {
        answer.expect("counted");
    });
}

fn rebuild(store: &Store, disk: &SimDisk) {
    let manifest = store.ledger().cut().expect("cut");
    let options = BuildOptions {
        breakdown_hours: 3,
        rewrite_bytes_min: REWRITE_BYTES_MIN,
        shards: 2,
        level: 1,
        keep: KeepDays::default(),
    };
    let built = build(&disk.blobs(), &manifest, options, &|_, _| {}).expect("built");
    let built = built.expect("something to build");
    store.ledger().publish(&built).expect("published");
}

/// Bytes of files that are not yet in `known`, which gets their content.
fn new_bytes<'r>(runs: impl Iterator<Item = &'r RunEntry>, known: &mut BTreeSet<String>) -> u64 {
    let new = runs.filter(|run| known.insert(run.hash.clone()));
    new.map(|run| run.bytes).sum()
}

#[test]
fn the_rebuilds_of_a_month_write_three_times_what_came_and_nothing_is_missed_meanwhile() {
    let disk = SimDisk::default();
    let clock = Arc::new(ManualClock::new(FIRST * 1_000, true));
    let world = world(disk.clone(), Arc::clone(&clock) as _);
    let options = Options {
        shards: 2,
        ..Options::default()
    };
    let mut schema = Schema::default_clicks();
    for namespace in &mut schema.namespaces {
        namespace.minutes = true;
    }
    let (store, _) = Store::open(world, options, schema).expect("open");
    let mut dice = Chance::new(7);
    let (mut known, mut exported, mut written) = (BTreeSet::new(), 0, 0);
    let mut waited = 0;
    let mut counted: BTreeMap<i64, u64> = BTreeMap::new();
    for day in 0..DAYS + 2 {
        let today = FIRST + day * DAY;
        clock.set((today + 600) * 1_000);
        store.intake().tick().expect("a new day");
        if day > 0 {
            rebuild(&store, &disk);
            let manifest = store.manifest();
            let archive = &manifest.archive;
            let is_export = |run: &&RunEntry| matches!(run.origin, Origin::Export { .. });
            exported += new_bytes(archive.runs.iter().filter(is_export), &mut known);
            let active = archive.active_generation().expect("a generation");
            written += new_bytes(active.files.iter(), &mut known);
            let pending = archive.pending().count();
            waited = waited.max(pending);
            let has_breakdowns = |file: &RunEntry| {
                let mut sections = file.meta.sums.keys();
                sections.any(|section| is_breakdown_section(section))
            };
            let is_large = active.files.iter().map(|file| file.bytes).sum::<u64>() > 2 << 20;
            if day < DAYS && is_large {
                assert!(!active.files.iter().any(has_breakdowns), "day {day}");
            }
            assert!(store.view().is_archived(today), "day {day}");
            if day == DAYS {
                assert!(pending > 0, "the last day may still get its further store");
            }
            if day == DAYS + 1 {
                let of_march = |run: &&RunEntry| run.meta.first < FIRST + DAYS * DAY;
                assert_eq!(archive.pending().filter(of_march).count(), 0);
                let files = active.files.iter().filter(of_march);
                assert_eq!(files.count(), 2, "one for each shard");
            }
        }
        let mut click = |at: i64, by: &str| Increment {
            by: vec![("c".into(), by.into())],
            ..Increment::new(at, 1, [("l", format!("{:011x}", dice.below(1 << 44)))])
        };
        let mut clicks: Vec<Increment> = (0..CLICKS)
            .map(|number| click(today + number as i64 * 2, "US"))
            .collect();
        clicks.push(click(today + DAY - 1_800, "DE"));
        for click in &mut clicks[..100] {
            click.keys[0].1 = "often".into();
        }
        counted.insert(today, 100);
        count(&store, clicks);
        let read = Read {
            namespace: "l".into(),
            key: "often".into(),
            subtotal: None,
            from: FIRST,
            to: today + DAY,
            rolled: None,
        };
        let series = store.view().read(&read, None).expect("read");
        let mut days: BTreeMap<i64, u64> = BTreeMap::new();
        for (code, n) in series.totals.iter() {
            let start = code.start();
            *days.entry(start - start.rem_euclid(DAY)).or_insert(0) += n;
        }
        assert_eq!(days, counted, "day {day}");
    }
    assert!(waited >= 2 * 12, "{waited} exports waited at most");
    let times = (exported + written) as f64 / exported as f64;
    assert!(
        times < 3.2,
        "{exported} bytes came, and {written} were merged"
    );
}
