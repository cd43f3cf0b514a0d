//! The outside world and the limits of a store; the caller hands both in.

use std::sync::Arc;

use tallyring_archive::{Blobs, Disk, Objects};
use tallyring_records::breakdowns_from;

use crate::clock::Clock;
use crate::delta::Form;
use crate::holds::Holds;
use crate::oplog::SEGMENT_BYTES_DEFAULT;

/// The outside world, as a store sees it.
#[derive(Clone)]
pub struct World {
    /// Disk of the data directory, which holds the log and the blobs ([`World::blobs`]).
    pub disk: Arc<dyn Disk>,
    /// The object store that holds the blobs of several nodes; none where the disk has all blobs.
    pub objects: Option<Arc<dyn Objects>>,
    /// Source of the time.
    pub clock: Arc<dyn Clock>,
    /// Fills a buffer with random bytes; called for the identity of a new store, and at every opening for
    /// names that nobody can guess.
    pub random: fn(&mut [u8]),
}

/// When an increment is acknowledged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Durability {
    /// When the increment is on the disk (the default).
    Fsync,
    /// When the increment is written. A sync follows after this many milliseconds; a power cut may lose that much.
    Interval(u32),
}

/// Limits of a store. [`Options::for_memory`] derives the limits of memory from the memory that this process may use.
#[derive(Debug, Clone, Copy)]
pub struct Options {
    /// Shards of new delta stores and generations, 1–99.
    pub shards: u16,
    /// When increments are acknowledged.
    pub durability: Durability,
    /// Memory that this process may use, bytes. A replay that cannot flush takes up to half of it.
    pub memory_bytes: u64,
    /// Memory of delta stores and ids above which both are flushed, bytes. Memory may reach twice this size while a
    /// flush runs, and a little more for a moment as tables grow.
    pub delta_bytes_max: u64,
    /// Records in memory after which delta stores are flushed, so that a restart replays no more.
    pub replay_records_max: u64,
    /// Decoded blocks that are kept, bytes.
    pub cache_bytes: u64,
    /// Memory that all running reads may hold together, bytes. One read may hold half of it.
    pub read_bytes_max: usize,
    /// Batches that wait to be committed, bytes.
    pub queue_bytes_max: u64,
    /// Memory that all holds may take together, bytes.
    pub holds_bytes_max: usize,
    /// Size of a log segment, bytes.
    pub segment_bytes: u64,
    /// Size that all log segments may have together, with the one that is made ahead, bytes; `u64::MAX` for no limit.
    pub oplog_bytes_max: u64,
    /// Shortest time for which log segments are kept, days.
    pub oplog_days: u32,
    /// Time for which log segments are kept longer than that where there is room, days from when they were written; 0
    /// keeps none longer. Users have pseudonyms in them.
    pub journal_days: u32,
    /// Time for which the books of final days are kept, days from the end of the day; none keeps them for ever. Sums of
    /// their versions stay.
    pub final_days: Option<u32>,
    /// Time for which ids are known to reconciles after their records left the log, days from their arrival; 0 knows
    /// those of the log alone.
    pub ids_days: u32,
    /// How many hours after its end a day becomes final; none where no day does by itself.
    pub final_after_hours: Option<u32>,
    /// Shortest time for which an id is remembered, hours.
    pub id_hours: u32,
    /// Hours before the present one for which breakdowns and users are kept by the minute; 0 keeps none.
    pub breakdown_hours: u32,
    /// Whether holds are in the log when they are answered, so that a restart knows them. They are in memory alone
    /// otherwise.
    pub logs_holds: bool,
    /// Whether evidence is left out of the log once the rules have judged by it.
    pub drops_evidence: bool,
    /// Whether the clock is believed at the opening, however far its time is from the log's.
    pub trusts_clock: bool,
    /// zstd level of flushed runs, 1–19.
    pub flush_level: i32,
}

/// Days after it should be final for which the log has a day that is not.
const HELD_DAYS: i64 = 7;

/// Memory above which the limits grow no further, bytes.
const MEMORY_ENOUGH: u64 = 4 << 30;

impl World {
    /// The blobs of the data directory, or of the object store.
    pub fn blobs(&self) -> Blobs {
        let disk = Arc::clone(&self.disk);
        match &self.objects {
            Some(objects) => Blobs::over(disk, Arc::clone(objects)),
            None => Blobs::new(disk),
        }
    }
}

