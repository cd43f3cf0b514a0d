//! Compares the log with a vector, under random appends, failures and crashes.

use std::collections::HashSet;

use proptest::prelude::*;

use super::*;
use crate::oplog::pack;

#[derive(Debug, Clone)]
enum Step {
    Append {
        bytes: usize,
        count: u32,
    },
    Sync,
    Seal,
    Prepare,
    Pack,
    Delete {
        keep: u64,
    },
    Space {
        bytes: u64,
    },
    FailAfter {
        changes: u64,
    },
    /// The power fails.
    Crash {
        seed: u64,
    },
    /// The process ends, and the disk keeps its memory.
    Restart,
}

fn any_step() -> impl Strategy<Value = Step> {
    prop_oneof![
        12 => (0..400_usize, 1..4_u32).prop_map(|(bytes, count)| Step::Append { bytes, count }),
        1 => (900..3000_usize, 1..4_u32).prop_map(|(bytes, count)| Step::Append { bytes, count }),
        5 => Just(Step::Sync),
        2 => Just(Step::Seal),
        1 => Just(Step::Prepare),
        2 => Just(Step::Pack),
        1 => (0..20_u64).prop_map(|keep| Step::Delete { keep }),
        1 => (0..3000_u64).prop_map(|bytes| Step::Space { bytes }),
        1 => (0..20_u64).prop_map(|changes| Step::FailAfter { changes }),
        2 => any::<u64>().prop_map(|seed| Step::Crash { seed }),
        1 => Just(Step::Restart),
    ]
}

struct Model {
    disk: MemoryDisk,
    /// None after a failure, until the next crash.
    log: Option<FileLog>,
    /// Records that were appended, or may have been when the last append failed.
    frames: Vec<Seen>,
    durable: u64,
    oldest: u64,
    epoch: u32,
    /// Every pair of epoch and number that ever had a payload.
    used: HashSet<(u32, u64)>,
    written: u8,
}

impl Model {
    fn new() -> Self {
        let disk = MemoryDisk::default();
        let (log, _, _) = open(&disk);
        Self {
            disk,
            log: Some(log),
            frames: Vec::new(),
            durable: 0,
            oldest: 0,
            epoch: 1,
            used: HashSet::new(),
            written: 0,
        }
    }

    fn step(&mut self, step: Step) {
        match step {
            Step::Crash { seed } => return self.crash(seed),
            Step::Restart => return self.restart(),
            Step::Space { bytes } => self.disk.limit_space(Some(bytes)),
            Step::FailAfter { changes } => self.disk.fail_after(changes),
            _ => {}
        }
        let Some(mut log) = self.log.take() else {
            return;
        };
        let done = match step {
            Step::Append { bytes, count } => self.append(&mut log, bytes, count),
            Step::Sync => log.commit().map(drop),
            Step::Seal => log.seal(NOW_MS),
            Step::Prepare => {
                log.spare().unwrap().prepare().ok();
                Ok(())
            }
            Step::Pack => match log.segments().to_pack(0, log.durable()) {
                Some(first) => pack(&self.disk, first, &mut |_, _| Ok(()))
                    .and_then(|packing| log.segments_mut().put_packed(&packing))
                    .map(|is_there| assert!(is_there)),
                None => Ok(()),
            },
            Step::Delete { keep } => {
                let deleted = log.trim(log.durable().saturating_sub(keep), i64::MAX, usize::MAX);
                self.oldest = log.segments().list()[0].first_sequence;
                deleted.map(drop)
            }
            _ => Ok(()),
        };
        assert!(self.durable <= log.durable() && log.durable() <= log.appended());
        self.durable = log.durable();
        match done {
            Ok(()) => self.log = Some(log),
            Err(OplogError::Full { .. }) => {
                self.disk.limit_space(None);
                self.log = Some(log);
            }
            Err(OplogError::Poisoned { .. } | OplogError::Io { .. }) => {}
            Err(error) => panic!("{error}"),
        }
    }

    fn append(&mut self, log: &mut FileLog, bytes: usize, count: u32) -> Result<(), OplogError> {
        self.written = self.written.wrapping_add(1);
        let payload = vec![self.written; bytes];
        let first_sequence = log.appended();
        let result = log.append(&payload, count, NOW_MS);
        if matches!(result, Err(OplogError::Full { .. })) {
            return result.map(drop);
        }
        self.frames.push(Seen {
            epoch: log.epoch(),
            first_sequence,
            count,
            payload,
        });
        if let Ok(sequence) = result {
            assert_eq!(sequence, first_sequence);
            assert!(self.used.insert((log.epoch(), sequence)), "used twice");
        }
        result.map(drop)
    }

    fn crash(&mut self, seed: u64) {
        self.log = None;
        self.disk.crash(&mut Choices(seed));
        self.reopen();
    }

    /// A failed process leaves in memory what the next one finds, not yet on the disk.
    fn restart(&mut self) {
        if self.log.take().is_none() {
            self.disk.heal();
        }
        self.reopen();
    }

    /// Everything durable is found; the rest that is found is a beginning of what was appended.
    fn reopen(&mut self) {
        let scanned = scan_all(&self.disk).unwrap().1;
        let (log, summary, seen) = match try_open(&self.disk, ReadFrom::Oldest) {
            Ok(opened) => opened,
            // The disk still fails after a restart without a crash.
            Err(OplogError::Io { .. } | OplogError::Poisoned { .. }) => return,
            Err(error) => panic!("{error}"),
        };
        assert_eq!(scanned, seen);
        // On a full disk an epoch can begin without a record: only `used` decides.
        assert!(log.epoch() >= self.epoch);
        self.epoch = log.epoch();
        // An unsynced removal may be undone; removals never leave a gap.
        assert!(summary.oldest_sequence <= self.oldest);
        self.oldest = summary.oldest_sequence;
        let kept = self
            .frames
            .iter()
            .position(|frame| frame.first_sequence >= self.oldest);
        let expected = &self.frames[kept.unwrap_or(self.frames.len())..];
        assert!(seen.len() <= expected.len());
        assert_eq!(seen, expected[..seen.len()]);
        assert!(
            log.appended() >= self.durable,
            "{} < {}",
            log.appended(),
            self.durable
        );
        self.durable = log.durable();
        self.frames
            .retain(|frame| frame.first_sequence < log.appended());
        self.log = Some(log);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1024))]

    #[test]
    fn prop_durable_records_survive_and_nothing_else_appears(
        steps in prop::collection::vec(any_step(), 1..80),
        seed in any::<u64>(),
    ) {
        let mut model = Model::new();
        for step in steps {
            model.step(step);
        }
        model.crash(seed);
    }
}
