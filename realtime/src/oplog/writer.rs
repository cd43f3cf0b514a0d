//! The log as it is written: opened after a crash, appended to, synced, continued in a new segment, trimmed.

use std::sync::Arc;

use super::clock_watch::ClockWatch;
use super::cursor::UNSYNCED_BYTES_MAX;
use super::error::{ApplyError, OplogError, Result};
use super::frame::{Frame, PAYLOAD_BYTES_MAX, frame_bytes};
use super::log::Log;
use super::newest::Newest;
use super::recovery::{LogEnd, LogSummary, ReadFrom, read_log};
use super::segment::{SEGMENT_HEADER_BYTES, SegmentHeader, SegmentInfo};
use super::segments::Segments;
use super::spare::{Spare, remove_spares};
use super::tail::Tail;
use tallyring_archive::{Disk, names};

/// Size of a segment unless configured, bytes.
pub const SEGMENT_BYTES_DEFAULT: u64 = 64 << 20;
/// Size of a segment at most, bytes: positions in it, with one more frame, fit 32 bits.
pub const SEGMENT_BYTES_MAX: u64 = 1 << 30;

const _: () =
    assert!(SEGMENT_BYTES_MAX + frame_bytes(PAYLOAD_BYTES_MAX) as u64 <= u32::MAX as u64 / 2);

/// How a log is kept.
#[derive(Debug, Clone, Copy)]
pub struct LogOptions {
    /// Size of a new segment, bytes: above the header's 64, at most [`SEGMENT_BYTES_MAX`].
    pub segment_bytes: u64,
    /// Size that the log may have, with the segment that is made ahead, bytes.
    pub bytes_max: u64,
    /// The store of the log. Segments of another store are refused.
    pub store_id: [u8; 16],
    /// Last plausible time of the clock (Unix milliseconds), used where no frame that is read at the opening has one.
    pub plausible_ms: Option<i64>,
    /// Whether the time of the opening is believed, however far it is from the last plausible time.
    pub trusts_clock: bool,
}

/// The part of a log that is durable.
#[derive(Debug, Clone, Copy)]
pub struct DurableEnd {
    /// Sequence number of the first record of the oldest segment.
    pub oldest: u64,
    /// Sequence number of the first record of the newest segment.
    pub newest: u64,
    /// Bytes of the newest segment that are durable.
    pub bytes: u64,
    /// Sequence number after the last durable record.
    pub sequence: u64,
}

/// The log in a local directory, open for appending. It has one owner, and a data directory has one open log: the
/// caller holds its lock.
pub struct FileLog {
    segments: Segments,
    newest: Newest,
    spare: Arc<Spare>,
    epoch: u32,
    /// True once the epoch is durable in the log, so that records may have it.
    epoch_written: bool,
    /// True when the last frame is a seal.
    sealed: bool,
    durable: u64,
    clock: ClockWatch,
    /// The reason why nothing can be written any more.
    poison: Option<String>,
}

