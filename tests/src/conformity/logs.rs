//! The laws of logs, whatever keeps them: a local directory, or a topic with a mirror of it in each node's directory.
//!
//! Each law begins with an empty log, and reads it from its segments, as all readers do.
#![allow(clippy::unwrap_used, reason = "a test stops at what it did not expect")]

use std::collections::BTreeSet;
use std::ops::ControlFlow;

use tallyring_realtime::oplog::{
    Log, LogOptions, OplogError, PAYLOAD_BYTES_MAX, ReadFrom, copy_segment, pack, plain_bytes,
    read_each, read_on, scan, segment,
};
use tallyring_records::Offset;

use crate::model::Chance;
use crate::sim_disk::{SimDisk, random};

/// 2012-03-16T20:00:00Z, Unix milliseconds.
const NOW_MS: i64 = 1_331_928_000_000;
const HOUR_MS: i64 = 3_600_000;

/// Options of the laws: a segment has a few frames.
pub const OPTIONS: LogOptions = LogOptions {
    segment_bytes: 1 << 10,
    bytes_max: u64::MAX,
    store_id: [7; 16],
    plausible_ms: None,
    trusts_clock: false,
};

/// Opens the log of a directory as the next process does, at a time of its clock in Unix milliseconds. The log of
/// before is of no use then.
pub type Open = dyn FnMut(&SimDisk, LogOptions, i64) -> Result<Box<dyn Log>, OplogError>;

/// An empty log to try a law on.
pub struct Bench {
    /// The local directory.
    pub disk: SimDisk,
    /// Opens the log.
    pub open: Box<Open>,
    /// Lets the next frame be lost on its way.
    pub lose_next: Box<dyn Fn(&SimDisk)>,
}

impl Bench {
    fn open(&mut self) -> Box<dyn Log> {
        self.open_with(OPTIONS)
    }

    fn open_with(&mut self, options: LogOptions) -> Box<dyn Log> {
        (self.open)(&self.disk, options, NOW_MS).unwrap()
    }

    /// Opens the log after a loss of power.
    fn restart(&mut self, seed: u64) -> Box<dyn Log> {
        self.disk = self.disk.crash(&mut random(seed));
        self.open()
    }

    /// All frames from a record on: number of the first record, number of records, payload.
    fn frames(&self, from: ReadFrom) -> Result<Vec<Seen>, OplogError> {
        let mut seen = Vec::new();
        scan(&self.disk, Some(OPTIONS.store_id), from, &mut |frame| {
            seen.push((frame.first_sequence, frame.count, frame.payload.to_vec()));
            Ok(())
        })?;
        Ok(seen)
    }

    fn all(&self) -> Vec<Seen> {
        self.frames(ReadFrom::Oldest).unwrap()
    }
}

/// A frame: number of its first record, number of records, payload.
type Seen = (u64, u32, Vec<u8>);

/// Panics where it does not hold.
type Law = fn(&mut Bench);

/// Holds every law over a bench of its own. Panics, and names the law, where one does not hold.
pub fn check(bench: &dyn Fn() -> Bench) {
    let laws: [(&str, Law); 17] = [
        ("an empty log has nothing", is_empty_at_first),
        ("frames are read in order, from any record on", is_in_order),
        ("offsets are those of what was appended", counts_records),
        ("one commit makes several frames durable", commits_together),
        ("a frame has a largest size", has_largest_frame),
        ("a frame may be larger than a segment", outgrows_segments),
        ("a segment ends when asked, and has a record", ends_segments),
        ("epochs rise with each opening", raises_epochs),
        ("what is durable survives a loss of power", survives),
        ("a seal adds no record", seals),
        ("old segments go, and no others", is_trimmed),
        ("what is gone is told as missing", is_told_as_missing),
        ("a log does not outgrow its limit", is_limited),
        ("a doubted clock is marked", doubts_clocks),
        ("a packed segment has the same bytes", is_packed),
        ("a failure is no acknowledgement", fails_for_good),
        ("a log is of one store", is_of_one_store),
    ];
    for (law, hold) in laws {
        let mut bench = bench();
        let is_held = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| hold(&mut bench)));
        assert!(is_held.is_ok(), "this law does not hold: {law}");
    }
}

