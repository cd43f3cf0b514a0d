//! The oplog: segments of checksummed frames, appended, made durable, and read back in order.
//!
//! It knows nothing of what a record says, of threads, or of the clock: a payload is bytes, and a
//! time is handed in. One frame is one group commit; its `count` records take the sequence numbers
//! `first_sequence ..`. Numbers start at 0. A *sequence* that marks a place (`start`, `end`,
//! `appended`, `durable`) is the number of the next record: everything below it is covered.
//!
//! # Files
//!
//! A segment is `oplog/<first_sequence:016x>.tlog`. It is made as `oplog/spare.tmp` (zeros written
//! and synced, so that a commit changes no metadata), gets its header, is synced again, and only
//! then named; its directory is synced before a frame goes in. All integers are little-endian.
//!
//! ```text
//! segment  64-byte header, frames one after another, zeros to the end
//!   0 magic "TLRLOG01"   16 first_sequence u64      40 store_id 16 bytes
//!   8 format u16 = 1     24 previous_first u64      56 previous_crc u32
//!  10 flags u16 = 0      32 created_ms i64          60 header_crc u32, of bytes 0..60
//!  12 epoch u32
//!
//! frame    48-byte header, payload, zeros to a multiple of 8
//!   0 magic "TLRF"       16 first_sequence u64      36 previous_crc u32
//!   4 payload_bytes u32  24 written_ms i64          40 payload_crc u32, of payload and zeros
//!   8 epoch u32          32 synced_bytes u32        44 header_crc u32, of bytes 0..44
//!  12 count u32
//! ```
//!
//! The highest bit of `payload_bytes` is set in a frame that was written under a clock that was not plausible: more than a
//! day from where it was plausible last, and not believed yet. Frames of older builds count as plausible.
//!
//! # Invariants
//!
//! * A frame's CRCs start from its segment's `header_crc`, so bytes that a client chose, or a frame
//!   of another segment or store, are never taken for a frame here.
//! * `previous_crc` chains: it is the `header_crc` of what stands before, be it a frame or the
//!   segment header; in a segment header that of the last frame of the segment before, whose name
//!   `previous_first` gives (its own number in the very first segment).
//! * `payload_bytes` is believed only after `header_crc`.
//! * Only the newest segment can hold a torn write: the one before was synced before it was named.
//! * `synced_bytes` says how much of the segment was durable when the frame was written. So a frame
//!   proves that damage before that point is not a torn write (it may have been acknowledged: the
//!   open fails), while damage behind it is (never acknowledged: cut), even with several frames on
//!   the way to the disk at once. Behind the last frame nothing proves anything; a *seal*, a frame
//!   without records, is therefore written when idle and at shutdown.
//! * The epoch rises by one at every open, and a seal (or a segment header) that carries it is
//!   durable before any record does, so a pair of epoch and number is never used twice.
//! * A segment without a record is never followed by another (both would have one name); it grows
//!   past its zeros instead. So does one whose only frame is larger than a segment.

mod copy;
mod cursor;
mod error;
mod frame;
mod newest;
mod recovery;
mod second;
mod segment;
mod spare;
#[cfg(test)]
mod tests;
mod writer;

pub use copy::{Frames, Segment, copy_segment, segment, segments, whole_frames};
pub use error::{ApplyError, OplogError};
pub use frame::{Frame, PAYLOAD_BYTES_MAX};
pub use recovery::{LogSummary, ReadFrom, TornTail, read_one, scan};
pub use second::{LogCopy, LogCopyAck, LogCopyStatus};
pub use segment::{SEGMENT_HEADER_BYTES, SegmentInfo};
pub use spare::Spare;
pub use writer::{DurableEnd, Log, LogOptions, SEGMENT_BYTES_DEFAULT, SEGMENT_BYTES_MAX};
