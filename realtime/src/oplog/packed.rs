//! The bytes of a segment, whatever the form of its file: plain as they were written, or packed.
//!
//! A packed segment stands for exactly the bytes of a segment that is written no more. It has the segment's name and
//! takes the place of the plain file in one step, so a log has each segment in one form. A build that does not know
//! packed segments refuses their format by the header, which every format begins with.
//!
//! ```text
//! packed   head, blocks, index, days, foot; integers are little-endian
//! head
//!   0 the segment's 64-byte header, with format = 2 and a header_crc of its own
//!  64 plain_bytes u64          72 crc u32, of bytes 64..72
//! block    a zstd frame that stands for the next 1 MiB of the segment, the last one for the rest
//! index    for each block
//!   0 bytes u32, of the block   8 first_sequence u64   20 epoch u32
//!   4 crc u32, of the block    16 offset u32           24 previous_crc u32
//! days     for each UTC day of which the segment has events, in order
//!   0 day u32, from 2000-01-01 on                       4 events u64
//! foot
//!   0 magic "TLRPACK1"   8 blocks u32   12 days u32     16 crc u32, of index, days and foot before it
//! ```
//!
//! The CRCs start from the `header_crc` of the plain segment. `offset` is where the first frame of the log that begins
//! in the block begins, in the plain segment; 0 where none does. A read can begin there: `first_sequence`, `epoch` and
//! `previous_crc` are what a reader knows that has read all frames before. The days say which segments a reader of
//! one day needs; they follow from the records.

use std::io;
use std::ops::Range;

use tallyring_archive::{Content, Disk};

use super::cursor::Cursor;
use super::error::{OplogError, Result};
use super::frame::{PAYLOAD_BYTES_MAX, crc, frame_bytes, get, put};
use super::segment::{Form, SEGMENT_HEADER_BYTES, SegmentHeader};
use super::writer::SEGMENT_BYTES_MAX;

/// Bytes of the segment for which one block stands.
pub(super) const BLOCK_BYTES: usize = 1 << 20;
pub(super) const HEAD_BYTES: usize = SEGMENT_HEADER_BYTES + 12;
const PLAIN_BYTES_OFFSET: usize = SEGMENT_HEADER_BYTES;
const HEAD_CRC_OFFSET: usize = PLAIN_BYTES_OFFSET + size_of::<u64>();
const ENTRY_BYTES: usize = 28;
const DAY_BYTES: usize = 12;
const FOOT_BYTES: usize = 20;
const FOOT_MAGIC: [u8; 8] = *b"TLRPACK1";
/// A segment may grow by one frame.
const PLAIN_BYTES_MAX: u64 = SEGMENT_BYTES_MAX + frame_bytes(PAYLOAD_BYTES_MAX) as u64;

/// The bytes of a segment. A packed one holds one decoded block.
pub(super) enum SegmentBytes {
    Plain { content: Content, file: String },
    Packed(Box<Packed>),
}

/// A packed segment whose index was read.
pub(super) struct Packed {
    content: Content,
    file: String,
    first_sequence: u64,
    seed: u32,
    plain_bytes: u64,
    /// CRC of the index, which holds those of all blocks.
    tail_crc: u32,
    blocks: Vec<Block>,
    days: Vec<(u32, u64)>,
    /// The block that was read last.
    held: Option<(usize, Vec<u8>)>,
}

/// The beginning of a packed segment.
pub(super) struct Head {
    pub header: SegmentHeader,
    /// CRC of the plain segment's header.
    pub seed: u32,
    pub plain_bytes: u64,
}

/// The place of one block.
#[derive(Debug, Clone, Copy)]
pub(super) struct Block {
    /// Position in the packed file, bytes.
    pub at: u64,
    pub bytes: u32,
    pub crc: u32,
    /// The first frame that begins in the block, if any does.
    pub start: Option<Cursor>,
}

impl SegmentBytes {
    /// Opens a segment. Fails when the disk does, and when a packed segment is damaged; damage to a plain one is found
    /// where it is read.
    pub(super) fn open(disk: &dyn Disk, file: &str) -> Result<Self> {
        let content = disk.content(file).map_err(OplogError::io(file, "read"))?;
        Self::of(content, file)
    }

    /// As [`Self::open`], of the content of a file, whose name is for errors.
    pub(super) fn of(content: Content, file: &str) -> Result<Self> {
        let file = file.to_owned();
        let head = part(&content, &file, 0, HEAD_BYTES.min(content.len() as usize))?;
        match SegmentHeader::decode(&head) {
            Ok((header, seed, form)) if form.is_packed() => {
                Packed::read(content, file, &head, (header, seed)).map(Self::Packed)
            }
            _ => Ok(Self::Plain { content, file }),
        }
    }

    /// Size of the plain segment, bytes.
    pub(super) fn len(&self) -> u64 {
        match self {
            Self::Plain { content, .. } => content.len(),
            Self::Packed(packed) => packed.plain_bytes,
        }
    }

