//! Tests of damage: a crash is repaired, other damage is refused, and no read returns a wrong payload.

use super::*;

#[test]
fn every_truncation_recovers_the_longest_prefix_of_whole_frames() {
    let (disk, ends) = small_log(&[b"one", b"", b"three three three", &[4; 64]]);
    let image = disk.bytes(FIRST);
    let all = scan_all(&disk).unwrap().1;
    for cut in SEGMENT_HEADER_BYTES..=image.len() {
        disk.set(FIRST, image[..cut].to_vec());
        let whole = ends.iter().filter(|&&end| end <= cut).count();
        let (mut log, summary, seen) = open(&disk);
        assert_eq!(seen, all[..whole], "cut at {cut}");
        let behind = cut - ends[..whole].last().unwrap_or(&SEGMENT_HEADER_BYTES);
        let torn = summary.torn.map_or(0, |torn| torn.bytes);
        assert!(torn <= behind as u64, "cut at {cut}: {torn} bytes torn");
        assert_eq!(commit(&mut log, b"again"), whole as u64);
        let (_, summary, seen) = open(&disk);
        assert_eq!(
            (seen.len(), summary.torn),
            (whole + 1, None),
            "cut at {cut}"
        );
        for later in disk.list("oplog").unwrap().split_off(1) {
            disk.remove(&format!("oplog/{later}")).unwrap();
        }
    }
    for cut in 0..SEGMENT_HEADER_BYTES {
        disk.set(FIRST, image[..cut].to_vec());
        assert!(
            matches!(refusal(&disk), OplogError::Corrupt { offset: 0, .. }),
            "cut at {cut}"
        );
    }
}

#[test]
fn every_flipped_bit_is_refused_or_cut_with_the_last_frame() {
    let (disk, ends) = small_log(&[b"one", b"", b"three"]);
    let image = disk.bytes(FIRST);
    let all = scan_all(&disk).unwrap().1;
    for bit in 0..image.len() * 8 {
        let mut flipped = image.clone();
        flipped[bit / 8] ^= 1 << (bit % 8);
        disk.set(FIRST, flipped);
        match try_open(&disk, ReadFrom::Oldest) {
            Err(OplogError::Corrupt { offset, .. }) => {
                assert!(offset as usize <= bit / 8 && bit / 8 < ends[1], "bit {bit}");
            }
            Err(error) => panic!("bit {bit}: {error}"),
            Ok((_, summary, seen)) => {
                assert!(bit / 8 >= ends[1] && summary.torn.is_some(), "bit {bit}");
                let kept = if bit / 8 < ends[2] { 2 } else { 3 };
                assert_eq!(seen, all[..kept], "bit {bit}");
            }
        }
    }
}

#[test]
fn every_flipped_bit_before_a_seal_or_in_an_older_segment_is_refused() {
    let disk = MemoryDisk::default();
    let (mut log, _, _) = open(&disk);
    commit(&mut log, &[1; 600]);
    commit(&mut log, &[2; 600]);
    log.seal(NOW_MS).unwrap();
    let second = log.segments().list()[1].file.clone();
    let sealed_bytes = SEGMENT_HEADER_BYTES + 48 + 600;
    for (file, checked_bytes) in [(FIRST, 1024), (second.as_str(), sealed_bytes)] {
        let image = disk.bytes(file);
        for bit in 0..checked_bytes * 8 {
            let mut flipped = image.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            disk.set(file, flipped);
            let found = refusal(&disk);
            assert!(
                matches!(&found, OplogError::Corrupt { file: named, offset, .. }
                    if named == file && *offset as usize <= bit / 8),
                "bit {bit} of {file}: {found}"
            );
            assert!(scan_all(&disk).is_err(), "bit {bit} of {file}");
        }
        disk.set(file, image);
    }
}

#[test]
fn damage_in_an_older_segment_names_file_offset_and_record() {
    let disk = MemoryDisk::default();
    let (mut log, _, _) = open(&disk);
    for _ in 0..10 {
        commit(&mut log, &[1; 400]);
    }
    let file = log.segments().list()[2].file.clone();
    let mut image = disk.bytes(&file);
    image[64 + 48 + 400 + 48] ^= 1;
    disk.set(&file, image);
    let text = refusal(&disk).to_string();
    let (found, crcs) = text.split_once("payload checksum ").unwrap();
    assert_eq!(
        found,
        "oplog/0000000000000004.tlog: damaged at byte 512, from record 5 on: "
    );
    assert_eq!(
        crcs.split_once("; ").unwrap().1,
        "the start is refused: move the damaged copy aside and restore this segment from a backup"
    );
    let from = ReadFrom::Sequence(log.segments().list()[3].first_sequence);
    assert!(
        try_open(&disk, from).is_ok(),
        "what is not read is not checked"
    );
}

