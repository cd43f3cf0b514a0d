//! Tests of packed segments: they stand for the same bytes, and no damage to them goes unseen.

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use tallyring_archive::names;
use tallyring_records::{Increment, Record};

use super::*;
use crate::oplog::{
    DaysOfSegments, LogCopy, LogCopyAck, OplogError, SegmentInfo, count_days, pack, plain_bytes,
    read_each, read_on,
};

/// A log of three segments, one of which holds several blocks and a frame of more than one.
fn large_log() -> (MemoryDisk, FileLog) {
    let disk = MemoryDisk::default();
    let options = LogOptions {
        segment_bytes: 3 << 20,
        ..OPTIONS
    };
    let mut log = begin(&disk, options);
    let mut choices = Choices(7);
    let mut payload = |bytes: usize| -> Vec<u8> {
        let mut byte = || (0..8).fold(0, |byte, _| byte << 1 | u8::from(choices.flip()));
        (0..bytes).map(|_| byte() & 0x3f).collect()
    };
    for bytes in [9, 400_000, 1_500_000, 300_000, 17, 1_200_000] {
        commit(&mut log, &payload(bytes));
    }
    log.seal(NOW_MS).unwrap();
    log.begin_segment(NOW_MS).unwrap();
    commit(&mut log, b"newest");
    assert_eq!(log.segments().list().len(), 3);
    (disk, log)
}

/// Packs all that can be packed.
fn pack_all(disk: &MemoryDisk, log: &mut FileLog) -> Result<usize, OplogError> {
    let mut packed = 0;
    while let Some(first) = log.segments().to_pack(0, u64::MAX) {
        let packing = pack(disk, first, &mut |frame, days| {
            *days.entry(frame.count).or_default() += 1;
            Ok(())
        })?;
        assert!(log.segments_mut().put_packed(&packing)?);
        packed += 1;
    }
    Ok(packed)
}

fn plain(disk: &MemoryDisk, log: &FileLog) -> BTreeMap<u64, Vec<u8>> {
    let firsts = log.segments().list().iter().map(|one| one.first_sequence);
    firsts
        .map(|first| (first, plain_bytes(disk, first).unwrap()))
        .collect()
}

fn small_log_of_segments() -> (MemoryDisk, FileLog) {
    let disk = MemoryDisk::default();
    let (mut log, _, _) = open(&disk);
    for byte in 0..6 {
        commit(&mut log, &[byte; 400]);
    }
    (disk, log)
}

#[test]
fn a_packed_segment_stands_for_the_bytes_that_were_written() {
    let (disk, mut log) = large_log();
    let (before, frames) = (plain(&disk, &log), scan_all(&disk).unwrap());
    let bytes = log.segments().bytes();
    assert_eq!(pack_all(&disk, &mut log).unwrap(), 2);
    assert!(log.segments().bytes() < bytes);
    let sizes: u64 = log
        .segments()
        .list()
        .iter()
        .map(|one| disk.bytes(&one.file).len() as u64)
        .sum();
    assert_eq!(log.segments().bytes(), sizes);
    assert_eq!(plain(&disk, &log), before);
    assert_eq!(scan_all(&disk).unwrap(), frames);
    for frame in &frames.1 {
        let mut found = None;
        read_each(&disk, &[frame.first_sequence], &mut |one| {
            found = Some(record_of(one));
            Ok(())
        })
        .unwrap();
        assert_eq!(found.as_ref(), Some(frame));
    }
    // The newest segment is plain.
    for choice in 0..1_u32 << frames.1.len() {
        let mut chosen = frames.1.clone();
        chosen.retain(|frame| choice >> frame.first_sequence & 1 == 1);
        let sequences: Vec<u64> = chosen.iter().map(|frame| frame.first_sequence).collect();
        let mut found = Vec::new();
        read_each(&disk, &sequences, &mut |one| {
            found.push(record_of(one));
            Ok(())
        })
        .unwrap();
        assert_eq!(found, chosen);
    }
    let mut rest = Vec::new();
    read_on(&disk, 1, &mut |one| {
        rest.push(record_of(one));
        Ok(ControlFlow::Continue(()))
    })
    .unwrap();
    let end = log.segments().list()[0].end_sequence as usize;
    assert_eq!(rest, frames.1[1..end]);
    let infos = |log: &FileLog| -> Vec<SegmentInfo> { log.segments().list()[..2].to_vec() };
    let (reopened, summary, seen) = open(&disk);
    assert_eq!(
        (summary.end_sequence, seen),
        (frames.0.end_sequence, frames.1)
    );
    assert_eq!(infos(&reopened), infos(&log));
}