    /// The `bytes` bytes of the plain segment from `offset` on. Fails when they are damaged or cannot be read, or the
    /// segment ends before.
    pub(super) fn part(&mut self, offset: u64, bytes: usize) -> Result<Vec<u8>> {
        match self {
            Self::Plain { content, file } => part(content, file, offset, bytes),
            Self::Packed(packed) => packed.part(offset, bytes),
        }
    }

    /// All bytes of the plain segment.
    pub(super) fn all(&mut self) -> Result<Vec<u8>> {
        self.part(0, usize::try_from(self.len()).unwrap_or(usize::MAX))
    }

    /// Where a read for the record `sequence` may begin instead of at the first frame; none where the form does not
    /// say it.
    pub(super) fn before(&self, sequence: u64) -> Option<Cursor> {
        let Self::Packed(packed) = self else {
            return None;
        };
        let starts = packed.blocks.iter().filter_map(|block| block.start);
        starts.take_while(|start| start.sequence <= sequence).last()
    }

    /// UTC days of which the segment has events, and how many of each; none where the form does not say it.
    pub(super) fn days(&self) -> Option<&[(u32, u64)]> {
        match self {
            Self::Plain { .. } => None,
            Self::Packed(packed) => Some(&packed.days),
        }
    }
}

impl Packed {
    fn read(
        content: Content,
        file: String,
        head: &[u8],
        (header, seed): (SegmentHeader, u32),
    ) -> Result<Box<Self>> {
        let first_sequence = header.first_sequence;
        let corrupt = |offset: u64, problem: String| OplogError::Corrupt {
            file: file.clone(),
            offset,
            sequence: first_sequence,
            problem,
        };
        let head = Head::decode(head, header, seed)
            .map_err(|problem| corrupt(PLAIN_BYTES_OFFSET as u64, problem))?;
        let blocks = head.plain_bytes.div_ceil(BLOCK_BYTES as u64) as usize;
        let at = |bytes: u64| {
            let start = content.len().checked_sub(bytes);
            let start = start.filter(|start| *start >= HEAD_BYTES as u64);
            start.ok_or_else(|| corrupt(content.len(), "the packed segment is cut off".to_owned()))
        };
        let foot_at = at(FOOT_BYTES as u64)?;
        let foot = part(&content, &file, foot_at, FOOT_BYTES)?;
        if !foot.starts_with(&FOOT_MAGIC) || u32::from_le_bytes(get(&foot, 8)) as usize != blocks {
            return Err(corrupt(
                foot_at,
                "no index of a packed segment ends here".to_owned(),
            ));
        }
        let days = u32::from_le_bytes(get(&foot, 12)) as usize;
        let index_bytes = blocks * ENTRY_BYTES;
        let tail_bytes =
            index_bytes as u64 + (days as u64) * (DAY_BYTES as u64) + FOOT_BYTES as u64;
        let tail_at = at(tail_bytes)?;
        let tail = part(&content, &file, tail_at, tail_bytes as usize)?;
        let tail_crc = u32::from_le_bytes(get(&foot, FOOT_BYTES - 4));
        if crc(seed, &tail[..tail.len() - 4]) != tail_crc {
            let problem = "the index of the packed segment has another checksum".to_owned();
            return Err(corrupt(tail_at, problem));
        }
        let (index, rest) = tail.split_at(index_bytes);
        let (blocks, end) = decode_index(index);
        if end != tail_at {
            return Err(corrupt(tail_at, format!("the blocks end at byte {end}")));
        }
        let days = rest[..days * DAY_BYTES].chunks_exact(DAY_BYTES);
        let days = days.map(|day| {
            let (day, events) = (get(day, 0), get(day, 4));
            (u32::from_le_bytes(day), u64::from_le_bytes(events))
        });
        Ok(Box::new(Self {
            first_sequence,
            seed,
            plain_bytes: head.plain_bytes,
            tail_crc,
            blocks,
            days: days.collect(),
            held: None,
            content,
            file,
        }))
    }

    /// Whether the other file has the same blocks of the same segment, by the checksum in its foot.
    pub(super) fn is_alike(&self, other: &Self) -> bool {
        let of = |one: &Self| (one.seed, one.plain_bytes, one.tail_crc);
        of(self) == of(other)
    }

    fn part(&mut self, offset: u64, bytes: usize) -> Result<Vec<u8>> {
        let end = offset.checked_add(bytes as u64);
        let Some(end) = end.filter(|end| *end <= self.plain_bytes) else {
            let ended = io::Error::from(io::ErrorKind::UnexpectedEof);
            return Err(OplogError::io(&self.file, "read")(ended));
        };
        let mut out = Vec::with_capacity(bytes);
        let mut at = offset;
        while at < end {
            let index = (at / BLOCK_BYTES as u64) as usize;
            let begins = self.span(index).start;
            let block = self.block(index)?;
            let until = block.len().min((end - begins) as usize);
            out.extend_from_slice(&block[(at - begins) as usize..until]);
            at = begins + until as u64;
        }
        Ok(out)
    }

    /// The bytes of the plain segment for which a block stands.
    fn span(&self, index: usize) -> Range<u64> {
        let start = index as u64 * BLOCK_BYTES as u64;
        start..self.plain_bytes.min(start + BLOCK_BYTES as u64)
    }

