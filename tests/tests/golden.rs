//! The files of the live half stay what they are for ever: each golden file is read, and this build writes the same
//! bytes again. `golden/README.md` says what each file is and which build made it.
//!
//! Golden records, runs and manifests are in `records/tests/golden` and `archive/tests/golden`, a whole data directory
//! of a build of before in `e2e/golden.rs`.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tallyring_archive::{Disk, OsDisk, Work};
use tallyring_realtime::catalog::{Catalog, Job, JobState, KeyEntry, Scope};
use tallyring_realtime::oplog::{
    FileLog, Frame, Log, LogOptions, ReadFrom, pack, plain_bytes, redact, scan, scan_some,
};
use tallyring_realtime::{Batch, Identity, Options, Store};
use tallyring_records::{Increment, Schema, decode_all};
use tallyring_tests::model::{ManualClock, world};
use tallyring_tests::server::workspace;
use tallyring_tests::sim_disk::SimDisk;

/// 2012-03-16T18:40:47Z.
const NOW_MS: i64 = 1_331_923_247_000;
const DAY_MS: i64 = 86_400_000;

fn golden_path(name: &str) -> PathBuf {
    workspace().join("tests/golden").join(name)
}

/// The bytes of a golden file.
fn golden(name: &str) -> Vec<u8> {
    let path = golden_path(name);
    fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Fails unless these are the bytes of a golden file, and leaves them where they can be looked at.
fn check_written(name: &str, written: &[u8]) {
    let made = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    fs::write(&made, written).expect("write what this build makes");
    let is_kept = golden(name) == written;
    let made = made.display();
    assert!(is_kept, "the format of {name} changed: compare {made}");
}

/// A disk with one file.
fn disk_with(directory: &str, name: &str, content: &[u8]) -> SimDisk {
    let disk = SimDisk::default();
    disk.create_directory(directory).expect("a directory");
    let mut file = disk.create(name).expect("a file");
    file.write_at(0, content).expect("written");
    disk
}

const SEGMENT: &str = "oplog/0000000000000000.tlog";

const LOG: LogOptions = LogOptions {
    segment_bytes: 8 << 10,
    bytes_max: u64::MAX,
    store_id: *b"golden segment 1",
    plausible_ms: None,
    trusts_clock: false,
};

/// The golden records of every kind, as bytes.
fn records() -> Vec<Vec<u8>> {
    let path = workspace().join("records/tests/golden/log-records.txt");
    let text = fs::read_to_string(path).expect("the golden records");
    let byte = |digits: &[u8]| {
        let digits = std::str::from_utf8(digits).expect("hex digits");
        u8::from_str_radix(digits, 16).expect("hex digits")
    };
    let bytes = |line: &str| line.as_bytes().chunks(2).map(byte).collect();
    text.lines().map(bytes).collect()
}

/// A frame as it is read.
#[derive(Debug, PartialEq, Eq)]
struct Seen {
    epoch: u32,
    first_sequence: u64,
    count: u32,
    written_ms: i64,
    is_plausible: bool,
    payload: Vec<u8>,
}

/// The frames of the golden segment: two of one start, the second under a doubted clock, and one of the next start.
fn frames() -> [Seen; 3] {
    let records = records();
    let (first, second) = records.split_at(records.len() / 2);
    let frame = |epoch, first_sequence, written_ms, records: &[Vec<u8>]| Seen {
        epoch,
        first_sequence,
        count: u32::try_from(records.len()).expect("a few records"),
        written_ms,
        is_plausible: written_ms < NOW_MS + DAY_MS,
        payload: records.concat(),
    };
    let before = first.len() as u64;
    [
        frame(1, 0, NOW_MS, first),
        frame(1, before, NOW_MS + 3 * DAY_MS, second),
        frame(2, records.len() as u64, NOW_MS + 2_000, &records[..1]),
    ]
}

#[test]
fn a_log_segment_with_every_kind_of_record_is_written_as_it_was() {
    let disk = SimDisk::default();
    let open = |now_ms| {
        let disk = Arc::new(disk.clone());
        FileLog::open(disk, LOG, now_ms, ReadFrom::Oldest, &mut |_| Ok(()))
            .expect("a log")
            .0
    };
    let [first, second, third] = frames();
    let append = |log: &mut FileLog, frame: &Seen| {
        let written = log.append(&frame.payload, frame.count, frame.written_ms);
        assert_eq!(written.expect("appended"), frame.first_sequence);
        log.commit().expect("synced");
    };
    let mut log = open(NOW_MS);
    append(&mut log, &first);
    append(&mut log, &second);
    log.seal(NOW_MS + 1_000).expect("sealed");
    drop(log);
    let mut log = open(NOW_MS + 2_000);
    append(&mut log, &third);
    log.seal(NOW_MS + 3_000).expect("sealed");
    check_written("segment-1.tlog", &disk.read(SEGMENT).expect("the segment"));
}

#[test]
fn a_log_segment_with_every_kind_of_record_is_read() {
    let disk = disk_with("oplog", SEGMENT, &golden("segment-1.tlog"));
    let mut seen = Vec::new();
    scan(&disk, Some(LOG.store_id), ReadFrom::Oldest, &mut |frame| {
        decode_all(frame.payload, frame.count)?;
        seen.push(Seen {
            epoch: frame.epoch,
            first_sequence: frame.first_sequence,
            count: frame.count,
            written_ms: frame.written_ms,
            is_plausible: frame.is_plausible,
            payload: frame.payload.to_vec(),
        });
        Ok(())
    })
    .expect("a log that can be read");
    assert_eq!(seen, frames());
}

/// The golden segment beside the one that follows it, which is empty.
fn disk_with_two_segments() -> (SimDisk, FileLog) {
    let disk = disk_with("oplog", SEGMENT, &golden("segment-1.tlog"));
    let now_ms = NOW_MS + 4_000;
    let opened = FileLog::open(
        Arc::new(disk.clone()),
        LOG,
        now_ms,
        ReadFrom::Oldest,
        &mut |_| Ok(()),
    );
    let (mut log, _) = opened.expect("a log");
    log.begin_segment(now_ms).expect("a second segment");
    (disk, log)
}

#[test]
fn a_packed_log_segment_is_written_as_it_was_and_stands_for_the_same_bytes() {
    let (disk, mut log) = disk_with_two_segments();
    let plain = disk.read(SEGMENT).expect("the segment");
    let first = log.segments().to_pack(0, u64::MAX).expect("a segment");
    let packing = pack(&disk, first, &mut |frame, days| {
        days.insert(4_457 + frame.epoch, frame.count.into());
        Ok(())
    });
    let packing = packing.expect("packed");
    assert!(log.segments_mut().put_packed(&packing).expect("named"));
    check_written("segment-2.tlog", &disk.read(SEGMENT).expect("the segment"));
    assert_eq!(plain_bytes(&disk, 0).expect("the plain form"), plain);
}

/// The frames of the golden segment after users of the second one were erased.
fn replaced_frames() -> Vec<Vec<u8>> {
    let mut payloads = Vec::from(frames().map(|frame| frame.payload));
    payloads[1] = b"without a user".to_vec();
    payloads
}

#[test]
fn a_log_segment_with_a_replaced_payload_is_written_as_it_was_and_read() {
    for (name, pseudonymous) in [("segment-3.tlog", false), ("segment-4.tlog", true)] {
        check_replaced(name, pseudonymous);
    }
}

fn check_replaced(name: &str, pseudonymous: bool) {
    let (disk, mut log) = disk_with_two_segments();
    disk.remove(SEGMENT).expect("removed");
    let mut file = disk.create(SEGMENT).expect("a file");
    file.write_at(0, &golden("segment-2.tlog"))
        .expect("written");
    let (frames, replaced) = (frames(), replaced_frames());
    let mut other = |frame: Frame<'_>| {
        let is_second = frame.first_sequence == frames[1].first_sequence;
        Ok(is_second.then(|| replaced[1].clone()))
    };
    let packing = redact(&disk, 0, pseudonymous, &mut other).expect("redacted");
    assert!(
        log.segments_mut()
            .put_packed(&packing.expect("a payload is replaced"))
            .expect("named")
    );
    check_written(name, &disk.read(SEGMENT).expect("the segment"));
    let disk = disk_with("oplog", SEGMENT, &golden(name));
    let mut seen = Vec::new();
    let mut apply = |frame: Frame<'_>| {
        seen.push(frame.payload.to_vec());
        Ok(())
    };
    scan(&disk, Some(LOG.store_id), ReadFrom::Oldest, &mut apply).expect("it can be read");
    assert_eq!(seen, replaced_frames());
}

