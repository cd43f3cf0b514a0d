//! Erased users leave the log, its second copy and its backups, and all of them go on: with the same counts, ids and
//! verdicts, from any form that a segment has anywhere.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use tallyring_archive::{Disk, names};
use tallyring_realtime::oplog::{LogCopy, LogCopyAck, ReadFrom, scan};
use tallyring_realtime::{Batch, Clock, Options, Store};
use tallyring_rebuild::backup::{copy, join_log};
use tallyring_rebuild::heal_segment;
use tallyring_records::{Details, Event, Evidence, Increment, Record, Schema, decode_all};
use tallyring_tests::answers;
use tallyring_tests::model::{ManualClock, world};
use tallyring_tests::sim_disk::SimDisk;

const SEGMENT_BYTES: u64 = 1 << 12;
/// 2012-03-16T00:00:00Z.
const START_MS: i64 = 1_331_856_000_000;
/// Names that stand nowhere else.
const ANN: &str = "ann-who-is-erased";
const ASIDE: &str = "a value of hers";
const SEEN: &str = "an insertion that she saw";

/// One data directory, whose log may have a second copy.
struct Place {
    clock: Arc<ManualClock>,
    disk: SimDisk,
    there: SimDisk,
    store: Store,
    sent: u64,
    /// Days that have passed.
    day: i64,
}

impl Place {
    fn new(has_copy: bool) -> Self {
        Self::on(SimDisk::default(), SimDisk::default(), has_copy)
    }

    fn on(disk: SimDisk, there: SimDisk, has_copy: bool) -> Self {
        let options = Options {
            segment_bytes: SEGMENT_BYTES,
            oplog_bytes_max: 64 * SEGMENT_BYTES,
            journal_days: 90,
            ..Options::default()
        };
        let clock = Arc::new(ManualClock::new(START_MS, true));
        let log_copy = has_copy.then(|| {
            let (log, there) = (Arc::new(disk.clone()), Arc::new(there.clone()));
            let copy = LogCopy::open(log, there, "copy".into(), LogCopyAck::Local, START_MS);
            copy.expect("a copy of this log")
        });
        let opened = Store::open(
            world(disk.clone(), Arc::clone(&clock) as _),
            options,
            Schema::default_clicks(),
        );
        let (store, _) = opened.expect("a whole store");
        let store = match log_copy {
            Some(copy) => store.with_log_copy(copy),
            None => store,
        };
        Self {
            clock,
            disk,
            there,
            store,
            sent: 0,
            day: 1,
        }
    }

    /// Starts again, with a copy or without.
    fn again(self, has_copy: bool) -> Self {
        let (sent, day) = (self.sent, self.day);
        let (disk, there) = (self.disk.clone(), self.there.clone());
        drop(self);
        Self {
            sent,
            day,
            ..Self::on(disk, there, has_copy)
        }
    }

    fn send(&mut self, count: u64) {
        for id in self.sent..self.sent + count {
            assert_eq!(self.outcome(id), (1, 0));
        }
        self.sent += count;
    }

    /// How many are accepted, and how many are duplicates, of an event that is sent.
    fn outcome(&self, id: u64) -> (u64, u64) {
        let batch = Batch {
            increments: vec![event(id)],
            ..Batch::default()
        };
        let outcome = self.store.intake().commit(vec![batch]).remove(0);
        let accepted = outcome.expect("a sound disk");
        (accepted.accepted, accepted.duplicates)
    }

    fn bring_up(&self) {
        while !self.store.intake().copy_log().expect("copied") {}
    }

    fn back_up(&self, backup: &SimDisk) {
        copy(&self.disk.blobs(), &backup.blobs(), &|_| false, &|_, _| {}).expect("backed up");
    }

    /// Erases the person, after which a night passes.
    fn erase(&self) {
        self.store.erase(&[ANN.into()]).expect("erased");
        self.night();
    }

    /// Lets days pass, and the last night.
    fn pass(&self, days: i64) {
        let now_ms = self.clock.now_ms() + days * 86_400_000;
        self.clock.set(now_ms);
        self.store.intake().tick().expect("turned");
        self.night();
    }