/// Appends and commits records, each a frame.
fn commit(log: &mut dyn Log, payloads: impl IntoIterator<Item = Vec<u8>>) -> Vec<Seen> {
    let mut seen = Vec::new();
    for payload in payloads {
        let first = log.append(&payload, 1, NOW_MS).unwrap();
        seen.push((first, 1, payload));
        assert_eq!(log.commit().unwrap(), first + 1);
    }
    seen
}

/// A hundred bytes each.
fn payloads(count: u8) -> impl Iterator<Item = Vec<u8>> {
    (0..count).map(|byte| vec![byte; 100])
}

fn is_empty_at_first(bench: &mut Bench) {
    let mut log = bench.open();
    assert_eq!((log.appended(), log.durable()), (0, 0));
    assert_eq!(log.commit().unwrap(), 0);
    log.seal(NOW_MS).unwrap();
    log.seal(NOW_MS).unwrap();
    log.begin_segment(NOW_MS).unwrap();
    assert_eq!(log.trim(u64::MAX, i64::MAX, usize::MAX).unwrap(), 0);
    assert_eq!(log.segments().list().len(), 1);
    assert!(bench.all().is_empty());
}

fn is_in_order(bench: &mut Bench) {
    let mut log = bench.open();
    let seen = commit(&mut *log, payloads(40));
    assert_eq!(seen[0].0, 0);
    assert!(log.segments().list().len() > 4);
    assert_eq!(bench.all(), seen);
    for from in [0, 1, 17, 39] {
        let found = bench.frames(ReadFrom::Sequence(from as u64)).unwrap();
        assert_eq!(found, seen[from..], "a scan from {from}");
        let mut one = Vec::new();
        read_each(&bench.disk, &[from as u64], &mut |frame| {
            one.push(frame.payload.to_vec());
            Ok(())
        })
        .unwrap();
        assert_eq!(one, [seen[from].2.clone()]);
    }
    // A read ends with its segment.
    let mut read = Vec::new();
    while read.len() < seen.len() {
        let before = read.len();
        read_on(&bench.disk, before as u64, &mut |frame| {
            read.push(frame.payload.to_vec());
            Ok(ControlFlow::Continue(()))
        })
        .unwrap();
        assert!(read.len() > before);
    }
    assert!(read.iter().eq(seen.iter().map(|(.., payload)| payload)));
}

fn counts_records(bench: &mut Bench) {
    let mut log = bench.open();
    let epoch = log.epoch();
    let mut end = 0;
    for count in [1, 5, 1, 300] {
        let first = log.append(&[7; 20], count, NOW_MS).unwrap();
        assert_eq!(first, end);
        end += u64::from(count);
        assert_eq!((log.appended(), log.durable()), (end, first));
        let sequence = end;
        assert_eq!(log.end(), Offset { epoch, sequence });
        assert_eq!(log.commit().unwrap(), end);
        assert_eq!(log.durable(), end);
    }
    let durable = log.durable_end();
    assert_eq!((durable.oldest, durable.sequence), (0, end));
    let newest = log.segments().list().last().unwrap();
    assert_eq!(durable.newest, newest.first_sequence);
    assert_eq!(newest.end_sequence, end);
}

fn commits_together(bench: &mut Bench) {
    let mut log = bench.open();
    let mut seen = Vec::new();
    for group in 0..20_u8 {
        for payload in payloads(group % 9) {
            seen.push((log.append(&payload, 1, NOW_MS).unwrap(), 1, payload));
        }
        assert_eq!(log.commit().unwrap(), seen.len() as u64);
        assert_eq!(bench.all(), seen);
    }
}

