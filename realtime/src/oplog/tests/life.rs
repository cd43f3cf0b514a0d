//! Tests of the log on a healthy disk: records come back, segments come and go.

use super::*;

#[test]
fn frames_come_back_in_order_across_segments() {
    let disk = MemoryDisk::default();
    let (mut log, summary, seen) = open(&disk);
    assert_eq!((summary, seen), (LogSummary::default(), vec![]));
    let mut expected = Vec::new();
    for number in 0..200_u32 {
        let payload = vec![number as u8; number as usize % 90];
        let count = number % 3 + 1;
        let first_sequence = log
            .append(&payload, count, NOW_MS + i64::from(number))
            .unwrap();
        expected.push(Seen {
            epoch: 1,
            first_sequence,
            count,
            payload,
        });
        if number % 5 == 0 {
            assert_eq!(log.commit().unwrap(), log.appended());
        }
    }
    assert!(log.durable() < log.appended());
    log.commit().unwrap();
    let segments = log.segments().list().to_vec();
    assert!(segments.len() > 10);
    let (reopened, summary, seen) = open(&disk);
    assert_eq!(seen, expected);
    assert_eq!(summary.end_sequence, log.appended());
    assert_eq!((summary.segments, summary.torn), (segments.len(), None));
    assert_eq!(
        reopened.segments().list()[..segments.len() - 1],
        segments[..segments.len() - 1]
    );
    for pair in segments.windows(2) {
        assert_eq!(pair[0].end_sequence, pair[1].first_sequence);
        assert_eq!(pair[0].written_until_ms, pair[1].created_ms);
        assert_eq!(
            pair[1].file,
            format!("oplog/{:016x}.tlog", pair[1].first_sequence)
        );
    }
}

#[test]
fn reading_begins_with_the_frame_that_holds_the_start() {
    let disk = MemoryDisk::default();
    let (mut log, _, _) = open(&disk);
    for _ in 0..40 {
        log.append(&[1; 40], 3, NOW_MS).unwrap();
    }
    log.commit().unwrap();
    for start in 0..125 {
        let (_, summary, seen) = try_open(&disk, ReadFrom::Sequence(start)).unwrap();
        let expected = (0..40)
            .map(|frame| frame * 3)
            .filter(|first| first + 3 > start);
        assert!(
            seen.iter().map(|seen| seen.first_sequence).eq(expected),
            "start {start}"
        );
        assert_eq!(summary.end_sequence, 120);
    }
}

#[test]
fn the_epoch_rises_at_every_open_even_without_a_record() {
    let disk = MemoryDisk::default();
    for epoch in 1..=5 {
        let (mut log, summary, _) = open(&disk);
        assert_eq!((log.epoch(), summary.epoch), (epoch, epoch - 1));
        if epoch == 3 {
            commit(&mut log, b"three");
        }
    }
    let (_, _, seen) = open(&disk);
    assert_eq!(seen.iter().map(|seen| seen.epoch).collect::<Vec<_>>(), [3]);
}

#[test]
fn a_frame_larger_than_a_segment_has_a_segment_that_fits() {
    let disk = MemoryDisk::default();
    let (mut log, _, _) = open(&disk);
    let large = vec![5; 10_000];
    for payload in [&large[..], b"a", &large, &large, b"b"] {
        commit(&mut log, payload);
    }
    assert_eq!(log.segments().list().len(), 5);
    let (_, _, seen) = open(&disk);
    assert_eq!(payloads(&seen), [&large[..], b"a", &large, &large, b"b"]);
}

#[test]
fn a_payload_above_the_limit_is_refused_and_harmless() {
    let (mut log, _, _) = open(&MemoryDisk::default());
    let error = log.append(&vec![0; (16 << 20) + 1], 1, NOW_MS).unwrap_err();
    assert_eq!(
        error.to_string(),
        "a frame of 16777217 bytes is above the limit of 16777216; commit smaller groups"
    );
    assert_eq!(commit(&mut log, b"fine"), 0);
}

