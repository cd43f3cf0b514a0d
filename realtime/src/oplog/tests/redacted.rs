//! Tests of replaced payloads: the other frames and the chain stay, and no damage goes unseen.

use std::collections::BTreeMap;

use proptest::prelude::*;

use std::sync::atomic::AtomicBool;

use tallyring_archive::names;

use super::*;
use crate::oplog::{
    Frame, LogCopy, LogCopyAck, is_up_to_date, pack, plain_bytes, read_each, redact,
};

/// A log whose segments but the newest are packed.
pub(super) fn packed_log(payloads: &[Vec<u8>]) -> (MemoryDisk, FileLog) {
    let disk = MemoryDisk::default();
    disk.set(names::IDENTITY, b"this store".to_vec());
    let (mut log, _, _) = open(&disk);
    for payload in payloads {
        commit(&mut log, payload);
    }
    pack_all(&disk, &mut log);
    (disk, log)
}

fn pack_all(disk: &MemoryDisk, log: &mut FileLog) {
    while let Some(first) = log.segments().to_pack(0, u64::MAX) {
        let packing = pack(disk, first, &mut |_, _| Ok(())).unwrap();
        assert!(log.segments_mut().put_packed(&packing).unwrap());
    }
}

/// A log of some segments, with two frames in each but the newest.
fn small_packed_log() -> (MemoryDisk, FileLog) {
    let payloads: Vec<Vec<u8>> = (0..9).map(|byte| vec![byte; 400]).collect();
    packed_log(&payloads)
}

fn follow(log: &MemoryDisk, copy: &MemoryDisk) -> Result<LogCopy, OplogError> {
    let (log, copy) = (Arc::new(log.clone()), Arc::new(copy.clone()));
    LogCopy::open(log, copy, "there".into(), LogCopyAck::Local, NOW_MS)
}

fn write_again(copy: &LogCopy, first: u64) -> Result<(), OplogError> {
    copy.write_again(first, &AtomicBool::new(false))
}

/// Checks that the copy has the bytes of all segments of the log, in the plain form.
fn check_copy(log: &FileLog, disk: &MemoryDisk, copy: &MemoryDisk) {
    let end = log.durable_end();
    for segment in log.segments().list() {
        let mut bytes = plain_bytes(disk, segment.first_sequence).unwrap();
        if segment.first_sequence == end.newest {
            bytes.truncate(end.bytes as usize);
        }
        assert!(
            copy.bytes(&segment.file) == bytes,
            "{} differs",
            segment.file
        );
    }
}

/// Replaces the payloads of frames, which are known by their first records. Returns how many segments changed.
pub(super) fn replace(disk: &MemoryDisk, log: &mut FileLog, by: &BTreeMap<u64, Vec<u8>>) -> usize {
    let mut changed = 0;
    let packed: Vec<u64> = log
        .segments()
        .packed()
        .map(|one| one.first_sequence)
        .collect();
    for first in packed {
        let mut other = |frame: Frame<'_>| Ok(by.get(&frame.first_sequence).cloned());
        if let Some(packing) = redact(disk, first, false, &mut other).unwrap() {
            assert!(log.segments_mut().put_packed(&packing).unwrap());
            changed += 1;
        }
    }
    changed
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn prop_replaced_payloads_are_read_and_all_else_stays(
        payloads in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 1..700), 4..20),
        rounds in proptest::collection::vec(
            proptest::collection::btree_map(0..20_u64, proptest::collection::vec(any::<u8>(), 0..900), 0..4),
            1..3,
        ),
    ) {
        let (disk, mut log) = packed_log(&payloads);
        let mut wanted = scan_all(&disk).unwrap();
        let packed_until = log.segments().list().last().unwrap().first_sequence;
        for round in &rounds {
            let segments = |log: &FileLog, sequence: u64| {
                let mut before = log.segments().list().iter().rev();
                before.find(|one| one.first_sequence <= sequence).map(|one| one.first_sequence)
            };
            let mut changed: Vec<_> = round.keys().filter(|at| **at < packed_until && **at < payloads.len() as u64)
                .map(|at| segments(&log, *at)).collect();
            changed.dedup();
            prop_assert_eq!(replace(&disk, &mut log, round), changed.len());
            for frame in &mut wanted.1 {
                if let Some(payload) = round.get(&frame.first_sequence).filter(|_| frame.first_sequence < packed_until) {
                    frame.payload = payload.clone();
                }
            }
            prop_assert_eq!(&scan_all(&disk).unwrap().1, &wanted.1);
            for frame in &wanted.1 {
                let mut found = None;
                read_each(&disk, &[frame.first_sequence], &mut |one| {
                    found = Some(record_of(one));
                    Ok(())
                }).unwrap();
                prop_assert_eq!(found.as_ref(), Some(frame));
            }
        }
        let infos = log.segments().list().to_vec();
        drop(log);
        let (reopened, _, seen) = open(&disk);
        prop_assert_eq!(seen, wanted.1);
        let count = infos.len() - 1;
        prop_assert_eq!(&reopened.segments().list()[..count], &infos[..count]);
    }
}

