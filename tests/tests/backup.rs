//! A backup whose writing stops at any call of its disk is the one before or the new one, whole, and can be brought up
//! to date; a copy of a data directory that loses a call to an error is none, or complete.

use std::io::ErrorKind;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use tallyring_archive::{Disk, KeepDays, Manifest, names};
use tallyring_realtime::oplog::{OplogError, ReadFrom, plain_bytes, scan};
use tallyring_realtime::{Batch, Identity, Options, Read, Store, World};
use tallyring_rebuild::backup::copy;
use tallyring_rebuild::{BuildOptions, REWRITE_BYTES_MIN, build, heal_segment};
use tallyring_records::{Increment, Schema};
use tallyring_tests::model::{self, ManualClock};
use tallyring_tests::sim_disk::{SimDisk, random};

/// 2012-03-16T12:00:00Z.
const START_MS: i64 = 1_331_899_200_000;
const DAY_MS: i64 = 86_400_000;
const SEEDS: u64 = 2;

fn world(disk: &SimDisk, now_ms: i64) -> World {
    model::world(disk.clone(), Arc::new(ManualClock::new(now_ms, true)))
}

fn options() -> Options {
    Options {
        shards: 2,
        segment_bytes: 1 << 12,
        id_hours: 1,
        ..Options::default()
    }
}

/// One day: clicks, and the rebuild of the days before.
fn live(disk: &SimDisk, day: i64, oplog_days: u32) {
    let now_ms = START_MS + day * DAY_MS;
    let options = Options {
        oplog_days,
        ..options()
    };
    let (store, _) =
        Store::open(world(disk, now_ms), options, Schema::default_clicks()).expect("open");
    store.intake().tick().expect("turned");
    let manifest = store.ledger().cut().expect("cut");
    let options = BuildOptions {
        breakdown_hours: 3,
        rewrite_bytes_min: REWRITE_BYTES_MIN,
        shards: 2,
        level: 1,
        keep: KeepDays {
            minutes: Some(30),
            hours: None,
            actions: None,
        },
    };
    let built = build(&disk.blobs(), &manifest, options, &|_, _| {}).expect("built");
    if let Some(built) = built {
        store.ledger().publish(&built).expect("published");
    }
    for click in 0..20_u64 {
        let increment = Increment {
            by: vec![("c".into(), "US".into())],
            id: Some(format!("{day}-{click}")),
            ..Increment::new(
                now_ms / 1_000,
                1 + click,
                [("l", format!("key{}", click % 5))],
            )
        };
        let batch = Batch {
            increments: vec![increment],
            ..Batch::default()
        };
        store
            .intake()
            .commit(vec![batch])
            .remove(0)
            .expect("counted");
    }
    store.ledger().flush().expect("flushed");
    store.ledger().expire_log().expect("expired");
    let ledger = store.ledger();
    while let Some(first) = ledger.to_pack(0).expect("a log") {
        let stop = AtomicBool::new(false);
        assert!(ledger.pack(first, &stop).expect("packed"));
    }
}

#[test]
fn a_damaged_packed_segment_is_healed_from_a_backup_whatever_its_form_there() {
    let (disk, backup) = (SimDisk::default(), SimDisk::default());
    for day in 0..3 {
        live(&disk, day, 7);
    }
    copy(&disk.blobs(), &backup.blobs(), &|_| false, &|_, _| {}).expect("backed up");
    let (answered, name) = (answer(&disk), names::segment(0));
    let packed = disk.read(&name).expect("a segment");
    assert_eq!(backup.read(&name).expect("its copy"), packed);
    let plain = plain_bytes(&disk, 0).expect("its plain form");
    assert!(
        packed.len() * 2 < plain.len(),
        "{} of {}",
        packed.len(),
        plain.len()
    );
    let scanned = || scan(&disk, None, ReadFrom::Oldest, &mut |_| Ok(()));
    let whole = scanned().expect("a whole log");
    for in_backup in [&packed, &plain] {
        let blobs = backup.blobs();
        blobs.put_over(&name, in_backup).expect("written");
        disk.flip_bit(&name, 8 * (packed.len() / 2));
        let error = scanned().expect_err("damage");
        assert!(
            matches!(&error, OplogError::Corrupt { file, .. } if *file == name),
            "{error}"
        );
        assert!(heal_segment(&disk.blobs(), &blobs, &name).expect("healed"));
        assert_eq!(scanned().expect("a whole log"), whole);
        assert_eq!(plain_bytes(&disk, 0).expect("its plain form"), plain);
        disk.blobs().put_over(&name, &packed).expect("packed again");
    }
    assert_eq!(answer(&disk), answered);
}

