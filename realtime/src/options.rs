//! The outside world and the limits of a store, handed in.

use std::sync::Arc;

use tallyring_archive::{Blobs, Disk};

use crate::clock::Clock;
use crate::oplog::SEGMENT_BYTES_DEFAULT;

/// The outside world.
#[derive(Clone)]
pub struct World {
    /// The data directory: the log, and the blobs ([`World::blobs`]).
    pub disk: Arc<dyn Disk>,
    /// The time.
    pub clock: Arc<dyn Clock>,
    /// Fills a buffer with random bytes; used once, for a new store's identity.
    pub random: fn(&mut [u8]),
}

/// When an increment is acknowledged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Durability {
    /// When it is on the disk (the default).
    Fsync,
    /// When it is written; synced every so many milliseconds. A power cut may lose that much.
    Interval(u32),
}

/// Limits of a store. Those of memory follow from how much there is ([`Options::for_memory`]).
#[derive(Debug, Clone, Copy)]
pub struct Options {
    /// Shards of new delta stores and generations, 1–99.
    pub shards: u16,
    /// When increments are acknowledged.
    pub durability: Durability,
    /// Memory there is, bytes. A replay that cannot be flushed takes up to half of it.
    pub memory_bytes: u64,
    /// Memory of deltas and ids above which they are flushed, bytes. Up to twice as much is used
    /// while a flush runs, and a little more for a moment as tables grow.
    pub delta_bytes_max: u64,
    /// Records after which deltas are flushed, so that a restart replays no more.
    pub replay_records_max: u64,
    /// Decoded blocks kept, bytes.
    pub cache_bytes: u64,
    /// Memory that all reads on their way may hold together, bytes; one may hold half of it.
    pub read_bytes_max: usize,
    /// Batches that wait to be committed, bytes.
    pub queue_bytes_max: u64,
    /// Bytes of a log segment.
    pub segment_bytes: u64,
    /// How long log segments are kept at least, days.
    pub oplog_days: u32,
    /// How long an id is remembered at least, hours.
    pub id_hours: u32,
    /// Whether the clock's time at the opening is believed, however far it is from the log's.
    pub trusts_clock: bool,
    /// zstd level of flushed runs, 1–19.
    pub flush_level: i32,
}

/// Memory from which on limits are as large as they get.
const MEMORY_ENOUGH: u64 = 4 << 30;

impl World {
    /// The blobs of the data directory.
    pub fn blobs(&self) -> Blobs {
        Blobs::new(Arc::clone(&self.disk))
    }
}

impl Options {
    /// The defaults where there are so many bytes of memory: an eighth for deltas (at most 512 MiB), a sixteenth each for
    /// decoded blocks (256 MiB) and for what waits to be committed (128 MiB).
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
            segment_bytes: SEGMENT_BYTES_DEFAULT,
            oplog_days: 7,
            id_hours: 25,
            trusts_clock: false,
            flush_level: 1,
        }
    }

    /// Days that the log is kept: at least as long as ids are known, because what became of them is in it.
    pub fn log_days(&self) -> u32 {
        self.oplog_days.max(self.id_hours.div_ceil(24))
    }
}

/// A part of memory in whole MiB, at least one.
fn share(bytes: u64, part: u64, mib_max: u64) -> u64 {
    ((bytes / part) >> 20).clamp(1, mib_max) << 20
}

impl Default for Options {
    fn default() -> Self {
        Self::for_memory(MEMORY_ENOUGH)
    }
}