#[test]
fn every_flipped_bit_of_a_segment_with_replaced_payloads_is_refused() {
    let payloads: Vec<Vec<u8>> = (0..6).map(|byte| vec![byte; 400]).collect();
    let (disk, mut log) = packed_log(&payloads);
    assert_eq!(
        replace(&disk, &mut log, &[(1, b"other".to_vec())].into()),
        1
    );
    let image = disk.bytes(FIRST);
    for bit in 0..image.len() * 8 {
        let mut damaged = image.clone();
        damaged[bit / 8] ^= 1 << (bit % 8);
        disk.set(FIRST, damaged);
        assert!(scan_all(&disk).is_err(), "bit {bit}");
    }
    disk.set(FIRST, image);
    assert_eq!(scan_all(&disk).unwrap().1[1].payload, b"other");
}

#[test]
fn a_segment_that_is_not_packed_keeps_its_payloads() {
    let disk = MemoryDisk::default();
    let (mut log, _, _) = open(&disk);
    for byte in 0..6 {
        commit(&mut log, &[byte; 400]);
    }
    let image = disk.bytes(FIRST);
    let error = redact(&disk, 0, false, &mut |_| Ok(Some(Vec::new()))).unwrap_err();
    assert!(error.to_string().contains("is not packed"), "{error}");
    assert_eq!(disk.bytes(FIRST), image);
    assert!(
        disk.list("oplog")
            .unwrap()
            .iter()
            .all(|file| names::is_segment(file))
    );
}

#[test]
fn a_copy_gets_replaced_payloads_even_of_the_same_size_and_only_in_segments_that_it_has_whole() {
    let (disk, mut log) = small_packed_log();
    let second = MemoryDisk::default();
    let copy = follow(&disk, &second).unwrap();
    while !copy.has_whole(0) {
        assert!(!copy.bring_up(log.durable_end(), 300, NOW_MS).unwrap());
    }
    let behind = log.segments().list()[1].first_sequence;
    assert!(!copy.has_whole(behind), "the copy is behind");
    write_again(&copy, behind).unwrap();
    for payload in [vec![7; 400], b"short".to_vec()] {
        assert_eq!(replace(&disk, &mut log, &[(1, payload.clone())].into()), 1);
        write_again(&copy, 0).unwrap();
        let bytes = second.bytes(FIRST);
        assert!(bytes == plain_bytes(&disk, 0).unwrap());
        assert!(bytes.windows(payload.len()).any(|part| part == payload));
    }
    assert!(copy.bring_up(log.durable_end(), u64::MAX, NOW_MS).unwrap());
    check_copy(&log, &disk, &second);
    assert_eq!(scan_all(&second).unwrap().1, scan_all(&disk).unwrap().1);
}

#[test]
fn a_copy_that_was_away_while_payloads_were_replaced_goes_on() {
    for copied in 0..8 {
        let (disk, second) = (MemoryDisk::default(), MemoryDisk::default());
        disk.set(names::IDENTITY, b"this store".to_vec());
        let (mut log, _, _) = open(&disk);
        for byte in 0..8 {
            commit(&mut log, &[byte; 400]);
            if u64::from(byte) == copied {
                let copy = follow(&disk, &second).unwrap();
                assert!(copy.bring_up(log.durable_end(), u64::MAX, NOW_MS).unwrap());
            }
        }
        log.begin_segment(NOW_MS).unwrap();
        pack_all(&disk, &mut log);
        let by = (0..8).map(|sequence| (sequence, vec![b'x'; 400 - 90 * (sequence as usize % 3)]));
        replace(&disk, &mut log, &by.collect());
        let copy = follow(&disk, &second).unwrap_or_else(|error| panic!("{copied}: {error}"));
        assert!(copy.bring_up(log.durable_end(), u64::MAX, NOW_MS).unwrap());
        for segment in log.segments().list() {
            write_again(&copy, segment.first_sequence).unwrap();
        }
        check_copy(&log, &disk, &second);
        follow(&disk, &second).unwrap();
    }
}

