//! The header of a segment file. The module documentation of the oplog describes the layout.

use tallyring_archive::names;

use super::frame::{get, put};

const MAGIC: [u8; 8] = *b"TLRLOG01";
/// The highest format that this build reads.
pub(super) const FORMAT_MAX: u16 = Form::Pseudonymous as u16;

const FORMAT_OFFSET: usize = MAGIC.len();
const FLAGS_OFFSET: usize = FORMAT_OFFSET + size_of::<u16>();
const EPOCH_OFFSET: usize = FLAGS_OFFSET + size_of::<u16>();
const FIRST_SEQUENCE_OFFSET: usize = EPOCH_OFFSET + size_of::<u32>();
const PREVIOUS_FIRST_OFFSET: usize = FIRST_SEQUENCE_OFFSET + size_of::<u64>();
const CREATED_MS_OFFSET: usize = PREVIOUS_FIRST_OFFSET + size_of::<u64>();
const STORE_ID_OFFSET: usize = CREATED_MS_OFFSET + size_of::<i64>();
const PREVIOUS_CRC_OFFSET: usize = STORE_ID_OFFSET + size_of::<[u8; 16]>();
const HEADER_CRC_OFFSET: usize = PREVIOUS_CRC_OFFSET + size_of::<u32>();
/// Size of a segment header, bytes.
pub const SEGMENT_HEADER_BYTES: usize = HEADER_CRC_OFFSET + size_of::<u32>();

const _: () = assert!(SEGMENT_HEADER_BYTES == 64);

/// A segment of the log, for retention and for listing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SegmentInfo {
    /// Name in the data directory.
    pub file: String,
    /// Sequence number of the first record.
    pub first_sequence: u64,
    /// Sequence number after the last record.
    pub end_sequence: u64,
    /// Time at which the segment was begun, Unix milliseconds.
    pub created_ms: i64,
    /// Latest possible time of the last frame, Unix milliseconds: the time at which the next segment was begun, or for
    /// the newest segment the time of its last frame.
    pub written_until_ms: i64,
    /// Size of the file, bytes.
    pub bytes: u64,
    /// Size of the segment in its plain form, bytes.
    pub plain_bytes: u64,
    /// Whether the file is packed.
    pub is_packed: bool,
    /// Whether the records name users by pseudonyms.
    pub is_pseudonymous: bool,
}

impl SegmentInfo {
    /// Describes a segment without frames, whose file has so many bytes.
    pub(super) fn begun(header: &SegmentHeader, bytes: u64) -> Self {
        Self {
            file: names::segment(header.first_sequence),
            first_sequence: header.first_sequence,
            end_sequence: header.first_sequence,
            created_ms: header.created_ms,
            written_until_ms: header.created_ms,
            bytes,
            plain_bytes: bytes,
            is_packed: false,
            is_pseudonymous: false,
        }
    }
}

/// The form of a segment's file, by its number as a format.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u16)]
pub(super) enum Form {
    /// Frames as they were written.
    Plain = 1,
    /// Compressed, once nothing is written any more.
    Packed = 2,
    /// Compressed again, after payloads were replaced: a build that does not know replaced payloads must not take them
    /// for damage.
    Redacted = 3,
    /// As [`Self::Redacted`], and the records name users by pseudonyms, in place of what they told of persons.
    Pseudonymous = 4,
}

impl Form {
    pub(super) fn is_packed(self) -> bool {
        self != Self::Plain
    }
}

/// The fields of a segment's header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct SegmentHeader {
    pub epoch: u32,
    pub first_sequence: u64,
    /// `first_sequence` of the preceding segment; the segment's own number when there is none.
    pub previous_first: u64,
    pub created_ms: i64,
    pub store_id: [u8; 16],
    pub previous_crc: u32,
}

/// Why a header cannot be used.
pub(super) enum HeaderFault {
    Version(u16),
    Damaged(String),
}

impl SegmentHeader {
    pub(super) fn encode(&self, form: Form) -> [u8; SEGMENT_HEADER_BYTES] {
        let mut out = [0; SEGMENT_HEADER_BYTES];
        put(&mut out, 0, MAGIC);
        put(&mut out, FORMAT_OFFSET, (form as u16).to_le_bytes());
        put(&mut out, EPOCH_OFFSET, self.epoch.to_le_bytes());
        put(
            &mut out,
            FIRST_SEQUENCE_OFFSET,
            self.first_sequence.to_le_bytes(),
        );
        put(
            &mut out,
            PREVIOUS_FIRST_OFFSET,
            self.previous_first.to_le_bytes(),
        );
        put(&mut out, CREATED_MS_OFFSET, self.created_ms.to_le_bytes());
        put(&mut out, STORE_ID_OFFSET, self.store_id);
        put(
            &mut out,
            PREVIOUS_CRC_OFFSET,
            self.previous_crc.to_le_bytes(),
        );
        let crc = crc32fast::hash(&out[..HEADER_CRC_OFFSET]);
        put(&mut out, HEADER_CRC_OFFSET, crc.to_le_bytes());
        out
    }

    /// Decodes a header, and returns it with its CRC in the plain form. The checksum is checked before the format, so
    /// that a flipped bit in the format reads as damage: every later format keeps these 64 bytes and their checksum.
    pub(super) fn decode(bytes: &[u8]) -> Result<(Self, u32, Form), HeaderFault> {
        let damaged = |problem: String| Err(HeaderFault::Damaged(problem));
        let Some(bytes) = bytes.get(..SEGMENT_HEADER_BYTES) else {
            return damaged(format!(
                "the file ends {} bytes into the header",
                bytes.len()
            ));
        };
        if !starts_segment(bytes) {
            return damaged("this is not an oplog segment".to_owned());
        }
        let stored = header_crc(bytes);
        let computed = crc32fast::hash(&bytes[..HEADER_CRC_OFFSET]);
        if stored != computed {
            return damaged(format!(
                "header checksum {computed:08x}, expected {stored:08x}"
            ));
        }
        let form = match u16::from_le_bytes(get(bytes, FORMAT_OFFSET)) {
            1 => Form::Plain,
            2 => Form::Packed,
            3 => Form::Redacted,
            4 => Form::Pseudonymous,
            other => return Err(HeaderFault::Version(other)),
        };
        let flags = u16::from_le_bytes(get(bytes, FLAGS_OFFSET));
        if flags != 0 {
            return damaged(format!("header flags {flags:#06x}, expected none"));
        }
        let header = Self {
            epoch: u32::from_le_bytes(get(bytes, EPOCH_OFFSET)),
            first_sequence: u64::from_le_bytes(get(bytes, FIRST_SEQUENCE_OFFSET)),
            previous_first: u64::from_le_bytes(get(bytes, PREVIOUS_FIRST_OFFSET)),
            created_ms: i64::from_le_bytes(get(bytes, CREATED_MS_OFFSET)),
            store_id: get(bytes, STORE_ID_OFFSET),
            previous_crc: u32::from_le_bytes(get(bytes, PREVIOUS_CRC_OFFSET)),
        };
        Ok((header, header_crc(&header.encode(Form::Plain)), form))
    }
}

/// Whether these bytes are to be the header of a segment.
pub(super) fn starts_segment(bytes: &[u8]) -> bool {
    bytes.starts_with(&MAGIC)
}

/// The CRC of an encoded header, from which all CRCs in the segment start.
pub(super) fn header_crc(header: &[u8]) -> u32 {
    u32::from_le_bytes(get(header, HEADER_CRC_OFFSET))
}