fn has_largest_frame(bench: &mut Bench) {
    let mut log = bench.open();
    let largest = vec![7; PAYLOAD_BYTES_MAX];
    let mut seen = commit(&mut *log, [largest]);
    let above = vec![7; PAYLOAD_BYTES_MAX + 1];
    let refused = log.append(&above, 1, NOW_MS);
    assert!(matches!(refused, Err(OplogError::TooLarge { .. })));
    assert_eq!(log.appended(), 1, "nothing was appended");
    seen.extend(commit(&mut *log, payloads(2)));
    assert!(bench.all() == seen);
}

fn outgrows_segments(bench: &mut Bench) {
    let mut log = bench.open();
    let sizes = [100, 5_000, 1_000, 3_000, 100];
    let seen = commit(&mut *log, sizes.map(|bytes| vec![7; bytes]));
    assert_eq!(bench.all(), seen);
    for one in log.segments().list() {
        assert!(one.end_sequence > one.first_sequence, "{one:?}");
    }
    drop(log);
    bench.restart(1);
    assert_eq!(bench.all(), seen);
}

fn ends_segments(bench: &mut Bench) {
    let mut log = bench.open();
    let mut seen = commit(&mut *log, payloads(1));
    log.begin_segment(NOW_MS + 5).unwrap();
    log.begin_segment(NOW_MS + 9).unwrap();
    let list = log.segments().list();
    assert_eq!((list.len(), list[1].first_sequence), (2, 1));
    assert_eq!(
        (list[0].written_until_ms, list[1].created_ms),
        (NOW_MS + 5, NOW_MS + 5)
    );
    seen.extend(commit(&mut *log, payloads(1)));
    let bytes = |log: &dyn Log| -> u64 { log.segments().list().iter().map(|one| one.bytes).sum() };
    assert_eq!(log.segments().bytes(), bytes(&*log));
    assert_eq!(bench.all(), seen);
}

fn raises_epochs(bench: &mut Bench) {
    let (mut last, mut used) = (0, BTreeSet::new());
    for seed in 0..6 {
        let mut log = bench.restart(seed);
        assert!(log.epoch() > last, "{} after {last}", log.epoch());
        last = log.epoch();
        for byte in 0..3 {
            // The last one may be lost: another record gets its number, in another epoch.
            let sequence = log.append(&[byte; 100], 1, NOW_MS).unwrap();
            assert!(used.insert((log.epoch(), sequence)));
            if byte < 2 {
                log.commit().unwrap();
            }
        }
    }
}

fn survives(bench: &mut Bench) {
    for seed in 0..30 {
        let mut chance = Chance::new(seed);
        bench.disk = bench.disk.kill();
        let mut log = bench.open();
        let before = bench.all();
        let (mut durable, mut appended) = (before.clone(), before);
        for _ in 0..chance.below(12) {
            let bytes = 1 + usize::try_from(chance.below(400)).unwrap();
            let payload = vec![u8::try_from(seed).unwrap(); bytes];
            let count = 1 + u32::try_from(chance.below(3)).unwrap();
            let first = log.append(&payload, count, NOW_MS).unwrap();
            appended.push((first, count, payload));
            if chance.percent(50) {
                log.commit().unwrap();
                durable.clone_from(&appended);
            }
        }
        drop(log);
        let log = bench.restart(seed);
        let found = bench.all();
        assert!(found.starts_with(&durable), "something durable is lost");
        assert!(appended.starts_with(&found), "something was never appended");
        let end = found
            .last()
            .map_or(0, |(first, count, _)| first + u64::from(*count));
        assert_eq!((log.appended(), log.durable()), (end, end));
    }
}