#[test]
fn a_copy_of_another_log_is_refused_after_payloads_were_replaced_too() {
    let (disk, mut log) = small_packed_log();
    let (other, _) = packed_log(&(0..3).map(|byte| vec![byte + 1; 400]).collect::<Vec<_>>());
    let second = MemoryDisk::default();
    replace(&disk, &mut log, &[(1, b"short".to_vec())].into());
    follow(&other, &second)
        .unwrap()
        .bring_up(open(&other).0.durable_end(), u64::MAX, NOW_MS)
        .unwrap();
    let error = follow(&disk, &second).err().expect("it is refused");
    assert!(matches!(error, OplogError::CopyDiffers { .. }), "{error}");
}

#[test]
fn a_failure_at_any_change_of_either_disk_leaves_each_segment_as_it_was_or_replaced() {
    for on_log in [true, false] {
        for changes in 0.. {
            let mut is_done = false;
            for seed in 0..4 {
                let (disk, mut log) = small_packed_log();
                let second = MemoryDisk::default();
                let copy = follow(&disk, &second).unwrap();
                copy.bring_up(log.durable_end(), u64::MAX, NOW_MS).unwrap();
                let before = scan_all(&disk).unwrap().1;
                let mut after = before.clone();
                after[1].payload = b"short".to_vec();
                let failing = if on_log { &disk } else { &second };
                failing.fail_after(changes);
                let by = BTreeMap::from([(1, b"short".to_vec())]);
                let mut other = |frame: Frame<'_>| Ok(by.get(&frame.first_sequence).cloned());
                let replaced = redact(&disk, 0, false, &mut other)
                    .and_then(|packing| {
                        log.segments_mut()
                            .put_packed(&packing.expect("another payload"))
                    })
                    .and_then(|_| {
                        let synced = disk.sync_directory("oplog");
                        synced.map_err(OplogError::io("oplog", "sync directory"))
                    })
                    .and_then(|()| write_again(&copy, 0));
                is_done = replaced.is_ok();
                drop((log, copy));
                failing.crash(&mut Choices(seed));
                let context = format!("{changes} changes, seed {seed}, of the log: {on_log}");
                let (log, _, logged) = open(&disk);
                assert!([&before, &after].contains(&&logged), "{context}");
                let copied = scan_all(&second).unwrap().1;
                assert!([&before, &after].contains(&&copied), "{context}");
                // The log is the first of the two to have the other payload.
                assert!(copied == before || logged == after, "{context}");
                let copy =
                    follow(&disk, &second).unwrap_or_else(|error| panic!("{context}: {error}"));
                copy.bring_up(log.durable_end(), u64::MAX, NOW_MS).unwrap();
                write_again(&copy, 0).unwrap();
                check_copy(&log, &disk, &second);
                assert!(
                    second
                        .list("oplog")
                        .unwrap()
                        .iter()
                        .all(|file| names::is_segment(file))
                );
            }
            if is_done {
                assert!(changes > 2, "{changes} changes are all");
                break;
            }
        }
    }
}

#[test]
fn the_feet_of_packed_files_tell_replaced_payloads_of_the_same_size() {
    let (disk, mut log) = small_packed_log();
    let before = disk.content(FIRST).unwrap();
    let image = disk.bytes(FIRST);
    replace(&disk, &mut log, &[(1, vec![7; 400])].into());
    let after = disk.content(FIRST).unwrap();
    assert!(!is_up_to_date(after.clone(), before.clone()));
    assert!(is_up_to_date(before.clone(), before.clone()));
    let damaged = tallyring_archive::Content::new(image[..image.len() - 1].to_vec());
    assert!(!is_up_to_date(after, damaged.clone()), "the copy is healed");
    assert!(is_up_to_date(damaged, before), "a good copy stays");
}