/// The store that is restored from a backup; none when the backup was never finished.
fn restored(backup: &SimDisk) -> Option<Vec<u64>> {
    Manifest::load(&backup.blobs()).expect("a manifest that can be read")?;
    let restored = SimDisk::default();
    copy(&backup.blobs(), &restored.blobs(), &|_| true, &|_, _| {}).expect("restored");
    // As a restore does: the log of a copy may go further than its manifest.
    restored.blobs().put(names::RESTORING, b"").expect("marked");
    Some(answer(&restored))
}

/// The answers of the store in a directory.
fn answer(disk: &SimDisk) -> Vec<u64> {
    let store = Store::open_read_only(world(disk, START_MS), options()).expect("a whole store");
    let reads: Vec<Read> = (0..5)
        .map(|key| Read {
            namespace: "l".into(),
            key: format!("key{key}"),
            subtotal: None,
            from: START_MS / 1_000 - 86_400,
            to: START_MS / 1_000 + 10 * 86_400,
            rolled: None,
        })
        .collect();
    let reader = store.view();
    let sums = reads
        .iter()
        .map(|read| reader.read(read, None).expect("read").totals.sum());
    sums.collect()
}

/// How a source and its backup came to be.
#[derive(Debug, Clone, Copy)]
struct Stand {
    days: i64,
    /// The day before which the backup was made; none on the first.
    backed_up: i64,
    /// How long the source keeps its log.
    oplog_days: u32,
}

const STANDS: [Stand; 4] = [
    Stand {
        days: 1,
        backed_up: 0,
        oplog_days: 1,
    },
    Stand {
        days: 3,
        backed_up: 2,
        oplog_days: 1,
    },
    // Some of the log is removed, but not what the backup goes on with.
    Stand {
        days: 12,
        backed_up: 11,
        oplog_days: 1,
    },
    // The log that the backup would go on with has been removed.
    Stand {
        days: 7,
        backed_up: 1,
        oplog_days: 1,
    },
];

fn stand(stand: Stand) -> (SimDisk, SimDisk) {
    let (source, target) = (SimDisk::default(), SimDisk::default());
    for day in 0..stand.days {
        if day > 0 && day == stand.backed_up {
            copy(&source.blobs(), &target.blobs(), &|_| true, &|_, _| {}).expect("copied");
        }
        live(&source, day, stand.oplog_days);
    }
    (source, target)
}

fn segments(disk: &SimDisk) -> Vec<String> {
    let files = disk.list("oplog").expect("a log");
    files
        .into_iter()
        .filter(|file| file.ends_with(".tlog"))
        .collect()
}

#[test]
fn a_backup_may_be_older_than_its_sources_log() {
    let (source, target) = stand(STANDS[3]);
    assert!(segments(&target).last() < segments(&source).first());
    copy(&source.blobs(), &target.blobs(), &|_| true, &|_, _| {}).expect("copied");
    assert_eq!(segments(&target), segments(&source));
    assert_eq!(restored(&target), Some(answer(&source)));
}

