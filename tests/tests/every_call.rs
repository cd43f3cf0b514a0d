//! A scripted day has a midnight, rebuilds, late counts, an erased user who leaves the log, a click that is voided, a
//! tap that a rule catches until the rule goes, and an end: a reconcile makes the day final, without the click and with
//! the tap. Each of its calls of the disk fails once in each way, and each call is once the last one before the process
//! dies or power is lost.
//!
//! Whichever call fails: the next start works, acknowledged clicks are counted, the others are counted once when they
//! are sent again, every file that counts and every segment of the log is sound, and with the final day, and not
//! before, the voided click is gone and the tap is back. No file of a final day is there that no manifest names, and
//! the log tells of each final version.

use std::collections::BTreeSet;
use std::io::ErrorKind;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use rayon::prelude::*;
use tallyring_archive::{FinalEntry, KeepDays, names, verify_run};
use tallyring_realtime::oplog::{Frame, ReadFrom, scan};
use tallyring_realtime::{Batch, Error, Options, Read, Reconcile, Store, VoidOrder};
use tallyring_rebuild::{BuildOptions, REWRITE_BYTES_MIN, build};
use tallyring_records::{
    Event, EventType, Filter, Increment, Namespace, Record, Schema, TIME_MAX, TIME_MIN, decode_all,
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
/// The key and the id of the click that is voided.
const VOIDED: &str = "voided";
/// The type of events that a rule catches, where it counts, and the key of the only one.
const TAP: &str = "tap";
const TAPS: &str = "l_tap";
const RESTORED: &str = "restored";
/// Files of a reconcile begin with it.
const LOAD: &str = "0123456789abcdef";

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
    /// Whether the click that is voided was acknowledged.
    has_click: bool,
    /// Whether the void was.
    is_voided: bool,
    /// Whether the tap was acknowledged.
    has_tap: bool,
    /// Whether the rule that catches it is in force, if a start declares.
    has_rule: bool,
    /// Whether its end was acknowledged.
    rule_ended: bool,
    /// Whether a final version was published, perhaps without an answer.
    is_perhaps_final: bool,
    /// Whether a final version of after the void was acknowledged.
    is_gone: bool,
    /// Whether a final version of after the end of the rule was.
    is_restored: bool,
    /// Whether its fix both adds and takes away.
    fixes_both_ways: bool,
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
            is_voided: false,
            has_tap: false,
            has_rule: true,
            rule_ended: false,
            is_perhaps_final: false,
            is_gone: false,
            is_restored: false,
            fixes_both_ways: false,
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
        let opened = Store::open(world, options, schema(self.has_rule));
        opened.ok().map(|(store, _)| store)
    }

    /// The script; what fails is passed over, as a server does.
    fn live(&mut self) {
        let Some(store) = self.open() else { return };
        self.commit(&store, START, 3);
        let click = Increment {
            by: vec![("c".into(), "US".into())],
            id: Some(VOIDED.into()),
            ..Increment::new(START, 1, [("l", VOIDED)])
        };
        self.has_click = commit_one(&store, click);
        let tap = Increment {
            by: vec![("c".into(), "US".into())],
            user: Some(USER.into()),
            event: Some(Box::new(Event {
                kind: TAP.into(),
                view: None,
                correction: false,
            })),
            ..Increment::new(START, 1, [(TAPS, RESTORED)])
        };
        self.has_tap = commit_one(&store, tap);
        let _ = store.ledger().flush();
        let _ = store.intake().prepare_segment();
        self.commit(&store, START + HOUR, 2);
        self.clock.set((START + 5 * HOUR) * 1_000);
        let _ = store.intake().tick();
        self.commit(&store, START + 5 * HOUR, 2);
        self.rebuild(&store);
        self.commit(&store, START + 5 * HOUR, 1);
        self.clock.set((START + 60 * HOUR) * 1_000);
        let _ = store.intake().tick();
        let _ = store.ledger().flush();
        let _ = store.ledger().expire_log();
        let _ = store.erase(&[USER.into()]);
        self.pack_and_redact(&store);
        self.commit(&store, START + 60 * HOUR, 1);
        let _ = self.void(&store);
        self.rebuild(&store);
        self.has_rule = false;
        self.rule_ended = store.declare(schema(self.has_rule)).is_ok();
        let _ = store.intake().seal();
        let _ = self.make_final(&store);
    }

    fn rebuild(&mut self, store: &Store) {
        let Ok(manifest) = store.ledger().cut() else {
            return;
        };
        // While it is built a late one comes.
        self.commit(store, START, 1);
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

    fn void(&mut self, store: &Store) -> Result<(), Error> {
        let order = VoidOrder {
            identity: None,
            id: VOIDED,
            reason: "it was a test",
            actor: "installation",
            four_eyes: false,
        };
        let voided = store.intake().void(order)?;
        self.is_voided = !(voided.now.is_empty() && voided.before.is_empty());
        Ok(())
    }

    /// Reconciles the first day, and publishes what is new.
    fn make_final(&mut self, store: &Store) -> Result<(), Error> {
        let (blobs, ledger) = (self.disk.blobs(), store.ledger());
        let reconcile = Reconcile {
            day: tallyring_records::Day::of(START),
            load: LOAD,
            rules: None,
            by: None,
            shards: SHARDS,
            level: 1,
            // So little that ids go to files.
            memory_bytes: 1 << 9,
        };
        let manifest = ledger.begin_reconcile()?;
        let judged = reconcile.run(&blobs, &manifest, &|_, _| {});
        let published = judged.and_then(|judged| {
            assert!(judged.unexplained.is_none(), "{:?}", judged.unexplained);
            self.is_perhaps_final = true;
            self.fixes_both_ways = !judged.plus.is_empty() && !judged.minus.is_empty();
            match judged.is_new {
                true => ledger.publish_final(&judged.into_final()),
                false => Ok(()),
            }
        });
        for file in blobs.list(names::INCOMING).unwrap_or_default() {
            let _ = blobs.remove(&format!("{}/{file}", names::INCOMING));
        }
        published?;
        self.is_gone = self.is_voided;
        self.is_restored = self.rule_ended;
        Ok(())
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
        let store = self.open().expect("the next start works");
        self.rule_ended = !self.has_rule;
        store
    }

    /// The click counts until a final version takes it away, and the tap from then on.
    fn check_corrected(&self, store: &Store) {
        let found = sums(store, ("l", VOIDED));
        let is_right = match found {
            [1, 1] => !self.is_gone,
            [0, 0] => self.is_perhaps_final || !self.has_click,
            _ => false,
        };
        let (has_click, is_gone) = (self.has_click, self.is_gone);
        assert!(
            is_right,
            "{found:?}, acknowledged: {has_click}, gone: {is_gone}"
        );
        let found = sums(store, (TAPS, RESTORED));
        let is_right = match found {
            [1, 1] => self.is_perhaps_final,
            [0, 0] => !(self.is_restored && self.has_tap),
            _ => false,
        };
        let (has_tap, is_restored) = (self.has_tap, self.is_restored);
        assert!(
            is_right,
            "{found:?}, acknowledged: {has_tap}, restored: {is_restored}"
        );
    }

    fn check(&mut self, store: &Store) {
        self.check_corrected(store);
        let [total, country] = sums(store, ("l", LINK));
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
            sums(store, ("l", LINK)),
            [sent * 2; 2],
            "each counts once when it is sent again"
        );
        self.clock.set((START + 60 * HOUR) * 1_000);
        store.intake().tick().expect("a sound disk");
        self.void(store).expect("a sound disk");
        assert!(self.is_voided || !self.has_click, "its id is known");
        self.rebuild(store);
        self.make_final(store).expect("a sound disk");
        self.check_corrected(store);
        assert_eq!(sums(store, ("l", LINK)), [self.sent.len() as u64 * 2; 2]);
        store.ledger().flush().expect("a sound disk");
        let manifest = store.manifest();
        for entry in manifest.files() {
            verify_run(&self.disk.blobs(), entry).expect("a sound file");
        }
        let finals = manifest.archive.finals.iter();
        let named: BTreeSet<&str> = (finals.flat_map(FinalEntry::files))
            .map(|file| &*file.name)
            .collect();
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
        assert!(named.len() > 0, "the day is final");
        assert!(named.eq(logged), "each version is in the log");
    }
}