#[test]
fn a_packed_log_segment_is_read_and_says_its_days() {
    let disk = disk_with("oplog", SEGMENT, &golden("segment-2.tlog"));
    let mut seen = Vec::new();
    let mut apply = |frame: Frame<'_>| {
        seen.push(frame.payload.to_vec());
        Ok(())
    };
    scan(&disk, Some(LOG.store_id), ReadFrom::Oldest, &mut apply).expect("it can be read");
    assert_eq!(seen, frames().map(|frame| frame.payload));
    let (plain, _log) = disk_with_two_segments();
    let second = plain.files().last().expect("two segments").0.clone();
    let next = plain.read(&second).expect("the second segment");
    let mut file = disk.create(&second).expect("a file");
    file.write_at(0, &next).expect("written");
    let mut found = Vec::new();
    let mut days = |days: &[(u32, u64)]| {
        found.extend_from_slice(days);
        false
    };
    let read = scan_some(&disk, ReadFrom::Oldest, &mut days, &mut |_| Ok(()));
    assert_eq!(read.expect("it can be read").frames, 0);
    let counts = frames().map(|frame| u64::from(frame.count));
    assert_eq!(found, [(4_458, counts[1]), (4_459, counts[2])]);
}

/// The secrets of the golden identity: no randomness at all.
fn counting(out: &mut [u8]) {
    for (number, byte) in (0..).zip(out) {
        *byte = number;
    }
}

