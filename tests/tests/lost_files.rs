//! A start in a data directory that lost files: it is refused, says what is lost and what to do, and changes nothing,
//! however often it is tried. Files that no manifest names are put aside where a lost manifest may have named them.

use std::fmt::Write as _;
use std::io::ErrorKind;
use std::sync::Arc;

use tallyring_archive::{Disk, KeepDays, Manifest, RunEntry, Staged, names};
use tallyring_realtime::{
    Batch, Error, Options, Recovery, SteppedBack, Store, World, long_keys_of,
};
use tallyring_rebuild::load::{LoadError, LoadOptions, MEMORY_MIN, load};
use tallyring_rebuild::{BuildOptions, REWRITE_BYTES_MIN, build};
use tallyring_records::{Day, Increment, Schema};
use tallyring_tests::answers;
use tallyring_tests::model::{self, ManualClock};
use tallyring_tests::sim_disk::{SimDisk, random};

/// 2012-03-16T18:00:00Z.
const START: i64 = 1_331_920_800;
const DAY: i64 = 86_400;
const DAYS: i64 = 3;
const CLICKS: i64 = 20;
const LOAD: &str = "0123456789abcdef";

/// The last change of a store before its newest manifest is lost.
#[derive(Debug, Clone, Copy)]
enum Last {
    Flush,
    Publication,
    Rollback,
    Dataset,
}

fn world(disk: &SimDisk) -> World {
    let now_ms = (START + DAYS * DAY) * 1_000;
    model::world(disk.clone(), Arc::new(ManualClock::new(now_ms, true)))
}

fn options() -> Options {
    Options {
        shards: 2,
        segment_bytes: 4_096,
        ..Options::default()
    }
}

fn open(disk: &SimDisk) -> Result<(Store, Recovery), Error> {
    Store::open(world(disk), options(), Schema::default_clicks())
}

/// Days of clicks with the rebuild of each, then a change that commits the newest manifest.
fn stand(last: Last) -> SimDisk {
    let disk = SimDisk::default();
    for day in 0..DAYS {
        let now_ms = (START + day * DAY) * 1_000;
        let clock = Arc::new(ManualClock::new(now_ms, true));
        let world = model::world(disk.clone(), clock);
        let (store, _) = Store::open(world, options(), Schema::default_clicks()).expect("open");
        rebuild(&disk, &store);
        click(&store, START + day * DAY);
        store.ledger().flush().expect("flushed");
        store.intake().seal().expect("sealed");
    }
    let (store, _) = open(&disk).expect("open");
    match last {
        Last::Flush => {
            click(&store, START + DAYS * DAY);
            store.ledger().flush().expect("flushed");
        }
        Last::Publication => rebuild(&disk, &store),
        Last::Rollback => store.ledger().activate(1).expect("rolled back"),
        Last::Dataset => adopt(&disk, &store),
    }
    disk
}

