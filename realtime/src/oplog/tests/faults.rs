//! Tests of full and failing disks, and of crashes between two steps.

use std::io::ErrorKind;

use super::*;

#[test]
fn a_full_disk_at_a_write_leaves_no_trace_and_the_log_goes_on() {
    for kind in [ErrorKind::StorageFull, ErrorKind::QuotaExceeded] {
        let disk = MemoryDisk::default();
        let (mut log, _, _) = open(&disk);
        commit(&mut log, b"one");
        let before = disk.bytes(FIRST);
        disk.fail_next_write(kind);
        let error = log.append(b"never", 1, NOW_MS).unwrap_err();
        let text = error.to_string();
        assert!(matches!(error, OplogError::Full { .. }), "{text}");
        assert!(
            text.starts_with("oplog/0000000000000000.tlog: no space for a frame: "),
            "{text}"
        );
        assert!(
            text.ends_with("; nothing was appended, free disk space"),
            "{text}"
        );
        assert_eq!(disk.bytes(FIRST), before);
        assert_eq!(commit(&mut log, b"two"), 1);
        assert_eq!(payloads(&open(&disk).2), [b"one", b"two"]);
    }
}

#[test]
fn a_full_disk_at_a_roll_or_a_growth_is_passed_when_there_is_space_again() {
    let disk = MemoryDisk::default();
    let (mut log, _, _) = open(&disk);
    let large = vec![9; 5_000];
    let mut expected = Vec::new();
    for space in (0..6_000).step_by(37) {
        disk.limit_space(Some(space));
        match log.append(&large, 1, NOW_MS) {
            Ok(_) => expected.push(large.as_slice()),
            Err(OplogError::Full { .. }) => {
                let files = disk.list("oplog").unwrap();
                assert!(
                    !files.contains(&"spare.tmp".to_owned()),
                    "its space is given back"
                );
            }
            Err(error) => panic!("{error}"),
        }
        assert_eq!(log.appended(), expected.len() as u64);
        disk.limit_space(None);
        commit(&mut log, b"small");
        expected.push(b"small");
    }
    assert!(expected.len() > 170);
    assert_eq!(payloads(&open(&disk).2), expected);
}

#[test]
fn a_spare_that_cannot_be_named_is_given_up() {
    let disk = MemoryDisk::default();
    let (mut log, _, _) = open(&disk);
    commit(&mut log, &[1; 900]);
    log.spare().unwrap().prepare().unwrap();
    disk.fail_next_write(ErrorKind::StorageFull);
    let error = log.append(&[2; 900], 1, NOW_MS).unwrap_err();
    assert!(matches!(error, OplogError::Full { .. }), "{error}");
    assert_eq!(disk.list("oplog").unwrap(), ["0000000000000000.tlog"]);
    commit(&mut log, &[2; 900]);
    assert_eq!(open(&disk).2.len(), 2);
}

#[test]
fn a_full_disk_at_start_does_not_keep_the_counts_from_being_read() {
    let disk = MemoryDisk::default();
    let (mut log, _, _) = open(&disk);
    commit(&mut log, &[1; 1024 - 64 - 48]);
    disk.limit_space(Some(0));
    let (mut log, _, seen) = open(&disk);
    assert_eq!((seen.len(), log.epoch()), (1, 2));
    assert!(matches!(
        log.append(b"x", 1, NOW_MS),
        Err(OplogError::Full { .. })
    ));
    disk.limit_space(None);
    commit(&mut log, b"x");
    let (log, summary, seen) = open(&disk);
    assert_eq!((summary.epoch, seen[1].epoch, log.epoch()), (2, 2, 3));
}

#[test]
fn a_failed_sync_poisons_for_ever() {
    let disk = MemoryDisk::default();
    let (mut log, _, _) = open(&disk);
    commit(&mut log, b"one");
    log.append(b"two", 1, NOW_MS).unwrap();
    disk.fail_next_sync();
    let text = log.commit().unwrap_err().to_string();
    assert_eq!(
        text,
        "the oplog takes no more writes: oplog/0000000000000000.tlog: cannot sync: sync failed; \
         it is unknown whether the last appends are durable, so check the disk and restart, which reads the log back"
    );
    assert_eq!(log.durable(), 1);
    for answer in [
        log.commit().map(drop),
        log.append(b"three", 1, NOW_MS).map(drop),
        log.seal(NOW_MS),
        log.trim(0, 0, usize::MAX).map(drop),
    ] {
        assert_eq!(answer.unwrap_err().to_string(), text);
    }
}