#[test]
fn a_synced_frame_that_the_disk_lost_is_refused() {
    for lost in 0..2 {
        let (disk, ends) = small_log(&[b"one", b"two", b"three"]);
        let mut image = disk.bytes(FIRST);
        let start = if lost == 0 {
            SEGMENT_HEADER_BYTES
        } else {
            ends[0]
        };
        image[start..ends[lost]].fill(0);
        disk.set(FIRST, image);
        let text = refusal(&disk).to_string();
        assert!(
            text.contains("was written after this part was durable"),
            "{text}"
        );
    }
}

#[test]
fn an_older_segment_that_lacks_its_last_frame_is_refused() {
    let disk = MemoryDisk::default();
    let (mut log, _, _) = open(&disk);
    for _ in 0..3 {
        commit(&mut log, &[1; 400]);
    }
    let mut image = disk.bytes(FIRST);
    image[64 + 448..].fill(0);
    disk.set(FIRST, image);
    let text = refusal(&disk).to_string();
    assert!(
        text.starts_with(&format!("{FIRST}: damaged at byte 512, from record 1 on: ")),
        "{text}"
    );
    assert!(text.contains("the frames end at record 1"), "{text}");
    assert!(
        text.contains("oplog/0000000000000002.tlog goes on from record 2"),
        "{text}"
    );
}

#[test]
fn a_whole_frame_in_the_wrong_place_is_refused() {
    let (disk, ends) = small_log(&[b"one", b"two"]);
    let image = disk.bytes(FIRST);
    let problem = |source: std::ops::Range<usize>, from: &[u8]| {
        let mut image = image.clone();
        image[ends[0]..ends[1]].copy_from_slice(&from[source]);
        disk.set(FIRST, image);
        let error = refusal(&disk);
        let OplogError::Corrupt {
            offset, problem, ..
        } = error
        else {
            panic!("{error}")
        };
        assert_eq!(offset as usize, ends[0]);
        problem
    };
    let repeated = problem(SEGMENT_HEADER_BYTES..ends[0], &image);
    assert_eq!(repeated, "a frame with record 0, expected record 1");
    // A segment with another past but an equal header.
    let (other, _) = small_log(&[b"eno", b"two"]);
    let foreign = problem(ends[0]..ends[1], &other.bytes(FIRST));
    assert!(
        foreign.starts_with("a frame that follows checksum "),
        "{foreign}"
    );
}

#[test]
fn unsynced_frames_that_reach_the_disk_out_of_order_are_a_torn_tail() {
    let disk = MemoryDisk::default();
    let (mut log, _, _) = open(&disk);
    commit(&mut log, b"acknowledged");
    let before = disk.bytes(FIRST);
    for payload in [b"lost", b"kept", b"also"] {
        log.append(payload, 1, NOW_MS).unwrap();
    }
    let mut image = disk.bytes(FIRST);
    let lost = SEGMENT_HEADER_BYTES + 48 + 16;
    image[lost..lost + 56].copy_from_slice(&before[lost..lost + 56]);
    disk.set(FIRST, image);
    let (log, summary, seen) = open(&disk);
    assert_eq!(payloads(&seen), [b"acknowledged"]);
    let torn = summary.torn.unwrap();
    assert_eq!((torn.file.as_str(), torn.offset), (FIRST, lost as u64));
    assert_eq!(log.appended(), 1);
    assert!(
        disk.bytes(FIRST)[lost + 48..].iter().all(|&byte| byte == 0),
        "it was cut"
    );
}