impl FileLog {
    /// Opens the log, begins one if there is none, and passes every frame from `from` on to `apply` in order. A torn
    /// tail is cut. When this function returns, all passed frames are durable, and a new epoch has begun. After an
    /// error nothing is open, and the process must end, because a sync that failed may claim success when it is
    /// repeated. Fails with [`OplogError::Corrupt`], [`OplogError::Missing`], [`OplogError::Version`] and
    /// [`OplogError::ForeignStore`] for a log that must not be continued; [`OplogError::Apply`] with the error of
    /// `apply`; [`OplogError::Io`] and, for the very first segment, [`OplogError::Full`]. Panics when the options are
    /// out of bounds.
    pub fn open(
        disk: Arc<dyn Disk>,
        options: LogOptions,
        now_ms: i64,
        from: ReadFrom,
        apply: &mut dyn FnMut(Frame<'_>) -> Result<(), ApplyError>,
    ) -> Result<(Self, LogSummary)> {
        check_segment_bytes(&options);
        disk.create_directory(names::OPLOG)
            .map_err(OplogError::io(names::OPLOG, "create directory"))?;
        disk.sync_directory("")
            .map_err(OplogError::io("", "sync directory"))?;
        // A crash while a segment was named leaves it a second name; only that name is removed.
        remove_spares(&*disk).map_err(OplogError::io(names::OPLOG, "remove the spare"))?;
        let read = read_log(&*disk, Some(options.store_id), from, apply)?;
        // After the end of a process alone, names may be in memory only.
        disk.sync_directory(names::OPLOG)
            .map_err(OplogError::io(names::OPLOG, "sync directory"))?;
        let spare = Arc::new(Spare::new(Arc::clone(&disk), options.segment_bytes));
        let Some(end) = read else {
            return Ok((
                Self::begin(disk, options, spare, now_ms)?,
                LogSummary::default(),
            ));
        };
        Self::resume(disk, options, spare, now_ms, end)
    }

    /// Begins a new log with its first segment. The header makes the epoch durable.
    fn begin(
        disk: Arc<dyn Disk>,
        options: LogOptions,
        spare: Arc<Spare>,
        now_ms: i64,
    ) -> Result<Self> {
        let header = SegmentHeader {
            epoch: 1,
            first_sequence: 0,
            previous_first: 0,
            created_ms: now_ms,
            store_id: options.store_id,
            previous_crc: 0,
        };
        let newest = Newest::create(&disk, &spare, &header)?;
        let mut segments = Segments::new(disk, options, Vec::new(), 0);
        segments.begun(&header);
        Ok(Self {
            segments,
            newest,
            spare,
            epoch: header.epoch,
            epoch_written: true,
            sealed: false,
            durable: 0,
            clock: ClockWatch::new(Some(now_ms)),
            poison: None,
        })
    }

    /// Continues behind the last frame that was read.
    fn resume(
        disk: Arc<dyn Disk>,
        options: LogOptions,
        spare: Arc<Spare>,
        now_ms: i64,
        read: LogEnd,
    ) -> Result<(Self, LogSummary)> {
        let LogEnd {
            summary,
            segments,
            cursor,
            plausible_ms,
            seed,
        } = read;
        let plausible_ms = match options.trusts_clock {
            true => Some(now_ms),
            false => plausible_ms.or(options.plausible_ms),
        };
        let epoch = cursor.epoch.checked_add(1);
        let epoch = epoch.expect("BUG: four billion opens");
        let mut segments =
            Segments::new(Arc::clone(&disk), options, segments, cursor.offset as u64);
        let last = segments.newest();
        // A backup may end with a segment that was not the newest of its log, and nothing is written behind that.
        let is_ended = last.is_packed;
        let newest = if is_ended {
            let header = SegmentHeader {
                epoch,
                first_sequence: cursor.sequence,
                previous_first: last.first_sequence,
                created_ms: now_ms,
                store_id: options.store_id,
                previous_crc: cursor.crc,
            };
            let newest = Newest::create(&disk, &spare, &header)?;
            segments.begun(&header);
            newest
        } else {
            Newest::reopen(&disk, &last.file, seed, &cursor, summary.torn.as_ref())?
        };
        let mut log = Self {
            segments,
            newest,
            spare,
            epoch,
            epoch_written: is_ended,
            sealed: false,
            durable: cursor.sequence,
            clock: ClockWatch::new(plausible_ms),
            poison: None,
        };
        match log.write_epoch(now_ms) {
            // Counts stay readable on a full disk; the first append tries again.
            Err(error) if !error.is_no_room() => Err(error),
            _ => Ok((log, summary)),
        }
    }

    /// Makes the epoch of this process durable, once, before a record has it.
    fn write_epoch(&mut self, now_ms: i64) -> Result<()> {
        if !self.epoch_written {
            self.write_frame(&[], 0, now_ms)?;
            self.commit()?;
            self.epoch_written = true;
        }
        Ok(())
    }

    fn write_frame(&mut self, payload: &[u8], count: u32, now_ms: i64) -> Result<u64> {
        self.segments.check_limit(payload.len(), 0)?;
        let end = self.newest.end() + frame_bytes(payload.len()) as u64;
        let info = self.newest_info();
        if end > info.bytes && info.end_sequence > info.first_sequence {
            self.roll(now_ms)?;
        } else if self.newest.unsynced_bytes() > UNSYNCED_BYTES_MAX as u64 {
            self.commit()?;
        }
        let first_sequence = self.appended();
        let frame = Frame {
            epoch: self.epoch,
            first_sequence,
            count,
            written_ms: now_ms,
            is_plausible: self.clock.see(now_ms),
            payload,
        };
        match self.newest.write(&frame) {
            Ok(()) => {}
            Err(full @ OplogError::Full { .. }) => {
                self.durable = first_sequence;
                return Err(full);
            }
            Err(error) => return Err(poison(&mut self.poison, &error)),
        }
        self.sealed = count == 0;
        self.segments.grown(count, self.newest.end(), now_ms);
        Ok(first_sequence)
    }

    /// Ends the newest segment durably, and begins the next. A full disk changes nothing.
    fn roll(&mut self, now_ms: i64) -> Result<()> {
        self.commit()?;
        let header = SegmentHeader {
            epoch: self.epoch,
            first_sequence: self.appended(),
            previous_first: self.newest_info().first_sequence,
            created_ms: now_ms,
            store_id: self.segments.options.store_id,
            previous_crc: self.newest.crc(),
        };
        self.newest = match Newest::create(&self.segments.disk, &self.spare, &header) {
            Ok(newest) => newest,
            Err(full @ OplogError::Full { .. }) => return Err(full),
            Err(error) => return Err(poison(&mut self.poison, &error)),
        };
        self.segments.begun(&header);
        Ok(())
    }

    fn newest_info(&self) -> &SegmentInfo {
        self.segments.newest()
    }

    fn check_poison(&self) -> Result<()> {
        match &self.poison {
            Some(cause) => Err(OplogError::Poisoned {
                cause: cause.clone(),
            }),
            None => Ok(()),
        }
    }
}

impl Log for FileLog {
    /// As the trait says. After 16 MiB of frames without a sync this function syncs first. A full segment is synced and
    /// ended.
    fn append(&mut self, payload: &[u8], count: u32, now_ms: i64) -> Result<u64> {
        assert!(count > 0, "BUG: a frame without records");
        self.check_poison()?;
        if payload.len() > PAYLOAD_BYTES_MAX {
            return Err(OplogError::TooLarge {
                bytes: payload.len(),
                bytes_max: PAYLOAD_BYTES_MAX,
            });
        }
        self.write_epoch(now_ms)?;
        self.write_frame(payload, count, now_ms)
    }

