//! Tests of the second copy of a log: what it holds at any moment, and when it is refused.

use std::io::ErrorKind;

use super::*;
use crate::oplog::{LogCopy, LogCopyAck};

const IDENTITY: &str = "STORE";

/// A log with its identity, and the records that it appended.
struct Stand {
    disk: MemoryDisk,
    log: FileLog,
}

impl Stand {
    fn new() -> Self {
        let disk = MemoryDisk::default();
        disk.set(IDENTITY, b"this store".to_vec());
        let log = open(&disk).0;
        Self { disk, log }
    }

    /// Commits some frames, in several segments.
    fn commit(&mut self, frames: u8) {
        for frame in 0..frames {
            commit(&mut self.log, &[frame; 300]);
        }
    }

    fn try_follow(&self, copy: &MemoryDisk) -> Result<LogCopy, OplogError> {
        follow(&self.disk, copy)
    }

    fn follow(&self, copy: &MemoryDisk) -> LogCopy {
        self.try_follow(copy)
            .unwrap_or_else(|error| panic!("{error}"))
    }

    fn bring_up(&self, copy: &LogCopy) -> Result<bool, OplogError> {
        copy.bring_up(self.log.durable_end(), u64::MAX, NOW_MS)
    }

    /// Checks that the copy equals the durable part of the log.
    fn check(&self, copy: &MemoryDisk) {
        assert_eq!(
            copy.list("oplog").unwrap(),
            self.disk.list("oplog").unwrap()
        );
        let end = self.log.durable_end();
        for segment in self.log.segments().list() {
            let of_log = self.disk.bytes(&segment.file);
            let durable = match segment.first_sequence == end.newest {
                true => &of_log[..end.bytes as usize],
                false => &of_log,
            };
            assert_eq!(copy.bytes(&segment.file), durable, "{}", segment.file);
        }
        assert_eq!(copy.bytes(IDENTITY), self.disk.bytes(IDENTITY));
    }
}

fn follow(log: &MemoryDisk, copy: &MemoryDisk) -> Result<LogCopy, OplogError> {
    let (log, copy) = (Arc::new(log.clone()), Arc::new(copy.clone()));
    LogCopy::open(log, copy, "there".into(), LogCopyAck::Local, NOW_MS)
}

/// A disk with the same files, durably.
fn image(disk: &MemoryDisk) -> MemoryDisk {
    let image = MemoryDisk::default();
    let files = disk.list("oplog").unwrap();
    let files = files.iter().map(|file| format!("oplog/{file}"));
    for file in files.chain([IDENTITY.to_owned()]) {
        image.set(&file, disk.bytes(&file));
    }
    image
}

#[test]
fn the_copy_equals_the_durable_log_and_reports_its_lag() {
    let (mut stand, disk) = (Stand::new(), MemoryDisk::default());
    let copy = stand.follow(&disk);
    stand.commit(10);
    let behind = copy.status(&stand.log, NOW_MS + 1_500);
    assert_eq!((behind.behind_records, behind.behind_seconds), (10, 1.5));
    assert!(behind.behind_bytes > 3_000, "{behind:?}");
    assert!(stand.bring_up(&copy).unwrap());
    stand.check(&disk);
    stand.log.append(b"not synced yet", 1, NOW_MS).unwrap();
    assert!(stand.bring_up(&copy).unwrap());
    stand.check(&disk);
    assert_eq!(copy.status(&stand.log, NOW_MS).behind_records, 1);
    stand.log.commit().unwrap();
    assert!(stand.bring_up(&copy).unwrap());
    stand.check(&disk);
    let even = copy.status(&stand.log, NOW_MS + 9_000);
    assert_eq!((even.behind_records, even.behind_bytes), (0, 0));
    assert_eq!(even.behind_seconds, 0.0);
}

#[test]
fn a_copy_that_is_far_behind_is_brought_up_in_steps() {
    let (mut stand, disk) = (Stand::new(), MemoryDisk::default());
    let copy = stand.follow(&disk);
    stand.commit(10);
    let mut steps = 1;
    while !copy.bring_up(stand.log.durable_end(), 200, NOW_MS).unwrap() {
        steps += 1;
    }
    assert!(steps > 10, "{steps} steps");
    stand.check(&disk);
}

#[test]
fn expired_segments_leave_the_copy_even_uncopied() {
    let (mut stand, disk) = (Stand::new(), MemoryDisk::default());
    let copy = stand.follow(&disk);
    stand.commit(10);
    stand.bring_up(&copy).unwrap();
    stand.log.trim(4, i64::MAX, usize::MAX).unwrap();
    stand.bring_up(&copy).unwrap();
    stand.check(&disk);
    stand.commit(30);
    let end = stand.log.appended();
    stand.log.trim(end, i64::MAX, usize::MAX).unwrap();
    // The copy was away for longer than the log is kept, so it begins anew.
    for copy in [copy, stand.follow(&disk)] {
        stand.bring_up(&copy).unwrap();
        stand.check(&disk);
    }
}