#[test]
fn an_identity_is_read_and_written_as_it_was() {
    let disk = SimDisk::default();
    let made = Identity::create(&disk.blobs(), counting).expect("an identity");
    let written = |disk: &SimDisk| disk.read("STORE").expect("an identity");
    check_written("STORE", &written(&disk));
    Identity::mark_keyed(&disk.blobs()).expect("marked");
    check_written("STORE-keyed", &written(&disk));
    for (name, is_keyed) in [("STORE", false), ("STORE-keyed", true)] {
        let kept = disk_with("", "STORE", &golden(name));
        let read = Identity::load(&kept.blobs())
            .expect("readable")
            .expect("there");
        assert_eq!(
            (read.store_id, read.hash_key, read.is_keyed),
            (made.store_id, made.hash_key, is_keyed)
        );
    }
}

/// A key with every field, revoked, and one with as few as there can be.
fn keys() -> [KeyEntry; 2] {
    let full = KeyEntry {
        id: "k1".into(),
        secret_hash: std::array::from_fn(|at| at as u8),
        scopes: vec![Scope::Write, Scope::Read, Scope::Admin],
        namespaces: Some(vec!["l".into(), "u".into()]),
        login: Some("jehiah".into()),
        limit: Some(1_000),
        max_n: Some(50),
        identity: None,
        note: Some("a note".into()),
        created_ms: NOW_MS,
        revoked_ms: Some(NOW_MS + 1),
        shared: None,
    };
    let bare = KeyEntry {
        id: "k2".into(),
        scopes: vec![Scope::Read],
        namespaces: None,
        login: None,
        limit: None,
        max_n: None,
        note: None,
        revoked_ms: None,
        ..full.clone()
    };
    [full, bare]
}

/// A job with every field that is kept.
fn job() -> Job {
    let mut job = Job::begin(None, NOW_MS);
    job.job = 7;
    job.state = JobState::Failed;
    job.ended_ms = Some(NOW_MS + 9);
    job.generation = Some(3);
    job.error = Some("a reason".into());
    job.work = Some(Work {
        merged: 1,
        linked: 2,
        shared: 3,
    });
    job
}