#[test]
fn a_failed_write_or_a_failed_undo_poisons() {
    let disk = MemoryDisk::default();
    let (mut log, _, _) = open(&disk);
    disk.fail_next_write(ErrorKind::Other);
    let error = log.append(b"one", 1, NOW_MS).unwrap_err();
    assert!(matches!(error, OplogError::Poisoned { .. }), "{error}");

    let (mut log, _, _) = open(&disk);
    disk.fail_next_write(ErrorKind::StorageFull);
    disk.fail_next_sync();
    let error = log.append(b"one", 1, NOW_MS).unwrap_err();
    assert!(matches!(error, OplogError::Poisoned { .. }), "{error}");
    assert!(log.append(b"one", 1, NOW_MS).is_err());
    assert_eq!(commit(&mut open(&disk).0, b"one"), 0);
}

#[test]
fn a_crash_between_any_two_steps_of_a_roll_loses_nothing() {
    for steps in 0..12 {
        for seed in 0..40 {
            let disk = MemoryDisk::default();
            let (mut log, _, _) = open(&disk);
            commit(&mut log, &[1; 900]);
            disk.fail_after(steps);
            let rolled = log.append(&[2; 900], 1, NOW_MS).is_ok();
            let synced = rolled && log.commit().is_ok();
            disk.crash(&mut Choices(seed));
            let (mut log, _, seen) = open(&disk);
            assert!(
                seen.len() == 2 || seen.len() == 1 && !synced,
                "{steps} steps, seed {seed}"
            );
            let next = commit(&mut log, &[3; 900]);
            assert_eq!(next, seen.len() as u64);
            let (_, summary, seen) = open(&disk);
            assert_eq!(seen.len() as u64, next + 1, "{steps} steps, seed {seed}");
            assert_eq!(summary.torn, None);
        }
    }
}

#[test]
fn a_segment_without_frames_is_where_the_log_goes_on() {
    let disk = MemoryDisk::default();
    let (mut log, _, _) = open(&disk);
    commit(&mut log, &[1; 900]);
    // Create, fill, sync, header, sync, link: then the power fails with both names on the disk.
    disk.fail_after(6);
    log.append(&[2; 900], 1, NOW_MS).unwrap_err();
    assert_eq!(
        disk.list("oplog").unwrap(),
        [
            "0000000000000000.tlog",
            "0000000000000001.tlog",
            "spare.tmp"
        ]
    );
    let disk = {
        let image = MemoryDisk::default();
        for file in disk.list("oplog").unwrap() {
            image.set(
                &format!("oplog/{file}"),
                disk.bytes(&format!("oplog/{file}")),
            );
        }
        image
    };
    let (mut log, summary, seen) = open(&disk);
    assert_eq!((seen.len(), summary.segments, summary.torn), (1, 2, None));
    log.spare().unwrap().prepare().unwrap();
    for _ in 0..3 {
        commit(&mut log, &[3; 2000]);
    }
    assert_eq!(open(&disk).2.len(), 4);
}

#[test]
fn frames_read_at_open_are_durable_when_open_returns() {
    let disk = MemoryDisk::default();
    let (mut log, _, _) = open(&disk);
    log.append(b"only in memory", 1, NOW_MS).unwrap();
    drop(log);
    let (_, _, seen) = open(&disk);
    assert_eq!(seen.len(), 1);
    disk.crash(&mut Choices(1));
    assert_eq!(open(&disk).2, seen);
}

#[test]
fn a_name_that_a_failed_process_left_in_memory_is_made_durable_at_open() {
    let disk = MemoryDisk::default();
    let (mut log, _, _) = open(&disk);
    commit(&mut log, &[1; 900]);
    // Create, fill, sync, header, sync, link, remove: the directory is not synced.
    disk.fail_after(7);
    log.append(&[2; 900], 1, NOW_MS).unwrap_err();
    disk.heal();
    commit(&mut open(&disk).0, &[3; 900]);
    for seed in 0..8 {
        disk.crash(&mut Choices(seed));
        assert_eq!(scan_all(&disk).unwrap().1.len(), 2);
    }
}