    fn night(&self) {
        self.store.ledger().flush().expect("flushed");
        self.store.ledger().expire_log().expect("a new segment");
    }

    /// Packs segments and takes users out of them, as the server does on the next day. Returns out of how many.
    fn redact(&mut self) -> usize {
        self.day += 1;
        let (ledger, stop) = (self.store.ledger(), AtomicBool::new(false));
        while let Some(first) = ledger.to_pack(0).expect("a log") {
            ledger.pack(first, &stop).expect("packed");
        }
        let mut redacted = 0;
        while let Some(first) = ledger.to_redact(self.day).expect("a log") {
            redacted += usize::from(ledger.redact(first, self.day, &stop).expect("redacted"));
        }
        redacted
    }

    /// Every event counts once, and is known.
    fn check(&self) {
        assert_eq!(total(&self.store), self.sent);
        for id in 0..self.sent {
            assert_eq!(self.outcome(id), (0, 1), "event {id} is known");
            let found = self.store.intake().id_history(None, &id.to_string());
            let found = found.expect("a whole log").counts;
            let Record::Increment(increment) = &found[0].logged.record else {
                panic!("{found:?}");
            };
            assert_eq!(increment.id, Some(id.to_string()));
            assert_eq!(increment.keys, event(id).keys);
        }
    }
}

/// Every second one is of the person.
fn event(id: u64) -> Increment {
    let details = Details {
        set_aside: vec![("c".into(), ASIDE.into())],
        insertion: Some(SEEN.to_owned()),
        referrer: Some(format!("https://{ANN}.example/")),
        meta: Some(format!("{{\"name\":\"{ANN}\"}}")),
        evidence: Evidence {
            ip: Some("192.0.2.7".into()),
            ua: Some(ANN.into()),
            referrer: None,
        },
    };
    let is_of_ann = id.is_multiple_of(2);
    Increment {
        id: Some(id.to_string()),
        user: Some(if is_of_ann { ANN } else { "bob" }.into()),
        by: vec![("c".into(), "US".into())],
        event: Some(Box::new(Event {
            kind: "click".into(),
            view: None,
            correction: false,
        })),
        details: details.boxed().filter(|_| is_of_ann),
        ..Increment::new(START_MS / 1_000, 1, [("l", "a")])
    }
}

fn total(store: &Store) -> u64 {
    answers::total(store, "l", "a")
}

/// The segment that is to be redacted next.
fn due(place: &Place) -> Option<u64> {
    place.store.ledger().to_redact(place.day).expect("a log")
}

/// How many records of a log tell of the person, in any text.
fn naming(disk: &SimDisk) -> usize {
    telling(disk, &[ANN, ASIDE, SEEN, "192.0.2.7"])
}

/// How many records of a log have one of these texts.
fn telling(disk: &SimDisk, texts_of: &[&str]) -> usize {
    let mut found = 0;
    scan(disk, None, ReadFrom::Oldest, &mut |frame| {
        let records = decode_all(frame.payload, frame.count)?;
        let texts = records.iter().map(|record| format!("{record:?}"));
        found += texts
            .filter(|text| texts_of.iter().any(|of| text.contains(of)))
            .count();
        Ok(())
    })
    .expect("a whole log");
    found
}

#[test]
fn a_person_leaves_log_copy_and_backup_and_all_goes_on() {
    let (mut place, backup) = (Place::new(true), SimDisk::default());
    // The copy and the backup end in the middle of a segment.
    for count in [7, 80] {
        place.send(count);
        place.bring_up();
        place.back_up(&backup);
    }
    place.send(1);
    place.erase();
    place.bring_up();
    assert!(place.redact() > 2);
    assert_eq!([&place.disk, &place.there].map(naming), [0, 0]);
    assert!(naming(&backup) > 0, "it is of before");
    place.back_up(&backup);
    assert_eq!(naming(&backup), 0);
    place.check();
    let mut place = place.again(true);
    place.check();
    place.send(9);
    place.bring_up();
    place.back_up(&backup);
    let restored = SimDisk::default();
    copy(&backup.blobs(), &restored.blobs(), &|_| true, &|_, _| {}).expect("restored");
    restored.blobs().put(names::RESTORING, b"").expect("marked");
    assert_eq!(
        total(&Place::on(restored, SimDisk::default(), false).store),
        place.sent
    );
}

