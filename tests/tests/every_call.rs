//! A scripted day has a midnight, a rebuild, a late count, an erased user who leaves the log, and an end: the day is
//! final, with a fix that moves a click to another key. Each of its calls of the disk fails once in each way, and each
//! call is once the last one before the process dies or power is lost.
//!
//! Whichever call fails: the next start works, acknowledged clicks are counted, the others are counted once when they
//! are sent again, every file that counts and every segment of the log is sound, and the click counts on one of the two
//! keys. No file of a final day is there that no manifest names, and the log tells of each final version.

use std::collections::{BTreeMap, BTreeSet};
use std::io::ErrorKind;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use tallyring_archive::{
    Corrects, FinalEntry, FinalProof, KeepDays, Origin, Partition, RunEntry, RunSpec, RunWriter,
    names, verify_run,
};
use tallyring_realtime::oplog::{Frame, ReadFrom, scan};
use tallyring_realtime::{Batch, Final, Fix, Options, Read, Store};
use tallyring_rebuild::{BuildOptions, REWRITE_BYTES_MIN, build};
use tallyring_records::{
    Grain, Increment, Record, Schema, TIME_MAX, TIME_MIN, TimeCode, decode_all, shard_of,
};
use tallyring_tests::model::{ManualClock, world};
use tallyring_tests::sim_disk::{SimDisk, random};

const HOUR: i64 = 3_600;
/// 2012-03-16T20:00:00Z.
const START: i64 = 1_331_928_000;
/// Fewer calls than this and the script does less than it says.
const CALLS_MIN: u64 = 150;

const SHARDS: u16 = 2;
/// The user of all clicks.
const USER: &str = "ann";
const LINK: &str = "a link that is long";
/// The key of a click, and the key to which a fix moves it.
const KEYS: [&str; 2] = ["before", "after"];
/// The hash of the content of the final version, as if it were.
const CONTENT: &str = "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff";
/// The loads of the fix and of the books.
const LOADS: [&str; 2] = ["0123456789abcdef", "0123456789abcdee"];

/// The fault that befalls one call.
#[derive(Debug, Clone, Copy)]
enum Fault {
    Fails(ErrorKind),
    IsTheLast,
}

const FAULTS: [Fault; 3] = [
    Fault::Fails(ErrorKind::Other),
    Fault::Fails(ErrorKind::StorageFull),
    Fault::IsTheLast,
];

struct Day {
    disk: SimDisk,
    clock: Arc<ManualClock>,
    /// Acknowledged or not, by the number in its id.
    sent: Vec<bool>,
    /// Whether the click that is moved was acknowledged.
    has_click: bool,
    /// Whether the fix was.
    is_moved: bool,
    /// Segments of the log that the user left.
    redacted: u64,
}

impl Day {
    fn new() -> Self {
        Self {
            disk: SimDisk::default(),
            clock: Arc::new(ManualClock::new(START * 1_000, true)),
            sent: Vec::new(),
            has_click: false,
            is_moved: false,
            redacted: 0,
        }
    }

    fn open(&self) -> Option<Store> {
        let world = world(self.disk.clone(), Arc::clone(&self.clock) as _);
        let options = Options {
            shards: SHARDS,
            segment_bytes: 512,
            id_hours: 96,
            ..Options::default()
        };
        let opened = Store::open(world, options, Schema::default_clicks());
        opened.ok().map(|(store, _)| store)
    }

    /// The script; what fails is passed over, as a server does.
    fn live(&mut self) {
        let Some(store) = self.open() else { return };
        self.commit(&store, START, 3);
        let click = Increment {
            by: vec![("c".into(), "US".into())],
            ..Increment::new(START, 1, [("l", KEYS[0])])
        };
        let click = Batch {
            increments: vec![click],
            ..Batch::default()
        };
        self.has_click = store.intake().commit(vec![click]).remove(0).is_ok();
        let _ = store.ledger().flush();
        let _ = store.intake().prepare_segment();
        self.commit(&store, START + HOUR, 2);
        self.clock.set((START + 5 * HOUR) * 1_000);
        let _ = store.intake().tick();
        self.commit(&store, START + 5 * HOUR, 2);
        if let Ok(manifest) = store.ledger().cut() {
            // While it is built a late one comes.
            self.commit(&store, START, 1);
            let options = BuildOptions {
                breakdown_hours: 3,
                rewrite_bytes_min: REWRITE_BYTES_MIN,
                shards: SHARDS,
                level: 1,
                keep: KeepDays {
                    minutes: Some(30),
                    hours: None,
                    actions: None,
                },
            };
            if let Ok(Some(built)) = build(&self.disk.blobs(), &manifest, options, &|_, _| {}) {
                let _ = store.ledger().publish(&built);
            }
        }
        self.commit(&store, START + 5 * HOUR, 1);
        self.clock.set((START + 60 * HOUR) * 1_000);
        let _ = store.intake().tick();
        let _ = store.ledger().flush();
        let _ = store.ledger().expire_log();
        let _ = store.erase(&[USER.into()]);
        self.pack_and_redact(&store);
        self.commit(&store, START + 60 * HOUR, 1);
        let _ = store.intake().seal();
        self.is_moved = self.fix(&store).is_some_and(|published| published);
    }