impl Options {
    /// The defaults for a process that may use `bytes` of memory: an eighth for delta stores (at most 512 MiB), a
    /// sixteenth for decoded blocks (at most 256 MiB), and a sixteenth for batches that wait to be committed (at most
    /// 128 MiB).
    pub fn for_memory(bytes: u64) -> Self {
        Self {
            shards: 4,
            durability: Durability::Fsync,
            memory_bytes: bytes,
            delta_bytes_max: share(bytes, 8, 512),
            replay_records_max: 4_000_000,
            cache_bytes: share(bytes, 16, 256),
            read_bytes_max: usize::try_from(share(bytes, 8, 256)).unwrap_or(usize::MAX),
            queue_bytes_max: share(bytes, 16, 128),
            holds_bytes_max: Holds::BYTES_MAX,
            segment_bytes: SEGMENT_BYTES_DEFAULT,
            oplog_bytes_max: u64::MAX,
            oplog_days: 7,
            journal_days: 0,
            final_days: None,
            ids_days: 0,
            final_after_hours: None,
            id_hours: 25,
            breakdown_hours: 3,
            logs_holds: false,
            drops_evidence: false,
            trusts_clock: false,
            flush_level: 1,
        }
    }

    /// The options of one of so many strands of a process. Limits of memory and of the log are divided among them, but
    /// for the memory of reads: a read is of all strands.
    pub fn of_strand(self, strands: usize) -> Self {
        let strands = u64::try_from(strands).unwrap_or(u64::MAX).max(1);
        let part = |bytes: u64, least: u64| (bytes / strands).max(least.min(bytes));
        Self {
            memory_bytes: part(self.memory_bytes, 1),
            delta_bytes_max: part(self.delta_bytes_max, 1 << 20),
            cache_bytes: part(self.cache_bytes, 1 << 20),
            queue_bytes_max: part(self.queue_bytes_max, 1 << 20),
            holds_bytes_max: usize::try_from(part(self.holds_bytes_max as u64, 1 << 20))
                .unwrap_or(usize::MAX),
            replay_records_max: part(self.replay_records_max, 1),
            oplog_bytes_max: match self.oplog_bytes_max {
                u64::MAX => u64::MAX,
                bytes => part(bytes, self.segment_bytes.saturating_mul(4)),
            },
            ..self
        }
    }

    /// Memory that counts may take before a group is committed and with all that is new in the group: twice that of
    /// delta stores, or a quarter of the memory if that is more, bytes.
    pub fn unflushed_bytes_max(&self) -> u64 {
        (2 * self.delta_bytes_max).max(self.memory_bytes / 4)
    }

    /// The form that all deltas of the store have in common.
    pub(crate) fn form(&self) -> Form {
        Form {
            shards: self.shards,
            breakdowns: self.breakdown_hours > 0,
        }
    }

    /// Start of the first hour whose breakdowns are kept by the minute at `now` (both Unix seconds).
    pub(crate) fn breakdowns_from(&self, now: i64) -> i64 {
        breakdowns_from(now, self.breakdown_hours)
    }

    /// Hours after its end for which the log has a day that is not final, unless it lacks room; none where no day
    /// becomes final by itself.
    pub fn held_hours(&self) -> Option<i64> {
        let hours = self.final_after_hours.map(i64::from);
        hours.map(|hours| hours + HELD_DAYS * 24)
    }

    /// Days for which the log is kept: at least as long as ids are remembered, because the log holds the outcome of
    /// each id.
    pub fn log_days(&self) -> u32 {
        self.oplog_days.max(self.id_hours.div_ceil(24))
    }
}

/// One `part`-th of memory in whole MiB, from 1 to `mib_max`.
fn share(bytes: u64, part: u64, mib_max: u64) -> u64 {
    ((bytes / part) >> 20).clamp(1, mib_max) << 20
}

impl Default for Options {
    fn default() -> Self {
        Self::for_memory(MEMORY_ENOUGH)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strands_divide_the_memory_of_a_process() {
        let whole = Options {
            oplog_bytes_max: 1 << 40,
            ..Options::default()
        };
        let part = whole.of_strand(4);
        assert_eq!(part.delta_bytes_max * 4, whole.delta_bytes_max);
        assert_eq!(part.unflushed_bytes_max() * 4, whole.unflushed_bytes_max());
        assert_eq!(part.oplog_bytes_max * 4, whole.oplog_bytes_max);
        assert_eq!(part.holds_bytes_max * 4, whole.holds_bytes_max);
        assert_eq!(part.read_bytes_max, whole.read_bytes_max);
        let one = Options::default().of_strand(1);
        assert_eq!(format!("{one:?}"), format!("{:?}", Options::default()));
        // A small process with many strands has room for some counts in each.
        let least = Options::for_memory(64 << 20).of_strand(64);
        assert_eq!(least.delta_bytes_max, 1 << 20);
        assert_eq!(least.oplog_bytes_max, u64::MAX);
    }
}