    fn block(&mut self, index: usize) -> Result<&[u8]> {
        if self.held.as_ref().is_none_or(|(held, _)| *held != index) {
            self.held = Some((index, self.decode(index)?));
        }
        Ok(self.held.as_ref().map_or(&[], |(_, block)| block))
    }

    fn decode(&self, index: usize) -> Result<Vec<u8>> {
        let block = self.blocks[index];
        let span = self.span(index);
        let wanted = (span.end - span.start) as usize;
        let packed = part(&self.content, &self.file, block.at, block.bytes as usize)?;
        let computed = crc(self.seed, &packed);
        let problem = match computed == block.crc {
            false => format!("block checksum {computed:08x}, expected {:08x}", block.crc),
            true => match zstd::bulk::decompress(&packed, wanted) {
                Ok(plain) if plain.len() == wanted => return Ok(plain),
                Ok(plain) => format!("a block of {} bytes, expected {wanted}", plain.len()),
                Err(error) => format!("a block that cannot be decoded: {error}"),
            },
        };
        // Records that begin in an earlier block may reach into this one.
        let mut starts = self.blocks[..index].iter().filter_map(|block| block.start);
        Err(OplogError::Corrupt {
            file: self.file.clone(),
            offset: block.at,
            sequence: starts
                .next_back()
                .map_or(self.first_sequence, |start| start.sequence),
            problem,
        })
    }
}

impl Head {
    /// Decodes the head of a packed segment, whose header was decoded already.
    pub(super) fn decode(bytes: &[u8], header: SegmentHeader, seed: u32) -> Result<Self, String> {
        let Some(bytes) = bytes.get(..HEAD_BYTES) else {
            return Err(format!("the file ends {} bytes into the head", bytes.len()));
        };
        let stored = u32::from_le_bytes(get(bytes, HEAD_CRC_OFFSET));
        let computed = crc(seed, &bytes[PLAIN_BYTES_OFFSET..HEAD_CRC_OFFSET]);
        if computed != stored {
            return Err(format!(
                "head checksum {computed:08x}, expected {stored:08x}"
            ));
        }
        let plain_bytes = u64::from_le_bytes(get(bytes, PLAIN_BYTES_OFFSET));
        if !(SEGMENT_HEADER_BYTES as u64..=PLAIN_BYTES_MAX).contains(&plain_bytes) {
            return Err(format!("{plain_bytes} bytes of a segment, which none has"));
        }
        Ok(Self {
            header,
            seed,
            plain_bytes,
        })
    }

    /// Encodes the head of a segment of this form, which is a packed one.
    pub(super) fn encode(&self, form: Form) -> Vec<u8> {
        let mut out = self.header.encode(form).to_vec();
        out.resize(HEAD_BYTES, 0);
        put(&mut out, PLAIN_BYTES_OFFSET, self.plain_bytes.to_le_bytes());
        let head_crc = crc(self.seed, &out[PLAIN_BYTES_OFFSET..HEAD_CRC_OFFSET]);
        put(&mut out, HEAD_CRC_OFFSET, head_crc.to_le_bytes());
        out
    }
}

/// Index, days and foot.
pub(super) fn encode_tail(seed: u32, blocks: &[Block], days: &[(u32, u64)]) -> Vec<u8> {
    let mut out = Vec::new();
    for block in blocks {
        let start = block.start;
        out.extend(block.bytes.to_le_bytes());
        out.extend(block.crc.to_le_bytes());
        out.extend(start.map_or(0, |start| start.sequence).to_le_bytes());
        out.extend(start.map_or(0, |start| start.offset as u32).to_le_bytes());
        out.extend(start.map_or(0, |start| start.epoch).to_le_bytes());
        out.extend(start.map_or(0, |start| start.crc).to_le_bytes());
    }
    for (day, events) in days {
        out.extend(day.to_le_bytes());
        out.extend(events.to_le_bytes());
    }
    out.extend(FOOT_MAGIC);
    out.extend((blocks.len() as u32).to_le_bytes());
    out.extend((days.len() as u32).to_le_bytes());
    let tail_crc = crc(seed, &out);
    out.extend(tail_crc.to_le_bytes());
    out
}

/// The blocks of an index, and the position behind the last one.
fn decode_index(index: &[u8]) -> (Vec<Block>, u64) {
    let mut at = HEAD_BYTES as u64;
    let blocks = index.chunks_exact(ENTRY_BYTES).map(|entry| {
        let number = |offset: usize| u32::from_le_bytes(get(entry, offset));
        let (bytes, offset) = (number(0), number(16) as usize);
        let start = (offset > 0).then(|| Cursor {
            offset,
            durable: offset,
            sequence: u64::from_le_bytes(get(entry, 8)),
            epoch: number(20),
            crc: number(24),
        });
        let block = Block {
            at,
            bytes,
            crc: number(4),
            start,
        };
        at += u64::from(bytes);
        block
    });
    let blocks = blocks.collect();
    (blocks, at)
}

fn part(content: &Content, file: &str, offset: u64, bytes: usize) -> Result<Vec<u8>> {
    content
        .part(offset, bytes)
        .map_err(OplogError::io(file, "read"))
}
