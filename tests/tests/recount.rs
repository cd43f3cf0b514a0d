//! A recount where the log begins late: days that the log holds whole are counted again, source runs have the rest.

use std::sync::Arc;

use tallyring_archive::{
    Disk, FinalEntry, FinalProof, FinalSums, KeepDays, Manifest, Origin, Partition, RunEntry,
    RunSpec, RunWriter, names, verify_run,
};
use tallyring_realtime::oplog::{FileLog, Log, LogOptions, ReadFrom, scan};
use tallyring_realtime::{
    Advance, Batch, Final, Identity, Options, Read, Recount, Store, check_again,
};
use tallyring_rebuild::{BuildOptions, REWRITE_BYTES_MIN, build, remake};
use tallyring_records::{Consumed, Day, Increment, Record, Schema, TopicPartition, decode_all};
use tallyring_tests::model::{ManualClock, world};
use tallyring_tests::sim_disk::SimDisk;

/// 2012-03-26T12:00:00Z, so that two months are counted.
const START: i64 = 1_332_763_200;
const DAY: i64 = 86_400;
const DAYS: i64 = 12;

const OPTIONS: BuildOptions = BuildOptions {
    breakdown_hours: 3,
    rewrite_bytes_min: REWRITE_BYTES_MIN,
    shards: 4,
    level: 1,
    keep: KeepDays {
        minutes: None,
        hours: None,
        actions: None,
    },
};

fn options() -> Options {
    Options {
        segment_bytes: 4 << 10,
        oplog_days: 4,
        id_hours: 24,
        ..Options::default()
    }
}

fn open(disk: &SimDisk, now: i64) -> (Store, Arc<ManualClock>) {
    let clock = Arc::new(ManualClock::new(now * 1_000, true));
    let world = world(disk.clone(), Arc::clone(&clock) as _);
    let (store, _) = Store::open(world, options(), Schema::default_clicks()).expect("open");
    (store, clock)
}