#[test]
fn a_copy_whose_disk_fails_at_any_call_is_a_beginning_and_goes_on() {
    for seed in 0..6 {
        for calls in 0.. {
            let (mut stand, disk) = (Stand::new(), MemoryDisk::default());
            stand.commit(4);
            let copy = stand.follow(&disk);
            stand.bring_up(&copy).unwrap();
            stand.commit(5);
            disk.fail_after(calls);
            let failed = stand.bring_up(&copy).is_err();
            let context = format!("seed {seed}, {calls} calls");
            assert_eq!(
                failed,
                copy.status(&stand.log, NOW_MS).failure.is_some(),
                "{context}"
            );
            if seed == 0 {
                // The process continues.
                disk.heal();
                stand.bring_up(&copy).unwrap();
                assert_eq!(copy.status(&stand.log, NOW_MS).failure, None);
            } else {
                disk.crash(&mut Choices(seed));
                let again = stand
                    .try_follow(&disk)
                    .unwrap_or_else(|error| panic!("{context}: {error}"));
                stand.bring_up(&again).unwrap();
            }
            stand.check(&disk);
            assert_eq!(scan_all(&disk).unwrap().1, scan_all(&stand.disk).unwrap().1);
            if !failed {
                assert!(calls > 8, "{context}");
                break;
            }
        }
    }
}

#[test]
fn a_write_or_sync_that_fails_is_done_again() {
    let (mut stand, disk) = (Stand::new(), MemoryDisk::default());
    let copy = stand.follow(&disk);
    stand.bring_up(&copy).unwrap();
    let fail: [fn(&MemoryDisk); 3] = [
        |disk| disk.fail_next_write(ErrorKind::StorageFull),
        |disk| disk.fail_next_write(ErrorKind::Other),
        MemoryDisk::fail_next_sync,
    ];
    for fail in fail {
        commit(&mut stand.log, b"one more");
        fail(&disk);
        let error = stand.bring_up(&copy).unwrap_err().to_string();
        assert!(
            error.starts_with("oplog/0000000000000000.tlog: cannot write the second copy: "),
            "{error}"
        );
        stand.bring_up(&copy).unwrap();
        stand.check(&disk);
    }
}

#[test]
fn bytes_of_a_failed_sync_are_written_again_after_a_start() {
    let (mut stand, disk) = (Stand::new(), MemoryDisk::default());
    stand.bring_up(&stand.follow(&disk)).unwrap();
    commit(&mut stand.log, b"one more");
    let copy = stand.follow(&disk);
    disk.fail_next_sync();
    stand.bring_up(&copy).unwrap_err();
    let again = stand.follow(&disk);
    assert_eq!(again.status(&stand.log, NOW_MS).behind_records, 1);
    stand.bring_up(&again).unwrap();
    disk.crash(&mut Choices(3));
    stand.check(&disk);
}

#[test]
fn a_start_with_a_copy_that_is_ahead_is_refused_and_changes_nothing() {
    for frames in [1, 10] {
        let (mut stand, disk) = (Stand::new(), MemoryDisk::default());
        stand.commit(3);
        let before = image(&stand.disk);
        let copy = stand.follow(&disk);
        stand.commit(frames);
        stand.bring_up(&copy).unwrap();
        let copied = image(&disk);
        let error = follow(&before, &disk).err().expect("it is refused");
        let end = 3 + u64::from(frames);
        assert!(
            matches!(error, OplogError::CopyAhead { copy, log: 3 } if copy == end),
            "{error}"
        );
        assert!(error.to_string().contains("--log"), "{error}");
        let nothing = MemoryDisk::default();
        let error = follow(&nothing, &disk).err().expect("it is refused");
        assert!(
            matches!(error, OplogError::CopyAhead { log: 0, .. }),
            "{error}"
        );
        for file in disk.list("oplog").unwrap() {
            let file = format!("oplog/{file}");
            assert_eq!(disk.bytes(&file), copied.bytes(&file));
        }
    }
}

#[test]
fn a_copy_of_another_log_or_store_is_refused() {
    let (mut stand, disk) = (Stand::new(), MemoryDisk::default());
    let base = image(&stand.disk);
    stand.commit(3);
    stand.bring_up(&stand.follow(&disk)).unwrap();
    // The other log begins equally, and then has other records.
    let mut other = Stand {
        log: open(&base).0,
        disk: base,
    };
    other.commit(5);
    let error = other.try_follow(&disk).err().expect("it is refused");
    assert!(
        matches!(error, OplogError::CopyDiffers { .. }),
        "another history: {error}"
    );
    stand.disk.set(IDENTITY, b"another store".to_vec());
    let error = stand.try_follow(&disk).err().expect("it is refused");
    assert!(
        matches!(error, OplogError::CopyDiffers { .. }),
        "another store: {error}"
    );
}

#[test]
fn a_segment_that_the_copy_lost_is_copied_again() {
    let (mut stand, disk) = (Stand::new(), MemoryDisk::default());
    stand.commit(12);
    stand.bring_up(&stand.follow(&disk)).unwrap();
    let files = disk.list("oplog").unwrap();
    disk.remove(&format!("oplog/{}", files[1])).unwrap();
    let copy = stand.follow(&disk);
    stand.bring_up(&copy).unwrap();
    stand.check(&disk);
    // A file that vanishes while the process runs is a failure: the disk may be unmounted.
    disk.remove(&format!("oplog/{}", files.last().unwrap()))
        .unwrap();
    commit(&mut stand.log, b"one more");
    assert!(stand.bring_up(&copy).is_err());
    stand.bring_up(&stand.follow(&disk)).unwrap();
    stand.check(&disk);
}

#[test]
fn a_bit_that_rots_at_the_end_of_the_copy_is_healed_at_the_next_start() {
    let (mut stand, disk) = (Stand::new(), MemoryDisk::default());
    stand.commit(2);
    stand.bring_up(&stand.follow(&disk)).unwrap();
    let mut bytes = disk.bytes(FIRST);
    *bytes.last_mut().unwrap() ^= 1;
    disk.set(FIRST, bytes);
    stand.bring_up(&stand.follow(&disk)).unwrap();
    stand.check(&disk);
}