fn seals(bench: &mut Bench) {
    let mut log = bench.open();
    let seen = commit(&mut *log, payloads(3));
    let first = log.append(&[9; 10], 1, NOW_MS).unwrap();
    log.seal(NOW_MS).unwrap();
    log.seal(NOW_MS).unwrap();
    assert_eq!((log.durable(), log.appended()), (first + 1, first + 1));
    assert_eq!(bench.all().len(), seen.len() + 1);
}

fn is_trimmed(bench: &mut Bench) {
    let mut log = bench.open();
    let mut now_ms = NOW_MS;
    for payload in payloads(40) {
        log.append(&payload, 1, now_ms).unwrap();
        log.commit().unwrap();
        now_ms += HOUR_MS;
    }
    let list = log.segments().list().to_vec();
    let oldest = |log: &dyn Log| log.segments().list()[0].first_sequence;
    let second = list[1].first_sequence;
    assert_eq!(log.trim(second - 1, i64::MAX, 9).unwrap(), 0, "by number");
    assert_eq!(
        log.trim(u64::MAX, list[0].written_until_ms, 9).unwrap(),
        0,
        "by age"
    );
    assert_eq!(
        log.trim(u64::MAX, list[2].written_until_ms, 1).unwrap(),
        1,
        "at most"
    );
    assert_eq!(oldest(&*log), second);
    assert_eq!(log.trim(list[3].first_sequence, i64::MAX, 9).unwrap(), 2);
    assert_eq!(oldest(&*log), list[3].first_sequence);
    assert_eq!(bench.all()[0].0, list[3].first_sequence);
    drop(log);
    let mut log = bench.restart(1);
    assert_eq!(oldest(&*log), list[3].first_sequence);
    log.trim(u64::MAX, i64::MAX, usize::MAX).unwrap();
    assert_eq!(log.segments().list().len(), 1, "the newest stays");
    commit(&mut *log, payloads(1));
}

fn is_told_as_missing(bench: &mut Bench) {
    let mut log = bench.open();
    let seen = commit(&mut *log, payloads(40));
    log.trim(20, i64::MAX, usize::MAX).unwrap();
    let begins = log.segments().list()[0].first_sequence;
    let found = bench.frames(ReadFrom::Sequence(begins)).unwrap();
    assert_eq!(found, seen[usize::try_from(begins).unwrap()..]);
    for gone in [0, begins - 1] {
        let read = bench.frames(ReadFrom::Sequence(gone));
        assert!(matches!(read, Err(OplogError::Missing { .. })), "{read:?}");
        let one = read_each(&bench.disk, &[gone], &mut |_| Ok(()));
        assert!(matches!(one, Err(OplogError::Missing { .. })), "{one:?}");
    }
}

fn is_limited(bench: &mut Bench) {
    let options = LogOptions {
        bytes_max: 8 << 10,
        ..OPTIONS
    };
    let mut log = bench.open_with(options);
    let mut seen = Vec::new();
    while log.segments().check_room(400).is_ok() {
        seen.extend(commit(&mut *log, [vec![7; 400]]));
        assert!(log.segments().bytes() + options.segment_bytes <= options.bytes_max);
    }
    assert!(log.segments().is_near_limit());
    // Records of the store's own have a segment more.
    let refused = loop {
        match log.append(&[8; 400], 1, NOW_MS) {
            Ok(first) => {
                seen.push((first, 1, vec![8; 400]));
                log.commit().unwrap();
            }
            Err(error) => break error,
        }
    };
    assert!(matches!(refused, OplogError::Limit { .. }), "{refused}");
    assert_eq!(bench.all(), seen);
    log.trim(u64::MAX, i64::MAX, usize::MAX).unwrap();
    log.segments().check_room(400).unwrap();
    commit(&mut *log, [vec![9; 400]]);
}