    fn pack_and_redact(&mut self, store: &Store) {
        let stop = AtomicBool::new(false);
        let ledger = store.ledger();
        while let Ok(Some(first)) = ledger.to_pack(0)
            && let Ok(true) = ledger.pack(first, &stop)
        {}
        while let Ok(Some(first)) = ledger.to_redact(1)
            && let Ok(has) = ledger.redact(first, 1, &stop)
        {
            self.redacted += u64::from(has);
        }
    }

    /// Moves the click from one key to the other, in a final version of the day; none where the runs cannot be written.
    fn fix(&self, store: &Store) -> Option<bool> {
        let [minus, plus] = KEYS.map(|key| self.write(LOADS[0], key));
        let (day, version) = (tallyring_records::Day::of(START), 1);
        let upto = store.live().applied().sequence;
        let fix = Fix {
            day,
            version,
            corrects: Corrects {
                from: 0,
                until: upto,
            },
            plus: vec![plus?],
            minus: vec![minus?],
        };
        let entry = FinalEntry {
            day,
            version,
            at_ms: 0,
            upto,
            rules: "00".into(),
            books: vec![self.write(LOADS[1], KEYS[1])?],
            verdicts: None,
            types: BTreeMap::new(),
            touched: false,
            sums_only: false,
            forced: false,
            actor: None,
            proof: Some(FinalProof {
                ids_from: 0,
                ids_from_ms: None,
                content: CONTENT.into(),
                is_logged: false,
            }),
        };
        let closed = Final {
            entry,
            fix: Some(fix),
        };
        Some(store.ledger().publish_final(&closed).is_ok())
    }

    /// Writes a sorted run with the click on a key.
    fn write(&self, load: &str, key: &str) -> Option<RunEntry> {
        let total = format!("l|{key}");
        let hour = TimeCode::containing(START, Grain::Hour);
        let spec = RunSpec {
            origin: Origin::Sorted(load.into()),
            partition: Partition::month_of(hour),
            shard: shard_of(total.as_bytes(), SHARDS),
            shards: SHARDS,
            level: 1,
        };
        let mut writer = RunWriter::create(&self.disk.blobs(), spec).ok()?;
        for (line, payload) in [
            (format!("c.{total}.{hour}"), "US:1".to_owned()),
            (total.clone(), format!("{hour}:1")),
            (format!("r.{total}.{hour}"), "-:1".to_owned()),
        ] {
            writer.push(line.as_bytes(), payload.as_bytes()).ok()?;
        }
        writer.finish().ok()?
    }

    fn commit(&mut self, store: &Store, at: i64, batches: usize) {
        for _ in 0..batches {
            let number = self.sent.len();
            let outcome = store.intake().commit(vec![batch(number, at)]).remove(0);
            self.sent.push(outcome.is_ok());
        }
    }

    /// The process ends, or power is lost; the next one opens what is there.
    fn restart(&mut self, power_is_lost: bool, seed: u64) -> Store {
        self.disk = match power_is_lost {
            true => self.disk.crash(&mut random(seed)),
            false => self.disk.kill(),
        };
        self.open().expect("the next start works")
    }

    /// The click counts once, on the first key until it is moved.
    fn check_click(&self, store: &Store) {
        let found = KEYS.map(|key| sums(store, key));
        let moved = [[0, 0], [1, 1]];
        let is_right = match found {
            [[1, 1], [0, 0]] => !self.is_moved,
            found if found == moved => true,
            [[0, 0], [0, 0]] => !self.has_click && !self.is_moved,
            _ => false,
        };
        let (has_click, is_moved) = (self.has_click, self.is_moved);
        assert!(
            is_right,
            "{found:?}, acknowledged: {has_click}, moved: {is_moved}"
        );
    }