#[test]
fn a_seal_is_written_once_until_something_follows() {
    let disk = MemoryDisk::default();
    let (mut log, _, _) = open(&disk);
    let written = |disk: &MemoryDisk| disk.bytes(FIRST).iter().rposition(|&byte| byte != 0);
    let empty = written(&disk);
    log.seal(NOW_MS).unwrap();
    assert_eq!(written(&disk), empty);
    log.append(b"a", 1, NOW_MS).unwrap();
    log.seal(NOW_MS).unwrap();
    assert_eq!((log.durable(), log.appended()), (1, 1));
    let sealed = written(&disk);
    log.seal(NOW_MS).unwrap();
    assert_eq!(written(&disk), sealed);
    assert_eq!(commit(&mut log, b"b"), 1);
    assert_eq!(payloads(&open(&disk).2), [b"a", b"b"]);
}

#[test]
fn retention_removes_whole_segments_that_are_covered_and_old() {
    let disk = MemoryDisk::default();
    let (mut log, _, _) = open(&disk);
    for number in 0..60 {
        log.append(&[1; 100], 1, NOW_MS + number).unwrap();
    }
    log.commit().unwrap();
    let segments = log.segments().list().to_vec();
    let second = segments[1].clone();
    assert_eq!(
        log.trim(second.first_sequence - 1, i64::MAX, usize::MAX)
            .unwrap(),
        0
    );
    assert_eq!(
        log.trim(u64::MAX, segments[0].written_until_ms, usize::MAX)
            .unwrap(),
        0
    );
    assert_eq!(
        log.trim(second.end_sequence - 1, i64::MAX, usize::MAX)
            .unwrap(),
        1
    );
    assert_eq!(log.segments().list(), &segments[1..]);

    let (_, summary, seen) = open(&disk);
    assert_eq!(summary.oldest_sequence, second.first_sequence);
    assert_eq!(seen[0].first_sequence, second.first_sequence);
    let error = try_open(&disk, ReadFrom::Sequence(2)).err().unwrap();
    assert_eq!(
        error.to_string(),
        "oplog/0000000000000000.tlog is missing: records 2 to 5 cannot be read; restore it, or a \
         backup of the counts that holds those records"
    );

    let (mut log, _, _) = open(&disk);
    log.trim(u64::MAX, i64::MAX, usize::MAX).unwrap();
    assert_eq!(log.segments().list().len(), 1, "the newest stays");
    assert_eq!(commit(&mut log, b"next"), 60);
    assert_eq!(disk.list("oplog").unwrap().len(), 1);
}

#[test]
fn a_spare_made_ahead_is_named_and_a_leftover_one_removed() {
    let disk = MemoryDisk::default();
    let (mut log, _, _) = open(&disk);
    let spare = log.spare().unwrap();
    std::thread::spawn(move || spare.prepare().and_then(|()| spare.prepare()))
        .join()
        .unwrap()
        .unwrap();
    assert_eq!(
        disk.list("oplog").unwrap(),
        ["0000000000000000.tlog", "spare.tmp"]
    );
    assert_eq!(disk.bytes("oplog/spare.tmp"), vec![0; 1024]);
    commit(&mut log, &[1; 800]);
    disk.limit_space(Some(0));
    commit(&mut log, &[2; 800]);
    disk.limit_space(None);
    assert_eq!(
        disk.list("oplog").unwrap(),
        ["0000000000000000.tlog", "0000000000000001.tlog"]
    );
    log.spare().unwrap().prepare().unwrap();
    drop(log);
    let (_, _, seen) = open(&disk);
    assert_eq!(seen.len(), 2);
    assert_eq!(
        disk.list("oplog").unwrap(),
        ["0000000000000000.tlog", "0000000000000001.tlog"]
    );
}

#[test]
fn format_1_is_read_and_written_for_ever() {
    // Segment header, a frame of two records, a seal; the checksums were confirmed with zlib.
    let golden = concat!(
        "544c524c4f473031010000000100000000000000000000000000000000000000",
        "0068e5cf8b010000070707070707070707070707070707070000000078c82fdd",
        "544c524609000000010000000200000000000000000000000168e5cf8b010000",
        "4000000078c82fdd390e24c099cc45f374616c6c7972696e6700000000000000",
        "544c524600000000010000000000000002000000000000000268e5cf8b010000",
        "8000000099cc45f378c82fddd96102b8",
    );
    let disk = MemoryDisk::default();
    let (mut log, _, _) = open(&disk);
    log.append(b"tallyring", 2, NOW_MS + 1).unwrap();
    log.commit().unwrap();
    log.seal(NOW_MS + 2).unwrap();
    let image = disk.bytes(FIRST);
    let (written, zeros) = image.split_at(golden.len() / 2);
    let hex: String = written.iter().map(|byte| format!("{byte:02x}")).collect();
    assert_eq!(hex, golden);
    assert!(zeros.iter().all(|&byte| byte == 0));
    let (_, summary, seen) = open(&disk);
    assert_eq!(
        (summary.end_sequence, payloads(&seen)),
        (2, vec![&b"tallyring"[..]])
    );
}