    fn commit(&mut self) -> Result<u64> {
        self.check_poison()?;
        self.newest
            .sync()
            .map_err(|error| poison(&mut self.poison, &error))?;
        self.durable = self.appended();
        Ok(self.durable)
    }

    /// Syncs, then writes and syncs a seal unless the last frame is one.
    fn seal(&mut self, now_ms: i64) -> Result<()> {
        self.commit()?;
        self.write_epoch(now_ms)?;
        if self.sealed || self.appended() == 0 {
            return Ok(());
        }
        self.write_frame(&[], 0, now_ms)?;
        self.commit().map(drop)
    }

    fn begin_segment(&mut self, now_ms: i64) -> Result<()> {
        self.check_poison()?;
        let newest = self.newest_info();
        match newest.end_sequence > newest.first_sequence {
            true => {
                self.segments
                    .check_growth(self.segments.options.segment_bytes, 0)?;
                self.roll(now_ms)
            }
            false => Ok(()),
        }
    }

    fn trim(&mut self, sequence: u64, older_than_ms: i64, at_most: usize) -> Result<usize> {
        self.check_poison()?;
        let mut deleted = 0;
        while deleted < at_most && self.segments.may_remove_oldest(sequence, older_than_ms) {
            self.segments.remove_oldest()?;
            deleted += 1;
            // A sync follows each removal: of several unsynced removals, a crash may undo any, which leaves a gap.
            self.segments
                .sync_directory()
                .map_err(|error| poison(&mut self.poison, &error))?;
        }
        Ok(deleted)
    }

    fn epoch(&self) -> u32 {
        self.epoch
    }

    fn appended(&self) -> u64 {
        self.newest_info().end_sequence
    }

    fn durable(&self) -> u64 {
        self.durable
    }

    fn durable_end(&self) -> DurableEnd {
        DurableEnd {
            oldest: self.segments.list()[0].first_sequence,
            newest: self.newest_info().first_sequence,
            bytes: self.newest.end() - self.newest.unsynced_bytes(),
            sequence: self.durable,
        }
    }

    fn segments(&self) -> &Segments {
        &self.segments
    }

    fn segments_mut(&mut self) -> &mut Segments {
        &mut self.segments
    }

    fn clock(&self) -> &ClockWatch {
        &self.clock
    }

    fn clock_mut(&mut self) -> &mut ClockWatch {
        &mut self.clock
    }

    fn spare(&self) -> Option<Arc<Spare>> {
        Some(Arc::clone(&self.spare))
    }

    fn is_shared(&self) -> bool {
        false
    }

    fn has_failed(&self) -> bool {
        self.poison.is_some()
    }

    fn step_down(self: Box<Self>) -> Option<Tail> {
        None
    }
}

/// Checks that the size of segments is within its bounds.
pub(super) fn check_segment_bytes(options: &LogOptions) {
    let bytes = options.segment_bytes;
    let bounds = SEGMENT_HEADER_BYTES as u64 + 1..=SEGMENT_BYTES_MAX;
    assert!(
        bounds.contains(&bytes),
        "BUG: segments of {bytes} bytes, not in {bounds:?}"
    );
}

/// Ends all writing: every later call gets the first failure.
fn poison(poison: &mut Option<String>, error: &OplogError) -> OplogError {
    let cause = error.to_string();
    *poison = Some(cause.clone());
    OplogError::Poisoned { cause }
}