fn click(store: &Store, at: i64) {
    for number in 0..CLICKS {
        let increment = Increment {
            id: Some(format!("{at}-{number}")),
            ..Increment::new(at, 1, [("l", "a")])
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
}

fn rebuild(disk: &SimDisk, store: &Store) {
    let manifest = store.ledger().cut().expect("cut");
    let options = BuildOptions {
        breakdown_hours: 3,
        rewrite_bytes_min: REWRITE_BYTES_MIN,
        shards: 2,
        level: 1,
        keep: KeepDays::default(),
    };
    if let Some(built) = build(&disk.blobs(), &manifest, options, &|_, _| {}).expect("built") {
        store.ledger().publish(&built).expect("published");
    }
}

/// Loads a dataset of one row of 1,000.
fn adopt(disk: &SimDisk, store: &Store) {
    let schema = Schema::default_clicks();
    let mut rows = String::from("namespace,key,hour,count\n");
    let _ = writeln!(rows, "l,a,2011-05-01T10:00:00Z,1000");
    let file = tempfile::NamedTempFile::new().expect("a file");
    std::fs::write(file.path(), rows).expect("written");
    let options = LoadOptions {
        id: LOAD,
        schema: &schema,
        keys: &long_keys_of(&disk.blobs()).expect("keys"),
        today: Day::of(START),
        latest: i64::MAX,
        shards: 1,
        level: 1,
        memory: MEMORY_MIN,
        fill: false,
        preset: None,
    };
    let stop = |row| Err(LoadError::Row(row));
    let loaded = load(
        &disk.blobs(),
        &[file.path().to_owned()],
        options,
        &stop,
        &|_| {},
    )
    .expect("loaded");
    let staged = Staged {
        load: LOAD.to_owned(),
        store_id: store.manifest().store_id.clone(),
        rows: loaded.rows,
        is_final: false,
        runs: loaded.runs,
    };
    staged.write(&disk.blobs()).expect("staged");
    store
        .ledger()
        .adopt("history", LOAD, false)
        .expect("adopted");
}

fn total(store: &Store) -> u64 {
    answers::total(store, "l", "a")
}

/// Every file with its bytes.
fn contents(disk: &SimDisk) -> Vec<(String, Vec<u8>)> {
    let files = disk.files().into_iter();
    files
        .map(|(name, _)| {
            let content = disk.read(&name).expect("a file").to_vec();
            (name, content)
        })
        .collect()
}

fn newest(disk: &SimDisk) -> u64 {
    let numbers = tallyring_archive::manifest::numbers(&disk.blobs()).expect("manifests");
    *numbers.last().expect("a manifest")
}

/// The process has ended, and a file of what it left is lost. Returns its bytes.
fn lose(disk: &mut SimDisk, name: &str) -> Vec<u8> {
    *disk = disk.kill();
    let content = disk.read(name).expect("it is there").to_vec();
    disk.remove(name).expect("removed");
    content
}

/// Several starts are refused and change nothing. Returns the last one's error.
fn refused(disk: &SimDisk) -> Error {
    // Files that no manifest names stay, too: also those that a start that works removes.
    for other in ["runs/notes.txt", "deltas/half.csv.zst.tmp"] {
        let file = disk.create(other).expect("a file");
        drop(file);
    }
    let before = contents(disk);
    let mut said = None;
    for _ in 0..3 {
        said = open(disk).err();
        assert!(said.is_some(), "it starts");
        assert!(contents(disk) == before, "a refused start changed files");
        let read_only = Store::open_read_only(world(disk), options());
        assert!(read_only.is_err(), "it opens for reading");
    }
    for other in ["runs/notes.txt", "deltas/half.csv.zst.tmp"] {
        disk.remove(other).expect("removed");
    }
    said.expect("an error")
}

#[test]
fn a_lost_newest_manifest_is_named_and_nothing_is_removed() {
    for last in [
        Last::Flush,
        Last::Publication,
        Last::Rollback,
        Last::Dataset,
    ] {
        let mut disk = stand(last);
        let (number, before) = (newest(&disk), contents(&disk));
        let name = names::manifest(number);
        let manifest = lose(&mut disk, &name);
        let error = refused(&disk).to_string();
        for part in [name.as_str(), "backup", "verify --repair"] {
            assert!(error.contains(part), "{last:?}: {error}");
        }
        disk.blobs().put(&name, &manifest).expect("put back");
        assert!(contents(&disk) == before, "{last:?}");
        let (store, recovery) = open(&disk).expect("it starts with its manifest");
        let aside: [String; 0] = [];
        assert_eq!(recovery.cleared.aside, aside, "{last:?}");
        assert_eq!(store.manifest().number, number, "{last:?}");
    }
}

#[test]
fn an_operator_goes_on_from_the_manifest_before_and_the_datasets_files_are_kept() {
    let mut disk = stand(Last::Dataset);
    let number = newest(&disk);
    lose(&mut disk, &names::manifest(number));
    let step = Store::go_on_from_newest(world(&disk), options()).expect("it can be gone on from");
    let expected = SteppedBack {
        lost: number,
        newest: number - 1,
    };
    assert_eq!(step, Some(expected));
    for _ in 0..2 {
        let (store, _) = open(&disk).expect("it starts");
        assert!(store.manifest().archive.datasets.is_empty());
        assert_eq!(total(&store), (DAYS * CLICKS) as u64);
        let aside = store.status().aside_files;
        assert_eq!(aside.len(), 1, "{aside:?}");
        assert!(aside[0].contains(&format!("runs.bulk-{LOAD}")), "{aside:?}");
        click(&store, START + DAYS * DAY + 60);
        store.ledger().flush().expect("flushed");
        assert_eq!(total(&store), ((DAYS + 1) * CLICKS) as u64);
        disk = disk.crash(&mut random(1));
        let again = Store::go_on_from_newest(world(&disk), options()).expect("a store");
        assert_eq!(again, None, "nothing was lost since");
        if newest(&disk) == number {
            break;
        }
    }
    assert_eq!(newest(&disk), number, "its number is taken again");
}

#[test]
fn nobody_goes_on_from_a_manifest_whose_files_are_gone() {
    let mut disk = stand(Last::Publication);
    let name = names::manifest(newest(&disk));
    lose(&mut disk, &name);
    let before = contents(&disk);
    Store::go_on_from_newest(world(&disk), options()).expect_err("its files are gone");
    assert!(contents(&disk) == before);
    assert!(matches!(refused(&disk), Error::SteppedBack(_)));
}

#[test]
fn an_older_manifest_may_be_lost() {
    let mut disk = stand(Last::Dataset);
    let number = newest(&disk);
    lose(&mut disk, &names::manifest(number - 1));
    let (store, _) = open(&disk).expect("it starts");
    assert_eq!(store.manifest().number, number);
    assert_eq!(total(&store), (DAYS * CLICKS) as u64);
}

#[test]
fn any_other_lost_file_stops_the_start_or_is_named_and_nothing_is_removed() {
    let disk = stand(Last::Dataset);
    let (store, _) = open(&disk).expect("it starts");
    let manifest = store.manifest();
    drop(store);
    let mut segments = disk.list(names::OPLOG).expect("a log");
    segments.retain(|file| {
        names::segment_first(file).is_some_and(|first| first < manifest.intake.log_until())
    });
    let last = segments.last().expect("a segment");
    let log = format!("{}/{last}", names::OPLOG);
    let (mut stopped, mut named) = (0, 0);
    for name in manifest.file_names().into_iter().chain([log.as_str()]) {
        let mut disk = disk.crash(&mut random(1));
        lose(&mut disk, name);
        if Store::open_read_only(world(&disk), options()).is_err() {
            refused(&disk);
            stopped += 1;
            continue;
        }
        for unnamed in ["deltas/notes.txt", "deltas/half.csv.zst.tmp"] {
            drop(disk.create(unnamed).expect("a file"));
        }
        let before = disk.files();
        let (store, recovery) = open(&disk).expect("reads do not need it");
        assert_eq!(recovery.cleared.missing, [name]);
        // Ids that are remembered are read from the log again; any other file is lost until it is healed.
        let newest = manifest.intake.ids.runs.last();
        let lost: &[&str] = match newest.is_some_and(|run| run.run.name == name) {
            true => &[],
            false => &[name],
        };
        assert_eq!(store.status().damaged_files, lost);
        let aside = names::aside(manifest.number, names::DELTAS, "notes.txt", 0);
        assert_eq!(recovery.cleared.aside, [aside.as_str()]);
        let after = disk.files();
        let mut gone = before.iter().filter(|file| !after.contains(file));
        assert_eq!(gone.next(), Some(&("deltas/notes.txt".to_owned(), 0)));
        assert_eq!(gone.next(), None, "{name}");
        named += 1;
    }
    assert!(stopped > 0 && named > 2, "{stopped} {named}");
}

/// The process ended before it published what it built.
fn stand_of_a_rebuild_that_was_not_published() -> (SimDisk, Arc<Manifest>) {
    let disk = stand(Last::Flush);
    let (store, _) = open(&disk).expect("it starts");
    let manifest = store.ledger().cut().expect("cut");
    let options = BuildOptions {
        breakdown_hours: 3,
        rewrite_bytes_min: REWRITE_BYTES_MIN,
        shards: 2,
        level: 1,
        keep: KeepDays::default(),
    };
    build(&disk.blobs(), &manifest, options, &|_, _| {}).expect("built");
    (disk.kill(), manifest)
}

#[test]
fn nothing_is_removed_while_a_file_that_reads_need_cannot_be_opened() {
    let (disk, manifest) = stand_of_a_rebuild_that_was_not_published();
    let active = manifest.archive.active_generation().expect("a generation");
    let damaged = &active.files[0];
    disk.flip_bit(&damaged.name, damaged.bytes as usize * 8 - 1);
    let (store, recovery) = open(&disk).expect("it starts degraded");
    assert_eq!(store.status().damaged_files, [damaged.name.as_str()]);
    assert_eq!(recovery.cleared.removed, 0);
    assert!(!recovery.cleared.aside.is_empty());
}

#[test]
fn leftovers_of_a_rebuild_go_and_unknown_files_are_put_aside_and_kept() {
    let (disk, manifest) = stand_of_a_rebuild_that_was_not_published();
    disk.blobs()
        .put("runs/bulk-of-somebody.s01of01.00ff.csv.zst", b"x")
        .expect("written");
    disk.blobs()
        .put("archive/notes.txt", b"notes")
        .expect("written");
    let (store, recovery) = open(&disk).expect("it starts");
    assert!(recovery.cleared.removed > 0, "{recovery:?}");
    let number = manifest.number;
    let expected = [
        names::aside(number, names::ARCHIVE, "notes.txt", 0),
        names::aside(
            number,
            names::RUNS,
            "bulk-of-somebody.s01of01.00ff.csv.zst",
            0,
        ),
    ];
    assert_eq!(recovery.cleared.aside, expected);
    drop(store);
    // One of the same name comes again.
    let disk = disk.crash(&mut random(1));
    disk.blobs()
        .put("archive/notes.txt", b"others")
        .expect("written");
    let (store, recovery) = open(&disk).expect("it starts");
    let again = names::aside(number, names::ARCHIVE, "notes.txt", 1);
    assert_eq!(recovery.cleared.aside, [again.as_str()]);
    let content = disk.read(&expected[0]).expect("it is kept");
    assert_eq!(&*content, b"notes");
    assert_eq!(store.status().aside_files.len(), 3);
    let named = store.manifest();
    for directory in names::SORTED_FILE_DIRECTORIES {
        for file in disk.list(directory).expect("a directory") {
            let name = format!("{directory}/{file}");
            assert!(named.file_names().contains(name.as_str()), "{name}");
        }
    }
}

#[test]
fn a_note_that_found_no_room_fails_no_commit_and_is_made_up_for_at_the_next_start() {
    let mut unnoted = 0;
    for call in 1.. {
        let disk = stand(Last::Publication);
        let (store, _) = open(&disk).expect("it starts");
        click(&store, START + DAYS * DAY);
        let calls = disk.calls();
        disk.fail_nth_call(call, ErrorKind::StorageFull);
        let flushed = store.ledger().flush();
        if disk.calls() < calls + call {
            break;
        }
        if flushed.is_err() {
            // Whether the manifest survives a crash is not known.
            continue;
        }
        let number = newest(&disk);
        let expected = total(&store);
        drop(store);
        let mut lost = disk.crash(&mut random(call));
        lose(&mut lost, &names::manifest(number));
        let is_noticed = Store::stepped_back(&lost.blobs())
            .expect("a store")
            .is_some();
        if is_noticed {
            continue;
        }
        unnoted += 1;
        let mut disk = disk.crash(&mut random(call));
        let (store, _) = open(&disk).expect("a manifest without a note is no finding");
        assert_eq!(total(&store), expected, "call {call}");
        drop(store);
        lose(&mut disk, &names::manifest(number));
        assert!(
            matches!(refused(&disk), Error::SteppedBack(_)),
            "call {call}"
        );
    }
    assert!(unnoted > 0, "no call was that of the note");
}

/// A store in service that has lost the run of its clicks, which the log still holds.
fn stand_of_a_lost_run() -> (SimDisk, Store, RunEntry) {
    let mut disk = SimDisk::default();
    let (store, _) = open(&disk).expect("open");
    click(&store, START + DAYS * DAY);
    store.ledger().flush().expect("flushed");
    let manifest = store.manifest();
    let mut runs = manifest.intake.stores.iter().flat_map(|store| &store.runs);
    let lost = runs.next().expect("a run").clone();
    drop(store);
    lose(&mut disk, &lost.name);
    let (store, _) = open(&disk).expect("it starts degraded");
    assert_eq!(store.status().damaged_files, [lost.name.as_str()]);
    (disk, store, lost)
}

#[test]
fn a_recount_in_service_whose_flush_fails_leaves_every_named_file_open() {
    let mut failed = 0;
    for call in 1.. {
        let (disk, store, lost) = stand_of_a_lost_run();
        let calls = disk.calls();
        disk.fail_nth_call(call, ErrorKind::StorageFull);
        let recounted = store.ledger().recount_store_of(&lost);
        if disk.calls() < calls + call {
            assert!(recounted.expect("no call failed"));
            break;
        }
        failed += usize::from(recounted.is_err());
        // A commit panics unless all files that the manifest names are open. A store may refuse the commit, because it
        // does not know what is durable.
        let _ = store.ledger().flush();
        drop(store);
        let disk = disk.kill();
        let (store, _) = open(&disk).expect("it starts");
        let recounted = store.ledger().recount_store_of(&lost).expect("recounted");
        assert!(recounted, "call {call}");
        assert_eq!(total(&store), CLICKS as u64, "call {call}");
    }
    assert!(failed > 3, "{failed}");
}