    fn check(&mut self, store: &Store) {
        self.check_click(store);
        let [total, country] = sums(store, LINK);
        assert_eq!(total, country, "the subtotal sums to the total");
        let acknowledged = self.sent.iter().filter(|sent| **sent).count() as u64;
        let sent = self.sent.len() as u64;
        assert!(
            (acknowledged * 2..=sent * 2).contains(&total) && total.is_multiple_of(2),
            "{total} of {sent} batches of 2 are counted, {acknowledged} were acknowledged"
        );
        for number in 0..self.sent.len() {
            let outcome = store
                .intake()
                .commit(vec![batch(number, START + 60 * HOUR)])
                .remove(0);
            let known = outcome.expect("a sound disk").duplicates == 2;
            assert!(known || !self.sent[number], "batch {number} was forgotten");
        }
        assert_eq!(
            sums(store, LINK),
            [sent * 2; 2],
            "each counts once when it is sent again"
        );
        if self.fix(store) == Some(true) {
            self.is_moved = true;
        }
        self.check_click(store);
        store.ledger().flush().expect("a sound disk");
        let manifest = store.manifest();
        for entry in manifest.files() {
            verify_run(&self.disk.blobs(), entry).expect("a sound file");
        }
        let finals = manifest.archive.finals.iter();
        let named: BTreeSet<&str> = (finals.flat_map(FinalEntry::files))
            .map(|file| &*file.name)
            .collect();
        assert_eq!(named.len(), usize::from(self.is_moved), "{named:?}");
        for file in self.disk.blobs().list(names::FINALS).expect("a sound disk") {
            assert!(
                named.contains(&*format!("{}/{file}", names::FINALS)),
                "{file}"
            );
        }
        self.pack_and_redact(store);
        let blobs = self.disk.blobs();
        let mut logged = BTreeSet::new();
        let mut apply = |frame: Frame<'_>| {
            let records = decode_all(frame.payload, frame.count)?;
            logged.extend(records.into_iter().filter_map(|record| match record {
                Record::Final(version) => Some(version.version),
                _ => None,
            }));
            Ok(())
        };
        scan(blobs.disk(), None, ReadFrom::Oldest, &mut apply).expect("a sound log");
        let archive = &store.manifest().archive;
        assert!(archive.awaited.is_empty(), "{:?}", archive.awaited);
        let named = archive.finals.iter().map(|version| version.version);
        assert!(named.eq(logged), "each version is in the log");
    }
}

/// Two clicks with ids.
fn batch(number: usize, at: i64) -> Batch {
    let click = |part: &str| Increment {
        by: vec![("c".into(), "US".into())],
        id: Some(format!("{number}{part}")),
        user: Some(USER.into()),
        ..Increment::new(at, 1, [("l", LINK)])
    };
    Batch {
        increments: vec![click("a"), click("b")],
        ..Batch::default()
    }
}

/// Total, and sum by country.
fn sums(store: &Store, key: &str) -> [u64; 2] {
    let read = Read {
        namespace: "l".into(),
        key: key.into(),
        subtotal: Some("c".into()),
        from: TIME_MIN,
        to: TIME_MAX,
        rolled: None,
    };
    let series = store.view().read(&read, None).expect("a read");
    let points = series.points.iter();
    [series.totals.sum(), points.map(|point| point.count).sum()]
}

#[test]
fn no_call_of_a_day_can_fail_so_that_a_count_is_lost_or_doubled() {
    let mut sound = Day::new();
    sound.live();
    assert!(
        sound.sent.iter().all(|sent| *sent),
        "without a fault all is acknowledged"
    );
    assert!(sound.redacted > 1, "the user leaves segments of the log");
    let calls = sound.disk.calls();
    assert!(calls >= CALLS_MIN, "{calls} calls");
    let store = sound.restart(true, 0);
    sound.check(&store);
    let mut refused = 0;
    for call in 1..=calls {
        for fault in FAULTS {
            for power_is_lost in [false, true] {
                let mut day = Day::new();
                match fault {
                    Fault::Fails(kind) => day.disk.fail_nth_call(call, kind),
                    Fault::IsTheLast => day.disk.stop_at_nth_call(call),
                }
                let told = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
                    day.live();
                    refused += u64::from(day.sent.contains(&false));
                    let store = day.restart(power_is_lost, call);
                    day.check(&store);
                }));
                assert!(
                    told.is_ok(),
                    "call {call} of {calls}, {fault:?}, power is lost: {power_is_lost}"
                );
            }
        }
    }
    assert!(
        refused > calls,
        "only {refused} days saw a refusal: the faults do not bite"
    );
}
