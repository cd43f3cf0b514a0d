//! Tests of replaced payloads: the other frames and the chain stay, and no damage goes unseen.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;
use crate::oplog::{Frame, pack, read_one, redact};

/// A log whose segments but the newest are packed.
fn packed_log(payloads: &[Vec<u8>]) -> (MemoryDisk, Log) {
    let disk = MemoryDisk::default();
    let (mut log, _, _) = open(&disk);
    for payload in payloads {
        commit(&mut log, payload);
    }
    while let Some(first) = log.to_pack(0, u64::MAX) {
        let packing = pack(&disk, first, &mut |_, _| Ok(())).unwrap();
        assert!(log.put_packed(&packing).unwrap());
    }
    (disk, log)
}

/// Replaces the payloads of frames, which are known by their first records. Returns how many segments changed.
fn replace(disk: &MemoryDisk, log: &mut Log, by: &BTreeMap<u64, Vec<u8>>) -> usize {
    let mut changed = 0;
    for first in log.packed_before(u64::MAX) {
        let mut other = |frame: Frame<'_>| Ok(by.get(&frame.first_sequence).cloned());
        if let Some(packing) = redact(disk, first, &mut other).unwrap() {
            assert!(log.put_packed(&packing).unwrap());
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
        let packed_until = log.segments().last().unwrap().first_sequence;
        for round in &rounds {
            let segments = |log: &Log, sequence: u64| {
                let mut before = log.segments().iter().rev();
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
                read_one(&disk, frame.first_sequence, &mut |one| {
                    found = Some(record_of(one));
                    Ok(())
                }).unwrap();
                prop_assert_eq!(found.as_ref(), Some(frame));
            }
        }
        let infos = log.segments().to_vec();
        drop(log);
        let (reopened, _, seen) = open(&disk);
        prop_assert_eq!(seen, wanted.1);
        let count = infos.len() - 1;
        prop_assert_eq!(&reopened.segments()[..count], &infos[..count]);
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