#[test]
fn a_segment_is_read_once_for_each_set_of_erasures_and_a_failure_is_tried_again_the_next_day() {
    let mut place = Place::new(false);
    place.send(20);
    place.erase();
    assert!(place.redact() > 0);
    place.day += 1;
    assert_eq!(due(&place), None, "all was looked at");
    place.erase();
    assert_eq!(due(&place), Some(0), "somebody was erased since");
    place.disk.flip_bit(&names::segment(0), 8 * 200);
    let ledger = place.store.ledger();
    ledger
        .redact(0, place.day, &AtomicBool::new(false))
        .expect_err("damage");
    assert_ne!(due(&place), Some(0), "not again today");
    place.day += 1;
    assert_eq!(due(&place), Some(0));
    place.disk.flip_bit(&names::segment(0), 8 * 200);
    place.redact();
    place.day += 1;
    assert_eq!(due(&place), None);
    place.check();
}

#[test]
fn a_person_stays_in_segments_that_the_copy_lacks_until_it_has_them() {
    let mut place = Place::new(true);
    place.send(15);
    place.bring_up();
    place.send(30);
    place.erase();
    place.redact();
    assert!(naming(&place.disk) > 0, "the copy lacks some");
    place.bring_up();
    assert!(place.redact() > 0);
    assert_eq!([&place.disk, &place.there].map(naming), [0, 0]);
    place.check();
}

#[test]
fn a_copy_without_space_to_spare_goes_on_and_loses_the_person_once_it_has_some() {
    let mut place = Place::new(true);
    place.send(41);
    place.erase();
    place.bring_up();
    // Room for what is sent, but not for a segment that stands there twice.
    place.there.set_free_bytes(3_500);
    let (ledger, stop) = (place.store.ledger(), AtomicBool::new(false));
    while let Some(first) = ledger.to_pack(0).expect("a log") {
        ledger.pack(first, &stop).expect("packed");
    }
    let first = ledger.to_redact(place.day).expect("a log");
    let error = ledger.redact(first.expect("one"), place.day, &stop);
    let error = error.expect_err("no space");
    assert!(error.is_disk_full(), "{error}");
    let left = place.there.list(names::OPLOG).expect("listed");
    assert!(
        !left.iter().any(|name| names::PACKING.ends_with(&**name)),
        "{left:?}"
    );
    // Not of the person.
    place.send(1);
    place.bring_up();
    assert_eq!(due(&place), first, "again as soon as there is space");
    place.there.set_free_bytes(1 << 40);
    assert!(place.redact() > 0);
    assert_eq!([&place.disk, &place.there].map(naming), [0, 0]);
    place.check();
}

#[test]
fn a_copy_that_was_away_meanwhile_goes_on_and_loses_the_person() {
    let mut place = Place::new(true);
    place.send(15);
    place.bring_up();
    let mut place = place.again(false);
    place.send(30);
    place.erase();
    assert!(place.redact() > 0);
    assert!(naming(&place.there) > 0);
    let mut place = place.again(true);
    place.bring_up();
    assert_eq!(place.redact(), 0, "the log has none");
    assert_eq!(naming(&place.there), 0);
    place.check();
}

#[test]
fn a_backup_of_before_is_restored_with_a_copy_of_after_and_the_person_leaves_again() {
    let (mut place, backup) = (Place::new(true), SimDisk::default());
    place.send(60);
    place.back_up(&backup);
    place.send(31);
    place.erase();
    place.bring_up();
    assert!(place.redact() > 0);
    // One of bob: what the person does from now on is logged again.
    place.send(1);
    place.bring_up();
    let sent = place.sent;
    let joined = join_log(&backup.blobs(), &place.there.blobs()).expect("joined");
    assert!(joined.records > 30 && joined.left.is_none(), "{joined:?}");
    assert!(
        naming(&backup) > 0,
        "the copy replaces the last segment alone"
    );
    // As a restore does: the log goes further than the manifest.
    backup.blobs().put(names::RESTORING, b"").expect("marked");
    let mut again = Place {
        sent,
        ..Place::on(backup, place.there.clone(), true)
    };
    assert!(again.store.live().has_erased());
    again.check();
    again.bring_up();
    again.night();
    again.redact();
    assert_eq!([&again.disk, &again.there].map(naming), [0, 0]);
    again.check();
}