#[test]
fn a_frame_says_whether_its_clock_was_plausible() {
    const HOUR_MS: i64 = 3_600_000;
    let disk = MemoryDisk::default();
    let (mut log, _, _) = open(&disk);
    let ahead_ms = NOW_MS + 30 * HOUR_MS;
    let times = [
        NOW_MS,
        NOW_MS + 24 * HOUR_MS,
        NOW_MS + 49 * HOUR_MS,
        NOW_MS - HOUR_MS,
        NOW_MS + 23 * HOUR_MS,
    ];
    for now_ms in times {
        log.append(&[7; 20], 1, now_ms).unwrap();
    }
    log.clock_mut().believe(ahead_ms + 24 * HOUR_MS);
    log.append(&[7; 20], 1, ahead_ms).unwrap();
    log.commit().unwrap();
    let mut seen = Vec::new();
    let apply = &mut |frame: crate::oplog::Frame<'_>| {
        assert_eq!(frame.payload, [7; 20]);
        seen.push((frame.written_ms, frame.is_plausible));
        Ok(())
    };
    scan(&disk, None, ReadFrom::Oldest, apply).unwrap();
    let flags = [true, true, false, false, true, true];
    let expected: Vec<_> = times.into_iter().chain([ahead_ms]).zip(flags).collect();
    assert_eq!(seen, expected);
    let reopened = |now_ms, trusts_clock| {
        let options = LogOptions {
            trusts_clock,
            ..OPTIONS
        };
        let disk = Arc::new(disk.clone());
        let from = ReadFrom::Sequence(6);
        let opened = FileLog::open(disk, options, now_ms, from, &mut |_| Ok(()));
        opened.unwrap().0.clock().last_ms()
    };
    let doubted_ms = ahead_ms + 25 * HOUR_MS;
    assert_eq!(reopened(doubted_ms, false), Some(ahead_ms));
    assert_eq!(
        reopened(doubted_ms, false),
        Some(ahead_ms),
        "the start before wrote a doubted frame"
    );
    assert_eq!(reopened(doubted_ms, true), Some(doubted_ms));
}

#[test]
fn a_log_does_not_grow_above_its_limit_and_goes_on_when_old_segments_went() {
    let disk = MemoryDisk::default();
    let options = LogOptions {
        bytes_max: 8 << 10,
        ..OPTIONS
    };
    let mut log = begin(&disk, options);
    let fits = |log: &FileLog| log.segments().bytes() + options.segment_bytes <= options.bytes_max;
    let mut limited = 0;
    while log.segments().check_room(400).is_ok() {
        commit(&mut log, &[7; 400]);
        assert!(fits(&log));
    }
    assert!(log.segments().is_near_limit());
    let error = log.segments().check_room(400).unwrap_err().to_string();
    assert!(error.contains("`oplog.max_bytes` = 8192"), "{error}");
    // The store's own records have a segment more.
    for _ in 0..4 {
        match log.append(&[8; 400], 1, NOW_MS) {
            Ok(_) => {}
            Err(OplogError::Limit { .. }) => limited += 1,
            Err(error) => panic!("{error}"),
        }
        assert!(fits(&log));
    }
    assert_eq!(limited, 2);
    assert!(matches!(
        log.begin_segment(NOW_MS),
        Err(OplogError::Limit { .. })
    ));
    let end = log.commit().unwrap();
    assert_eq!(log.trim(end, i64::MAX, 2).unwrap(), 2);
    log.segments().check_room(400).unwrap();
    commit(&mut log, &[9; 400]);
    drop(log);
    assert_eq!(scan_all(&disk).unwrap().0.end_sequence, end + 1);
}