fn doubts_clocks(bench: &mut Bench) {
    let mut log = bench.open();
    let ahead_ms = NOW_MS + 30 * HOUR_MS;
    let times = [0, 24, 49, -1, 23].map(|hours| NOW_MS + hours * HOUR_MS);
    for now_ms in times {
        log.append(&[7; 20], 1, now_ms).unwrap();
    }
    log.commit().unwrap();
    log.clock_mut().believe(ahead_ms + 24 * HOUR_MS);
    log.append(&[7; 20], 1, ahead_ms).unwrap();
    log.commit().unwrap();
    let mut flags = Vec::new();
    scan(&bench.disk, None, ReadFrom::Oldest, &mut |frame| {
        flags.push(frame.is_plausible);
        Ok(())
    })
    .unwrap();
    assert_eq!(flags, [true, true, false, false, true, true]);
    drop(log);
    let doubted_ms = ahead_ms + 25 * HOUR_MS;
    let mut reopened = |trusts_clock| {
        let options = LogOptions {
            trusts_clock,
            ..OPTIONS
        };
        let log = (bench.open)(&bench.disk, options, doubted_ms).unwrap();
        log.clock().last_ms()
    };
    assert_eq!(reopened(false), Some(ahead_ms));
    assert_eq!(
        reopened(false),
        Some(ahead_ms),
        "a doubted seal changes nothing"
    );
    assert_eq!(reopened(true), Some(doubted_ms));
}

fn is_packed(bench: &mut Bench) {
    let mut log = bench.open();
    let seen = commit(&mut *log, payloads(40));
    let plain = |first| plain_bytes(&bench.disk, first).unwrap();
    let mut packed = Vec::new();
    while let Some(first) = log.segments().to_pack(0, u64::MAX) {
        let before = plain(first);
        let (copy, _) =
            copy_segment(&bench.disk, &segment(&bench.disk, first).unwrap(), None).unwrap();
        assert!(copy == before, "a copy of the plain segment {first}");
        let packing = pack(&bench.disk, first, &mut |_, _| Ok(())).unwrap();
        assert!(log.segments_mut().put_packed(&packing).unwrap());
        assert!(plain(first) == before);
        packed.push(first);
    }
    assert_eq!(packed.len(), log.segments().list().len() - 1);
    assert_eq!(log.segments().packed().count(), packed.len());
    assert_eq!(bench.all(), seen);
    drop(log);
    // A loss of power may undo that a packed segment took its place; the records are the same.
    let log = bench.restart(1);
    assert_eq!(bench.all(), seen);
    assert!(log.segments().packed().count() <= packed.len());
}

fn fails_for_good(bench: &mut Bench) {
    let mut log = bench.open();
    let seen = commit(&mut *log, payloads(9));
    (bench.lose_next)(&bench.disk);
    let lost = vec![99; 100];
    let failed = log.append(&lost, 1, NOW_MS).and_then(|_| log.commit());
    let is_for_good = |error: &OplogError| {
        matches!(
            error,
            OplogError::Poisoned { .. } | OplogError::Deposed { .. }
        )
    };
    assert!(failed.is_err_and(|error| is_for_good(&error)));
    assert_eq!(log.durable(), seen.len() as u64);
    for _ in 0..2 {
        let again = log.append(&[1], 1, NOW_MS);
        assert!(again.is_err_and(|error| is_for_good(&error)));
        assert!(log.commit().is_err_and(|error| is_for_good(&error)));
    }
    drop(log);
    let mut log = bench.restart(1);
    let found = bench.all();
    let may_be = [&seen[..], &[(9, 1, lost)]].concat();
    assert!(found == seen || found == may_be, "{found:?}");
    commit(&mut *log, payloads(1));
}

fn is_of_one_store(bench: &mut Bench) {
    let mut log = bench.open();
    let seen = commit(&mut *log, payloads(9));
    drop(log);
    let foreign = LogOptions {
        store_id: [8; 16],
        ..OPTIONS
    };
    let opened = (bench.open)(&bench.disk, foreign, NOW_MS).map(drop);
    assert!(matches!(opened, Err(OplogError::ForeignStore { .. })));
    assert_eq!(bench.all(), seen);
    bench.open();
}