#[test]
fn every_flipped_bit_and_every_truncation_of_a_packed_segment_is_refused() {
    let (disk, mut log) = small_log_of_segments();
    pack_all(&disk, &mut log).unwrap();
    let image = disk.bytes(FIRST);
    let refused = |context: &str| {
        let found = scan_all(&disk).unwrap_err();
        let (offset, sequence) = match &found {
            OplogError::Corrupt {
                file,
                offset,
                sequence,
                ..
            } if file == FIRST => (*offset, *sequence),
            other => panic!("{context}: {other}"),
        };
        assert!(offset as usize <= image.len(), "{context}: {found}");
        assert_eq!(sequence, 0, "{context}: {found}");
    };
    for bit in 0..image.len() * 8 {
        let mut flipped = image.clone();
        flipped[bit / 8] ^= 1 << (bit % 8);
        disk.set(FIRST, flipped);
        refused(&format!("bit {bit}"));
    }
    for cut in 0..image.len() {
        disk.set(FIRST, image[..cut].to_vec());
        refused(&format!("cut at {cut}"));
    }
    let longer = [image.clone(), vec![0; 9]].concat();
    disk.set(FIRST, longer);
    refused("longer");
}

#[test]
fn damage_to_one_block_names_the_records_from_there_on_and_others_are_read() {
    let (disk, mut log) = large_log();
    pack_all(&disk, &mut log).unwrap();
    let mut image = disk.bytes(FIRST);
    // The last block begins in the middle of record 3.
    let at = image.len() - 400;
    image[at] ^= 1;
    disk.set(FIRST, image);
    let error = scan_all(&disk).unwrap_err();
    assert!(
        matches!(&error, OplogError::Corrupt { file, sequence: 3, .. } if file == FIRST),
        "{error}"
    );
    read_each(&disk, &[1], &mut |_| Ok(())).unwrap();
    read_each(&disk, &[2], &mut |_| Ok(())).unwrap();
    read_each(&disk, &[4], &mut |_| Ok(())).unwrap_err();
    read_each(&disk, &[5], &mut |_| Ok(())).unwrap();
}

#[test]
fn a_damaged_segment_is_not_packed_and_stays_as_it_is() {
    let (disk, mut log) = small_log_of_segments();
    let mut image = disk.bytes(FIRST);
    image[64 + 48 + 7] ^= 1;
    disk.set(FIRST, image.clone());
    let error = pack_all(&disk, &mut log).unwrap_err();
    assert!(matches!(error, OplogError::Corrupt { .. }), "{error}");
    assert_eq!(disk.bytes(FIRST), image);
    assert!(
        disk.list("oplog")
            .unwrap()
            .iter()
            .all(|file| file.ends_with(".tlog"))
    );
    assert_eq!(log.segments().to_pack(1, u64::MAX), Some(2));
}

#[test]
fn the_newest_segment_and_those_that_a_restart_replays_stay_plain() {
    let (_, log) = small_log_of_segments();
    let newest = log.segments().list().last().unwrap().first_sequence;
    assert_eq!(log.segments().to_pack(newest, u64::MAX), None);
    assert_eq!(log.segments().to_pack(0, 1), None);
    assert_eq!(log.segments().to_pack(0, 2), Some(0));
}

#[test]
fn a_log_that_ends_with_a_packed_segment_goes_on() {
    let (disk, mut log) = small_log_of_segments();
    let count = pack_all(&disk, &mut log).unwrap();
    let files: Vec<String> = log
        .segments()
        .list()
        .iter()
        .map(|one| one.file.clone())
        .collect();
    drop(log);
    disk.remove(&files[count]).unwrap();
    let last = files[count - 1].clone();
    let image = disk.bytes(&last);
    let (log, summary, seen) = open(&disk);
    assert_eq!((summary.end_sequence, seen.len()), (4, 4));
    assert_eq!(log.segments().list()[count].first_sequence, 4);
    drop(log);
    // The new segment has no record yet.
    let (mut log, _, _) = open(&disk);
    assert_eq!(commit(&mut log, b"more"), 4);
    drop(log);
    assert_eq!(open(&disk).2.len(), 5);
    assert_eq!(disk.bytes(&last), image, "nothing is written behind it");
}