#[test]
fn a_payload_that_imitates_a_frame_proves_nothing() {
    let (source, _) = small_log(&[b"one", b"two"]);
    let imitation = source.bytes(FIRST)[SEGMENT_HEADER_BYTES..][..112].to_vec();
    let disk = MemoryDisk::default();
    let options = LogOptions {
        store_id: [8; 16],
        ..OPTIONS
    };
    let open = || {
        FileLog::open(
            Arc::new(disk.clone()),
            options,
            1,
            ReadFrom::Oldest,
            &mut |_| Ok(()),
        )
    };
    let (mut log, _) = open().unwrap();
    commit(&mut log, &imitation);
    let mut image = disk.bytes(FIRST);
    image[SEGMENT_HEADER_BYTES + 48] = 0;
    disk.set(FIRST, image);
    let (log, summary) = open().unwrap();
    assert_eq!(
        (log.appended(), summary.torn.map(|torn| torn.offset)),
        (0, Some(64))
    );
}

#[test]
fn a_scan_repairs_nothing_and_ends_at_the_torn_tail() {
    let (disk, ends) = small_log(&[b"one", b"two"]);
    let mut image = disk.bytes(FIRST);
    image[ends[1] - 8] ^= 1;
    disk.set(FIRST, image.clone());
    let (summary, seen) = scan_all(&disk).unwrap();
    assert_eq!(payloads(&seen), [b"one"]);
    assert_eq!(summary.torn.map(|torn| torn.offset), Some(ends[0] as u64));
    assert_eq!(disk.bytes(FIRST), image);
    assert_eq!(
        scan_all(&MemoryDisk::default()).unwrap().0,
        LogSummary::default()
    );
}

#[test]
fn missing_segments_are_named() {
    let disk = MemoryDisk::default();
    let error = try_open(&disk, ReadFrom::Sequence(9)).err().unwrap();
    assert!(
        matches!(
            error,
            OplogError::Missing {
                from: 0,
                next: 9,
                ..
            }
        ),
        "{error}"
    );
    let (mut log, _, _) = open(&disk);
    for _ in 0..10 {
        commit(&mut log, &[1; 400]);
    }
    disk.remove(&log.segments().list()[2].file).unwrap();
    let found = refusal(&disk);
    assert!(
        matches!(&found, OplogError::Missing { file, from: 4, next: 6 }
            if file == "oplog/0000000000000004.tlog"),
        "{found}"
    );
}

#[test]
fn a_segment_of_another_store_format_or_name_is_refused() {
    let (disk, _) = small_log(&[b"one"]);
    let image = disk.bytes(FIRST);

    let other = LogOptions {
        store_id: [8; 16],
        ..OPTIONS
    };
    let mut apply = |_: crate::oplog::Frame<'_>| Ok(());
    let opened = FileLog::open(
        Arc::new(disk.clone()),
        other,
        1,
        ReadFrom::Oldest,
        &mut apply,
    );
    assert_eq!(
        opened.err().unwrap().to_string(),
        format!(
            "{FIRST}: the segment belongs to store {}, but this data directory is store {}; restore the oplog that belongs \
             here, or name the topic of this store",
            "07".repeat(16),
            "08".repeat(16)
        )
    );

    let mut newer = image.clone();
    newer[8] = 5;
    let crc = crc32fast::hash(&newer[..60]);
    newer[60..64].copy_from_slice(&crc.to_le_bytes());
    disk.set(FIRST, newer);
    assert_eq!(
        refusal(&disk).to_string(),
        format!(
            "{FIRST}: oplog format 5, this build reads formats up to 4; run the build that wrote it, or \
             upgrade"
        )
    );

    disk.set(FIRST, image.clone());
    disk.set("oplog/0000000000000001.tlog", image);
    let text = refusal(&disk).to_string();
    assert!(
        text.contains(&format!("the name of the segment should be {FIRST}")),
        "{text}"
    );
}

#[test]
fn an_error_of_the_caller_names_the_frame() {
    let (disk, _) = small_log(&[b"one", b"two"]);
    let mut apply = |frame: crate::oplog::Frame<'_>| match frame.first_sequence {
        1 => Err("of kind 9, unknown here".into()),
        _ => Ok(()),
    };
    let opened = FileLog::open(
        Arc::new(disk),
        OPTIONS,
        NOW_MS,
        ReadFrom::Oldest,
        &mut apply,
    );
    assert_eq!(
        opened.err().unwrap().to_string(),
        format!(
            "{FIRST}: the frame at byte 120, record 1, cannot be applied: of kind 9, unknown here"
        )
    );
}
