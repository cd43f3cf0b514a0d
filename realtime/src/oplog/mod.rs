//! The oplog: segments of checksummed frames, appended, made durable, and read back in order.
//!
//! The log knows nothing of the content of records, of threads, or of the clock: a payload is bytes, and the caller
//! hands in the time. One frame is one group commit. Its `count` records have the sequence numbers from
//! `first_sequence` on; the first number of a log is 0. A sequence number that marks a boundary (`start`, `end`,
//! `appended`, `durable`) is the number of the next record: everything below it is covered.
//!
//! # Files
//!
//! A segment is `oplog/<first_sequence:016x>.tlog`. It is created as `oplog/spare.tmp` (zeros are written and synced,
//! so that a commit changes no metadata). The file then gets its header and is synced again, and only then is it named.
//! Its directory is synced before a frame goes in. All integers are little-endian.
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
//! Once a segment is written no more, its file may be packed: `packed.rs` describes that form, format 2, or 3
//! where payloads were replaced. All offsets and sizes of frames are those of the plain form.
//!
//! The highest bit of `payload_bytes` is set in a frame that was written while the clock was doubted: more than a day
//! from its last plausible time, and not believed yet. Frames of older builds count as plausible.
//!
//! The next bit of `payload_bytes` is set in a frame whose payload was replaced, because the frame named a user who was
//! erased. Its `synced_bytes` is the `header_crc` of the frame of before, so that the chain goes on. The log has such
//! frames in packed segments only, where nothing is torn; a copy and a mirror have them in the plain form, too. Frames
//! behind one may be at another offset than their `synced_bytes` took for granted, which the newest segment alone is
//! judged by.
//!
//! In a cluster one partition of a topic keeps the log, and a message is one frame or one header of a segment. The file
//! `chain.rs` says which of them count. Each node has those that do in the files of above. The log of a directory comes
//! to a topic frame by frame (`transfer.rs`), with frames whose payloads were replaced.
//!
//! # Invariants
//!
//! * The CRCs of a frame start from the `header_crc` of its segment. So bytes that a client chose, or a frame of
//!   another segment or store, are never taken for a frame here.
//! * `previous_crc` is a chain: it is the `header_crc` of the preceding frame, or of the segment header before the
//!   first frame. In a segment header it is the `header_crc` of the last frame of the preceding segment, which
//!   `previous_first` names (the very first segment names itself).
//! * `payload_bytes` is believed only after `header_crc` was checked.
//! * Only the newest segment can hold a torn write: the preceding segment was synced before the newest was named.
//! * `synced_bytes` says how much of the segment was durable when the frame was written. So a frame proves that damage
//!   before that point is not a torn write: the damaged part may have been acknowledged, and the open fails. Damage
//!   behind that point is a torn write, which was never acknowledged and is cut, even with several frames on the way to
//!   the disk at once. Nothing proves anything about the bytes behind the last frame. A *seal*, a frame without
//!   records, is therefore written when the log is idle and at shutdown.
//! * The epoch rises by one at every open. A seal (or a segment header) with the new epoch is durable before any record
//!   has it, so a pair of epoch and sequence number is never used twice.
//! * A segment without a record is never followed by another segment, because both would have one name; it grows past
//!   its zeros instead. A segment grows, too, when its only frame is larger than a segment.

mod chain;
mod clock_watch;
mod copy;
mod cursor;
mod days;
mod entries;
mod error;
mod forecast;
mod frame;
mod headers;
mod log;
mod messages;
mod mirror;
mod newest;
mod pack;
mod packed;
mod recovery;
mod redact;
mod room;
mod second;
mod segment;
mod segments;
mod spare;
mod survey;
mod tail;
#[cfg(test)]
mod tests;
mod topic;
mod topic_log;
mod transfer;
mod window;
mod writer;

pub use chain::{Ahead, Chain, Verdict, begin_log, check_begin};
pub use clock_watch::ClockWatch;
pub use copy::{
    Frames, Segment, copy_segment, event_days, is_up_to_date, oldest_segment, packed_file,
    plain_bytes, segment, segments, whole_frames,
};
pub use cursor::ChainPoint;
pub use days::{DaysOfSegments, count_days};
pub use error::{ApplyError, OplogError};
pub use forecast::{Held, LogForecast};
pub use frame::{Frame, PAYLOAD_BYTES_MAX};
pub use log::Log;
pub use pack::{CountDays, Packing, pack};
pub use recovery::{
    Apply, LogSummary, ReadFrom, ReadsDays, TornTail, read_each, read_on, scan, scan_some,
};
pub use redact::{Redact, redact};
pub use second::{LogCopy, LogCopyAck, LogCopyStatus};
pub use segment::{SEGMENT_HEADER_BYTES, SegmentInfo};
pub use segments::Segments;
pub use spare::Spare;
pub use tail::Tail;
pub use topic::{Message, Owner, Topic, TopicError, TopicReader, TopicWriter};
pub use topic_log::{NotTaken, TopicLog};
pub use transfer::Transfer;
pub use writer::{DurableEnd, FileLog, LogOptions, SEGMENT_BYTES_DEFAULT, SEGMENT_BYTES_MAX};