#[test]
fn a_failure_at_any_change_of_the_disk_leaves_the_log_whole() {
    for changes in 0.. {
        for seed in 0..8 {
            let (disk, mut log) = small_log_of_segments();
            let frames = scan_all(&disk).unwrap().1;
            disk.fail_after(changes);
            let packed = pack_all(&disk, &mut log);
            drop(log);
            disk.crash(&mut Choices(seed));
            assert_eq!(scan_all(&disk).unwrap().1, frames, "{changes} changes");
            let (mut log, _, seen) = open(&disk);
            assert_eq!(seen, frames, "{changes} changes");
            pack_all(&disk, &mut log).unwrap();
            assert_eq!(scan_all(&disk).unwrap().1, frames, "{changes} changes");
            if packed.is_ok() {
                return;
            }
        }
    }
}

#[test]
fn a_full_disk_leaves_the_segment_plain_until_there_is_space() {
    let (disk, mut log) = small_log_of_segments();
    disk.limit_space(Some(100));
    let error = pack_all(&disk, &mut log).unwrap_err();
    assert!(matches!(error, OplogError::Full { .. }), "{error}");
    disk.limit_space(None);
    assert_eq!(pack_all(&disk, &mut log).unwrap(), 2);
}

#[test]
fn a_segment_that_is_gone_by_now_does_not_come_back() {
    let (disk, mut log) = small_log_of_segments();
    let packing = pack(&disk, 0, &mut |_, _| Ok(())).unwrap();
    log.trim(2, i64::MAX, usize::MAX).unwrap();
    assert!(!log.segments_mut().put_packed(&packing).unwrap());
    assert_eq!(scan_all(&disk).unwrap().0.oldest_sequence, 2);
}

#[test]
fn the_second_copy_of_a_packed_log_is_plain() {
    let (disk, mut log) = small_log_of_segments();
    disk.set(names::IDENTITY, b"id 1".to_vec());
    let before = plain(&disk, &log);
    pack_all(&disk, &mut log).unwrap();
    let second = MemoryDisk::default();
    for _ in 0..2 {
        let (log_disk, copy_disk) = (Arc::new(disk.clone()), Arc::new(second.clone()));
        let ack = LogCopyAck::Local;
        let copy = LogCopy::open(log_disk, copy_disk, "copy".into(), ack, NOW_MS).unwrap();
        assert!(copy.bring_up(log.durable_end(), u64::MAX, NOW_MS).unwrap());
        assert_eq!(copy.status(&log, NOW_MS).behind_bytes, 0);
        for (first, bytes) in before.iter().take(2) {
            assert_eq!(second.bytes(&names::segment(*first)), *bytes);
        }
        commit(&mut log, b"more");
    }
}

#[test]
fn a_packed_segment_that_says_other_days_than_it_has_is_named() {
    for is_wrong in [false, true] {
        let disk = MemoryDisk::default();
        let (mut log, _, _) = open(&disk);
        for hours in 0..60 {
            let at = 1_331_856_000 + 3_600 * hours;
            let mut payload = Vec::new();
            Record::Increment(Increment::new(at, 1, [("l", "k".repeat(60))])).encode(&mut payload);
            commit(&mut log, &payload);
        }
        let mut packed = 0;
        while let Some(first) = log.segments().to_pack(0, u64::MAX) {
            let packing = pack(&disk, first, &mut |frame, days| {
                count_days(&frame, days)?;
                if is_wrong {
                    *days.entry(1).or_default() += 1;
                }
                Ok(())
            });
            assert!(log.segments_mut().put_packed(&packing.unwrap()).unwrap());
            packed += 1;
        }
        assert!(packed > 1);
        let mut days = DaysOfSegments::of(&disk).unwrap();
        scan(&disk, None, ReadFrom::Oldest, &mut |frame| {
            days.take(&frame)
        })
        .unwrap();
        let wrong = days.wrong(&disk);
        assert_eq!(wrong.len(), if is_wrong { packed } else { 0 }, "{wrong:?}");
        let says = wrong
            .iter()
            .all(|says| says.contains("events of 2000-01-02, and has 0"));
        assert!(says, "{wrong:?}");
    }
}