/// The schema, perhaps with a rule that catches all that the user taps.
fn schema(has_rule: bool) -> Schema {
    let mut schema = Schema::default_clicks();
    schema.namespaces.push(Namespace {
        name: TAPS.into(),
        ..schema.namespaces[0].clone()
    });
    schema.events.push(EventType {
        name: TAP.into(),
        entities: vec!["l".into()],
        lateness_seconds: 300,
        actions: false,
    });
    let rule = Filter::of_values("bots", &[TAP], "user", &[USER]);
    schema.filters.extend(has_rule.then_some(rule));
    schema
}

fn commit_one(store: &Store, increment: Increment) -> bool {
    let batch = Batch {
        increments: vec![increment],
        ..Batch::default()
    };
    store.intake().commit(vec![batch]).remove(0).is_ok()
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
fn sums(store: &Store, (namespace, key): (&str, &str)) -> [u64; 2] {
    let read = Read {
        namespace: namespace.into(),
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
    assert!(
        sound.is_gone,
        "the click was voided before the day became final"
    );
    assert!(sound.fixes_both_ways, "the tap is back");
    let calls = sound.disk.calls();
    assert!(calls >= CALLS_MIN, "{calls} calls");
    let store = sound.restart(true, 0);
    sound.check(&store);
    let days = (1..=calls).into_par_iter().map(|call| {
        let mut refused = 0;
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
        refused
    });
    let refused: u64 = days.sum();
    assert!(
        refused > calls,
        "only {refused} days saw a refusal: the faults do not bite"
    );
}
