//! Walks the frames in the bytes of one segment, and tells a torn write from damage.

use super::frame::{
    self, FRAME_HEADER_BYTES, Frame, PAYLOAD_BYTES_MAX, decode_header, decode_payload, frame_bytes,
    starts_frame, trimmed_len,
};
use super::segment::{SEGMENT_HEADER_BYTES, SegmentHeader};

/// Bytes that a writer leaves without a sync, at most, before it appends one more frame.
pub(super) const UNSYNCED_BYTES_MAX: usize = PAYLOAD_BYTES_MAX;
/// Bytes that a crash can tear, at most. More than that is damage.
pub(super) const TORN_BYTES_MAX: usize = UNSYNCED_BYTES_MAX + frame_bytes(PAYLOAD_BYTES_MAX);

/// The position of the next frame, and the values that the frame must have.
#[derive(Debug, Clone, Copy)]
pub(super) struct Cursor {
    pub offset: usize,
    /// Bytes of the segment that its frames prove to be durable.
    pub durable: usize,
    pub sequence: u64,
    /// The last epoch that was read; it never falls.
    pub epoch: u32,
    /// CRC of the preceding header.
    pub crc: u32,
}

/// A point between two frames of a log. Every form and every copy of the log has the same points: they do not change
/// where payloads are replaced.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ChainPoint {
    /// Sequence number of the record behind the point.
    pub sequence: u64,
    /// The checksum that the next frame names as its predecessor's.
    pub crc: u32,
}

/// Result of a step of the cursor.
pub(super) enum Step<'a> {
    /// A frame (a seal if it has no records). The cursor is behind it now.
    Frame(Frame<'a>),
    /// Zeros for the length of a header, or the end of the file.
    End,
    /// An incomplete frame: the tail, if nothing durable follows.
    Broken(String),
    /// A whole header that does not belong here. No torn write looks like this.
    Misplaced(String),
}

/// Verdict on the bytes behind the last good frame.
pub(super) enum Tail {
    /// Zeros.
    Clean,
    /// A write of this many bytes that no sync covered.
    Torn(usize),
    /// The bytes had been durable; the text is the proof.
    Damaged(String),
}

impl Cursor {
    /// A cursor behind the header of a segment.
    pub(super) fn new(header: &SegmentHeader, crc: u32) -> Self {
        Self {
            offset: SEGMENT_HEADER_BYTES,
            durable: SEGMENT_HEADER_BYTES,
            sequence: header.first_sequence,
            epoch: header.epoch,
            crc,
        }
    }

    /// Reads the next frame, which `rest` begins with, and moves behind it. `seed` is the CRC of the segment header.
    pub(super) fn step<'a>(&mut self, rest: &'a [u8], seed: u32) -> Step<'a> {
        if trimmed_len(&rest[..rest.len().min(FRAME_HEADER_BYTES)]) == 0 {
            return Step::End;
        }
        let header = match decode_header(rest, seed) {
            Ok(header) => header,
            Err(problem) => return Step::Broken(problem),
        };
        let fields = header.fields;
        let end_sequence = match self.check_place(&header) {
            Ok(end_sequence) => end_sequence,
            Err(problem) => return Step::Misplaced(problem),
        };
        let payload = match decode_payload(rest, seed, &header) {
            Ok(payload) => payload,
            Err(problem) => return Step::Broken(problem),
        };
        self.offset += frame_bytes(payload.len());
        self.durable = self.durable.max(fields.synced_bytes as usize);
        self.sequence = end_sequence;
        self.epoch = fields.epoch;
        self.crc = header.crc;
        Step::Frame(Frame {
            epoch: fields.epoch,
            first_sequence: fields.first_sequence,
            count: fields.count,
            written_ms: fields.written_ms,
            is_plausible: fields.is_plausible,
            payload,
        })
    }

    /// The point at which the cursor stands.
    pub(super) fn point(&self) -> ChainPoint {
        ChainPoint {
            sequence: self.sequence,
            crc: self.crc,
        }
    }

    /// Checks that a frame with this header belongs here. Returns the sequence number after its last record.
    fn check_place(&self, header: &frame::CheckedHeader) -> Result<u64, String> {
        let fields = header.fields;
        if fields.first_sequence != self.sequence {
            return Err(format!(
                "a frame with record {}, expected record {}",
                fields.first_sequence, self.sequence
            ));
        }
        if fields.previous_crc != self.crc {
            return Err(format!(
                "a frame that follows checksum {:08x}, expected {:08x}",
                fields.previous_crc, self.crc
            ));
        }
        if fields.epoch < self.epoch {
            return Err(format!(
                "a frame of epoch {}, expected at least {}",
                fields.epoch, self.epoch
            ));
        }
        if header.payload_bytes > PAYLOAD_BYTES_MAX {
            return Err(format!(
                "a payload of {} bytes, expected at most {PAYLOAD_BYTES_MAX}",
                header.payload_bytes
            ));
        }
        let end = fields.first_sequence.checked_add(fields.count.into());
        end.ok_or_else(|| "record numbers above the range".to_owned())
    }
}

/// Judges the bytes of the newest segment from `offset` on, where no frame could be read: `tail`, without the zeros at
/// its end. They are damaged if any later frame says that they had been durable when it was written.
pub(super) fn judge_tail(tail: &[u8], seed: u32, offset: usize) -> Tail {
    let torn_bytes = tail.len();
    if torn_bytes == 0 {
        return Tail::Clean;
    }
    for at in frame::offsets_after(offset, offset + torn_bytes) {
        let bytes = &tail[at - offset..];
        if !starts_frame(bytes) {
            continue;
        }
        let Ok(header) = decode_header(bytes, seed) else {
            continue;
        };
        if header.fields.synced_bytes as usize > offset {
            return Tail::Damaged(format!(
                "the frame at byte {at}, record {}, was written after this part was durable",
                header.fields.first_sequence
            ));
        }
    }
    if torn_bytes > TORN_BYTES_MAX {
        return Tail::Damaged(format!(
            "more than {TORN_BYTES_MAX} unreadable bytes, which no torn write leaves"
        ));
    }
    Tail::Torn(torn_bytes)
}