#[test]
fn a_catalog_as_text_is_read_and_written_as_it_was() {
    let made = tempfile::tempdir().expect("a directory");
    let catalog = Catalog::open(&made.path().join("catalog")).expect("a catalog");
    for key in keys() {
        catalog.put_key(&key).expect("kept");
    }
    catalog.put_job(&Job::begin(None, NOW_MS)).expect("kept");
    catalog.put_job(&job()).expect("kept");
    let text = OsDisk::new(made.path())
        .expect("a disk")
        .read("catalog.json");
    check_written("catalog-jobs.json", &text.expect("the catalog as text"));

    // Jobs had their backups once.
    for name in ["catalog.json", "catalog-jobs.json"] {
        let kept = tempfile::tempdir().expect("a directory");
        fs::copy(golden_path(name), kept.path().join("catalog.json")).expect("copied");
        let catalog = Catalog::open(&kept.path().join("catalog")).expect("made of the text");
        assert_eq!(catalog.keys().expect("keys"), keys());
        assert_eq!(catalog.last_job().expect("a job"), Some(job()));
    }
}

/// A field that a key has only where it shares an identity.
#[test]
fn a_key_of_a_shared_identity_is_kept_as_it_was() {
    let made = tempfile::tempdir().expect("a directory");
    let catalog = Catalog::open(&made.path().join("catalog")).expect("a catalog");
    let [_, bare] = keys();
    let shares = KeyEntry {
        identity: Some("edge-1".into()),
        ..bare
    };
    catalog.put_key(&shares).expect("kept");
    let disk = OsDisk::new(made.path()).expect("a disk");
    let text = disk.read("catalog.json").expect("the catalog as text");
    check_written("catalog-identity.json", &text);
    drop(catalog);
    fs::remove_dir_all(made.path().join("catalog")).expect("removed");
    let again = Catalog::open(&made.path().join("catalog")).expect("made of the text");
    assert_eq!(again.keys().expect("keys"), [shares]);
}

/// A scope that came later than the others.
#[test]
fn a_key_for_questions_about_actions_is_kept_as_it_was() {
    let made = tempfile::tempdir().expect("a directory");
    let catalog = Catalog::open(&made.path().join("catalog")).expect("a catalog");
    let [_, bare] = keys();
    let asks = KeyEntry {
        scopes: vec![Scope::Actions],
        ..bare
    };
    catalog.put_key(&asks).expect("kept");
    let disk = OsDisk::new(made.path()).expect("a disk");
    let text = disk.read("catalog.json").expect("the catalog as text");
    check_written("catalog-actions.json", &text);
}

#[test]
fn a_run_of_ids_is_written_as_it_was() {
    let disk = SimDisk::default();
    let clock = Arc::new(ManualClock::new(NOW_MS, true));
    let options = Options {
        segment_bytes: 1 << 20,
        ..Options::default()
    };
    let world = world(disk.clone(), clock);
    let (store, _) = Store::open(world, options, Schema::default_clicks()).expect("a store");
    let ids = ["a", "b", "an id with blanks", "日本語"];
    let click = |id: &&str| Increment {
        id: Some((*id).to_owned()),
        ..Increment::new(NOW_MS / 1_000, 1, [("l", "a")])
    };
    let batch = Batch {
        increments: ids.iter().map(click).collect(),
        ..Batch::default()
    };
    let outcome = store.intake().commit(vec![batch]).remove(0);
    assert_eq!(outcome.expect("counted").accepted, 4);
    store.ledger().flush().expect("flushed");
    let manifest = store.manifest();
    let [run] = &manifest.intake.ids.runs[..] else {
        panic!("one run: {:?}", manifest.intake.ids);
    };
    let written = disk.read(&run.run.name).expect("the run");
    // Another zstd may compress otherwise, and files are named after their bytes.
    let compression = &run.run.meta.compression;
    assert!(
        compression.ends_with(" columns 2 summaries 2 level 1"),
        "{compression}"
    );
    if compression.starts_with("zstd 1.5.7 ") {
        check_written("ids-5.csv.zst", &written);
        assert_eq!(
            run.run.name,
            "ids/ids.2012-03.s00of01.3ad9c336393e24f4.csv.zst"
        );
    }
    let plain = |file: &[u8]| zstd::decode_all(file).expect("zstd");
    for kept in [
        "ids-1.csv.zst",
        "ids-2.csv.zst",
        "ids-3.csv.zst",
        "ids-4.csv.zst",
    ] {
        let kept = golden(kept);
        assert_eq!(plain(&written), plain(&kept), "the lines of ids changed");
    }
}