#[test]
fn a_source_that_was_set_back_is_not_taken_for_what_its_backup_goes_on_with() {
    let days = |days| Stand {
        days,
        backed_up: 0,
        oplog_days: 90,
    };
    let (source, target) = stand(days(2));
    // Without the day between, as below: the records of both logs have the same numbers.
    live(&source, 3, 90);
    copy(&source.blobs(), &target.blobs(), &|_| true, &|_, _| {}).expect("copied");
    let before = restored(&target);
    // As it was a day before, and on from there with other clicks until its manifests have higher numbers.
    let (set_back, _) = stand(days(2));
    for day in 3..43 {
        live(&set_back, 1 + day, 90);
    }
    assert!(segments(&set_back).contains(segments(&target).last().expect("a segment")));
    let error =
        copy(&set_back.blobs(), &target.blobs(), &|_| true, &|_, _| {}).expect_err("refused");
    assert!(
        error.to_string().contains("move the target away"),
        "{error}"
    );
    assert_eq!(restored(&target), before);
}

#[test]
fn a_store_that_got_its_first_api_key_goes_on_with_its_backup() {
    let (source, target) = stand(STANDS[0]);
    copy(&source.blobs(), &target.blobs(), &|_| true, &|_, _| {}).expect("copied");
    Identity::mark_keyed(&source.blobs()).expect("marked");
    copy(&source.blobs(), &target.blobs(), &|_| true, &|_, _| {}).expect("copied again");
    let kept = Identity::load(&target.blobs()).expect("readable");
    assert!(kept.is_some_and(|kept| kept.is_keyed));
}

#[test]
fn a_backup_that_stops_anywhere_is_whole_and_goes_on() {
    for (seed, stand) in (0..SEEDS).flat_map(|seed| STANDS.map(|stand| (seed, stand))) {
        for stop in 1.. {
            let (source, target) = self::stand(stand);
            let (before, after) = (restored(&target), Some(answer(&source)));
            target.stop_at_nth_call(stop);
            let ended = copy(&source.blobs(), &target.blobs(), &|_| true, &|_, _| {}).is_ok();
            let found = target.crash(&mut random(seed << 32 | stop));
            let told = restored(&found);
            if ended {
                assert_eq!(told, after, "seed {seed}, {stand:?}: complete");
                break;
            }
            let place = format!("seed {seed}, {stand:?}, stopped at call {stop}");
            // The log may have come further than the manifest, never less far than what was copied.
            let is_whole = told.is_none() && before.is_none()
                || told.as_ref().is_some_and(|told| {
                    let least = before.clone().unwrap_or_else(|| vec![0; 5]);
                    let most = after.as_ref().expect("a source");
                    (0..5).all(|key| (least[key]..=most[key]).contains(&told[key]))
                });
            assert!(
                is_whole,
                "{place}: {told:?} is not between {before:?} and {after:?}"
            );
            copy(&source.blobs(), &found.blobs(), &|_| true, &|_, _| {})
                .unwrap_or_else(|error| panic!("{place}: {error}"));
            assert_eq!(restored(&found), after, "{place}: gone on");
        }
    }
}

#[test]
fn an_error_of_either_disk_leaves_a_whole_backup() {
    for (is_target, stand) in [false, true]
        .into_iter()
        .flat_map(|is_target| STANDS[1..].iter().map(move |stand| (is_target, *stand)))
    {
        for nth in 1.. {
            let (source, target) = self::stand(stand);
            let (before, after) = (restored(&target), Some(answer(&source)));
            let failing = if is_target { &target } else { &source };
            let calls = failing.calls();
            failing.fail_nth_call(nth, ErrorKind::Other);
            let result = copy(&source.blobs(), &target.blobs(), &|_| true, &|_, _| {});
            if failing.calls() < calls + nth {
                result.expect("no fault was met");
                break;
            }
            let told = restored(&target);
            let place = format!("call {nth} of {failing:?} failed");
            assert!(told.is_some() && told >= before, "{place}: {told:?}");
            copy(&source.blobs(), &target.blobs(), &|_| true, &|_, _| {})
                .unwrap_or_else(|error| panic!("{place}: {error}"));
            assert_eq!(restored(&target), after, "{place}: gone on");
        }
    }
}