fn count(store: &Store, at: i64, id: &str) {
    let increments = (0..20).map(|key| {
        let key = format!("k{key}");
        let mut increment = Increment::new(at, 1, [("l", &*key)]);
        increment.id = Some(format!("{id}{key}"));
        increment
    });
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

/// Notes that a partition of a topic was consumed up to an offset.
fn consume(store: &Store, partition: u32, next: u64) {
    let of = TopicPartition {
        topic: "clicks".into(),
        topic_id: "id".into(),
        cluster: "cluster".into(),
        partition,
    };
    let batch = Batch {
        consumed: vec![Advance {
            from: None,
            to: Consumed { of, next },
        }],
        ..Batch::default()
    };
    let noted = store.intake().commit(vec![batch]).remove(0);
    noted.expect("noted");
}

fn rebuild(store: &Store, disk: &SimDisk) {
    let manifest = store.ledger().cut().expect("cut");
    let built = build(&disk.blobs(), &manifest, OPTIONS, &|_, _| {}).expect("built");
    store
        .ledger()
        .publish(&built.expect("something to build"))
        .expect("published");
}

/// Counts on each of the days, for yesterday after its export, and late ones for days long gone; the log is kept for
/// some days.
fn lived() -> SimDisk {
    let disk = SimDisk::default();
    let (store, clock) = open(&disk, START);
    for day in 0..DAYS {
        clock.set((START + day * DAY) * 1_000);
        consume(&store, u32::try_from(day).expect("few"), 7);
        store.intake().tick().expect("a new day");
        if day > 0 {
            rebuild(&store, &disk);
            count(&store, START + (day - 1) * DAY, &format!("c{day}"));
        }
        count(&store, START + day * DAY, &format!("a{day}"));
        count(&store, START - 40 * DAY, &format!("b{day}"));
        store.ledger().flush().expect("flushed");
        store.intake().seal().expect("sealed");
        store.ledger().expire_log().expect("expired");
    }
    count(&store, START + DAYS * DAY - DAY, "not flushed");
    store.intake().seal().expect("sealed");
    disk
}

/// Totals of every key on every day.
fn totals(store: &Store) -> Vec<u64> {
    let keys = (0..20).map(|key| format!("k{key}"));
    let days = (-41..DAYS).map(|day| START + day * DAY - 12 * 3_600);
    let reads: Vec<(String, i64)> = keys
        .flat_map(|key| days.clone().map(move |from| (key.clone(), from)))
        .collect();
    let total = |(key, from): &(String, i64)| {
        let read = Read {
            namespace: "l".into(),
            key: key.clone(),
            subtotal: None,
            from: *from,
            to: from + DAY,
            rolled: None,
        };
        let series = store.view().read(&read, None).expect("read");
        series.totals.sum()
    };
    reads.iter().map(total).collect()
}

/// Loses all but the log and what the plan keeps, and makes it again.
fn recounted(disk: &SimDisk, from: Option<Day>) -> (Store, Recount) {
    let plan = Recount::plan(&disk.blobs(), from, &Schema::default_clicks(), 4).expect("a plan");
    plan.manifest.commit(&disk.blobs()).expect("committed");
    for file in plan.manifest.files() {
        verify_run(&disk.blobs(), file).expect("what is kept is whole");
    }
    let kept = plan.manifest.file_names();
    for directory in names::SORTED_FILE_DIRECTORIES {
        for file in disk.list(directory).expect("listed") {
            let name = format!("{directory}/{file}");
            if !kept.contains(name.as_str()) {
                disk.remove(&name).expect("removed");
            }
        }
    }
    let (store, _) = open(disk, plan.ended_ms.div_euclid(1_000));
    store.ledger().flush().expect("flushed");
    let built = build(&disk.blobs(), &store.manifest(), OPTIONS, &|_, _| {}).expect("built");
    store
        .ledger()
        .publish(&built.expect("a generation"))
        .expect("published");
    (store, plan)
}

#[test]
fn days_that_the_log_holds_whole_are_counted_again_and_source_runs_have_the_rest() {
    let disk = lived();
    let now = START + (DAYS - 1) * DAY;
    let (store, _) = open(&disk, now);
    let expected = totals(&store);
    assert_eq!(expected.iter().sum::<u64>(), 20 * 3 * DAYS as u64);
    let consumed = store.intake().consumed();
    assert_eq!(consumed.len(), DAYS as usize);
    drop(store);
    let before = Manifest::load(&disk.blobs())
        .expect("read")
        .expect("a manifest");
    let exported_before = |manifest: &Manifest| {
        let runs = manifest.archive.runs.iter();
        runs.filter(|run| run.name.starts_with(names::RUNS)).count()
    };
    for from in [None, Some(Day::of(now - DAY)), Some(Day::of(now + 9 * DAY))] {
        let disk = disk.crash(&mut || u64::MAX);
        let (store, plan) = recounted(&disk, from);
        assert!(!plan.is_whole, "the log began before");
        assert_eq!(store.intake().consumed(), consumed, "none counts again");
        assert!(!plan.stores.is_empty());
        assert_eq!(totals(&store), expected, "from {from:?}");
        if from.is_none() {
            let kept = exported_before(&plan.manifest);
            assert!(
                kept < exported_before(&before),
                "a day that was exported is counted again"
            );
        }
        let manifest = store.manifest();
        let files =
            remake(&disk.blobs(), &SimDisk::default().blobs(), &manifest).expect("the same");
        assert_eq!(
            files as usize,
            manifest
                .archive
                .generations
                .last()
                .map_or(0, |last| last.files.len())
        );
        // A retry stays one, and what comes is counted as before.
        count(&store, now, "not flushed");
        assert_eq!(totals(&store), expected, "from {from:?}");
        rebuild(&store, &disk);
        assert_eq!(totals(&store), expected, "from {from:?}");
    }
}

#[test]
fn without_a_manifest_a_log_that_begins_late_is_refused_and_nothing_changes() {
    let disk = lived();
    for file in disk.list(names::MANIFESTS).expect("listed") {
        disk.remove(&format!("{}/{file}", names::MANIFESTS))
            .expect("removed");
    }
    let files = disk.files();
    let refused =
        Recount::plan(&disk.blobs(), None, &Schema::default_clicks(), 4).expect_err("refused");
    assert!(refused.to_string().contains("from a backup"), "{refused}");
    assert_eq!(disk.files(), files);
}

#[test]
fn ids_whose_run_is_damaged_refuse_a_start_where_the_log_begins_late() {
    let disk = lived();
    let now = START + (DAYS - 1) * DAY;
    for file in disk.list(names::IDS).expect("listed") {
        disk.truncate(&format!("{}/{file}", names::IDS), 9);
    }
    let clock = Arc::new(ManualClock::new(now * 1_000, true));
    let world = world(disk.clone(), clock as _);
    let refused = Store::open(world, options(), Schema::default_clicks());
    assert!(refused.is_err(), "ids still known would be forgotten");
}

/// Answers leave them out and say so, until the file is healed; they decide of no new id.
#[test]
fn old_ids_whose_run_is_damaged_keep_no_server_from_starting() {
    let disk = lived();
    let manifest = Manifest::load(&disk.blobs()).expect("read").expect("one");
    let oldest = &manifest.intake.ids.runs[0];
    let whole = disk.blobs().content(&oldest.run.name).expect("there");
    let whole = whole.all().expect("readable");
    disk.truncate(&oldest.run.name, 9);
    let now_ms = (START + (DAYS - 1) * DAY) * 1_000;
    assert!(oldest.newest_ms < now_ms - 24 * 3_600_000, "it is old");
    let clock = ManualClock::new(now_ms, true);
    let world = world(disk.clone(), Arc::new(clock) as _);
    let (store, _) = Store::open(world, options(), Schema::default_clicks()).expect("open");
    let is_partial = || {
        let told = store.intake().id_history(None, "an id");
        let told = told.expect("other runs are whole");
        assert!(told.is_empty());
        told.is_partial
    };
    assert!(is_partial());
    assert!(store.ledger().reopen(&oldest.run).is_err(), "not healed");
    assert!(is_partial());
    let healed = disk.blobs().put_over(&oldest.run.name, &whole);
    healed.expect("written");
    store.ledger().reopen(&oldest.run).expect("healed");
    assert!(!is_partial());
}

/// Makes a day final; its verdicts are its only file.
fn make_final(disk: &SimDisk, store: &Store, day: Day, load: &str) {
    let spec = RunSpec {
        origin: Origin::Sorted(load.to_owned()),
        partition: Partition::month_of(day.code()),
        shard: 0,
        shards: 1,
        level: 1,
    };
    let write = || -> tallyring_archive::Result<Option<RunEntry>> {
        let mut verdicts = RunWriter::create(&disk.blobs(), spec)?;
        let payload = format!("{}:1", day.code());
        verdicts.push(b"verdict|0000000000000001-voided", payload.as_bytes())?;
        verdicts.finish()
    };
    let sums = FinalSums {
        before: 20,
        after: 20,
        gross: 20,
        ..FinalSums::default()
    };
    let entry = FinalEntry {
        day,
        version: 1,
        at_ms: 0,
        upto: store.live().applied().sequence,
        rules: "00".into(),
        books: Vec::new(),
        verdicts: write().expect("written"),
        types: [("increment".to_owned(), sums)].into(),
        filtered: None,
        repeated: None,
        touched: false,
        sums_only: false,
        forced: false,
        actor: None,
        proof: Some(FinalProof {
            ids_from: 0,
            ids_from_ms: None,
            content: "00".repeat(32),
            is_logged: false,
        }),
    };
    let closed = Final { entry, fix: None };
    let published = store.ledger().publish_final(&closed);
    published.expect("published");
}

#[test]
fn a_lost_version_of_a_day_that_left_the_log_is_told_and_given_up() {
    let disk = lived();
    let now = START + (DAYS - 1) * DAY;
    let (store, _) = open(&disk, now);
    let gone = Day::of(START + DAY);
    make_final(&disk, &store, gone, "0123456789abcdef");
    make_final(&disk, &store, gone.next(), "0123456789abcdee");
    drop(store);
    for file in disk.list(names::FINALS).expect("listed") {
        if file.starts_with(&gone.to_string()) {
            disk.remove(&format!("{}/{file}", names::FINALS))
                .expect("removed");
        }
    }
    let (store, plan) = recounted(&disk, None);
    let days = |manifest: &Manifest| -> Vec<Day> {
        manifest
            .archive
            .finals
            .iter()
            .map(|version| version.day)
            .collect()
    };
    assert_eq!(days(&plan.manifest), [gone.next()], "what is whole stays");
    let awaited = plan.manifest.archive.awaited.clone();
    assert_eq!(awaited.len(), 1);
    assert_eq!(
        (awaited[0].day, awaited[0].types["increment"].after),
        (gone, 20)
    );
    let refused = check_again(&disk.blobs(), &store.manifest(), &awaited[0])
        .expect_err("refused")
        .to_string();
    assert!(refused.contains("no longer reaches back"), "{refused}");
    store.ledger().give_up_final(&awaited[0]).expect("given up");
    drop(store);
    let (store, _) = open(&disk, now);
    assert!(store.manifest().archive.awaited.is_empty());
    assert_eq!(days(&store.manifest()), [gone.next()]);
}

/// The declarations of which the log has a record that the store began with them.
fn beginnings(disk: &SimDisk) -> Vec<Schema> {
    let mut found = Vec::new();
    let read = scan(disk, None, ReadFrom::Oldest, &mut |frame| {
        for record in decode_all(frame.payload, frame.count)? {
            if let Record::BeganWith(schema) = record {
                found.push(schema);
            }
        }
        Ok(())
    });
    read.expect("the log is read");
    found
}

/// Appends a declaration as an older build did: without the one with which the store began.
fn declare_as_before(disk: &SimDisk, schema: &Schema) {
    let identity = Identity::load(&disk.blobs()).expect("readable");
    let options = LogOptions {
        segment_bytes: options().segment_bytes,
        bytes_max: u64::MAX,
        store_id: identity.expect("it is there").store_id,
        plausible_ms: Some(START * 1_000),
        trusts_clock: true,
    };
    let disk = Arc::new(disk.clone());
    let opened = FileLog::open(disk, options, START * 1_000, ReadFrom::Oldest, &mut |_| {
        Ok(())
    });
    let (mut log, _) = opened.expect("it opens");
    let mut payload = Vec::new();
    Record::Schema(schema.clone()).encode(&mut payload);
    log.append(&payload, 1, START * 1_000).expect("appended");
    log.commit().expect("durable");
}

#[test]
fn the_first_start_tells_the_log_of_an_older_build_with_what_the_store_began() {
    let disk = SimDisk::default();
    let (store, _) = open(&disk, START);
    count(&store, START, "early");
    drop(store);
    let disk = disk.kill();
    let first = Schema::default_clicks();
    let mut second = first.clone();
    second.namespaces.retain(|namespace| namespace.name != "l");
    second.titles.clear();
    let kept = second.namespaces.len();
    assert!(kept > 0 && kept < first.namespaces.len());
    declare_as_before(&disk, &second);
    let mut disk = disk;
    for start in 0..3 {
        let clock = Arc::new(ManualClock::new(START * 1_000, true));
        let world = world(disk.clone(), clock as _);
        let (store, _) = Store::open(world, options(), second.clone()).expect("it opens");
        assert_eq!(
            beginnings(&disk),
            std::slice::from_ref(&first),
            "start {start}"
        );
        drop(store);
        disk = disk.kill();
    }
    for file in disk.list(names::MANIFESTS).expect("listed") {
        let removed = disk.remove(&format!("{}/{file}", names::MANIFESTS));
        removed.expect("removed");
    }
    let plan = Recount::plan(&disk.blobs(), None, &second, 4).expect("a plan");
    assert_eq!(plan.manifest.intake.schemas[0].schema, first);
    // A store whose log has that in the frame of its first change is told nothing.
    let disk = SimDisk::default();
    for schema in [&first, &second, &second] {
        let clock = Arc::new(ManualClock::new(START * 1_000, true));
        let world = world(disk.clone(), clock as _);
        Store::open(world, options(), schema.clone()).expect("it opens");
    }
    assert_eq!(beginnings(&disk), []);
}