#[test]
fn a_segment_that_is_healed_by_its_form_of_before_loses_the_person_again() {
    let (mut place, backup) = (Place::new(false), SimDisk::default());
    place.send(40);
    place.night();
    place.back_up(&backup);
    place.erase();
    assert!(place.redact() > 0);
    let name = names::segment(0);
    let bytes = place.disk.read(&name).expect("a segment").len();
    place.disk.flip_bit(&name, 8 * (bytes / 2));
    assert!(heal_segment(&place.disk.blobs(), &backup.blobs(), &name).expect("healed"));
    assert!(naming(&place.disk) > 0, "the backup is of before");
    let mut place = place.again(false);
    assert!(place.redact() > 0);
    assert_eq!(naming(&place.disk), 0);
    place.check();
}

/// The users of all records, each once.
fn users(disk: &SimDisk) -> BTreeSet<Option<String>> {
    let mut users = BTreeSet::new();
    scan(disk, None, ReadFrom::Oldest, &mut |frame| {
        let records = decode_all(frame.payload, frame.count)?;
        let increments = records.iter().filter_map(Record::increment);
        users.extend(increments.map(|(_, increment)| increment.user.clone()));
        Ok(())
    })
    .expect("a whole log");
    users
}

#[test]
fn old_segments_are_a_journal_with_pseudonyms_which_an_erasure_finds() {
    let mut place = Place::new(true);
    place.send(41);
    place.pass(2);
    assert_eq!(place.redact(), 0, "the log itself has the names");
    place.pass(8);
    assert_eq!(place.redact(), 0, "the copy lacks what is not copied yet");
    place.bring_up();
    let segments = place.disk.list(names::OPLOG).expect("listed").len();
    assert!(place.redact() > 0);
    for disk in [&place.disk, &place.there] {
        assert_eq!(telling(disk, &[ANN, ASIDE, "192.0.2.7"]), 0);
        assert!(telling(disk, &[SEEN]) > 0, "rules need insertions");
    }
    assert_eq!(
        place.disk.list(names::OPLOG).expect("listed").len(),
        segments
    );
    let named = users(&place.disk);
    assert_eq!(named.len(), 2, "one pseudonym for each: {named:?}");
    let is_pseudonym = |user: &Option<String>| user.as_ref().is_some_and(|user| user.len() == 23);
    assert!(named.iter().all(is_pseudonym), "{named:?}");

    let mut place = place.again(true);
    place.clock.set(START_MS + 10 * 86_400_000);
    assert_eq!(place.redact(), 0, "a start knows which segments are done");
    place.erase();
    place.bring_up();
    assert!(place.redact() > 0);
    let left = users(&place.disk);
    assert!(left.len() == 2 && left.contains(&None), "{left:?}");
    assert!(left.is_subset(&named.into_iter().chain([None]).collect()));
    assert_eq!(total(&place.store), 41);

    place.pass(90);
    assert_eq!(users(&place.disk), BTreeSet::new(), "the journal is over");
    assert_eq!(total(&place.store), 41);
}

#[test]
fn a_journal_goes_before_the_log_refuses_anything() {
    let mut place = Place::new(false);
    let names = |place: &Place| place.disk.list(names::OPLOG).expect("listed");
    place.send(41);
    let first = names(&place).into_iter().min();
    place.pass(2);
    place.pass(8);
    assert!(place.redact() > 0);
    assert_eq!(names(&place).into_iter().min(), first, "there is room");
    while !place.store.intake().log_wants_room() {
        place.send(10);
    }
    place.night();
    assert_ne!(names(&place).into_iter().min(), first);
}
