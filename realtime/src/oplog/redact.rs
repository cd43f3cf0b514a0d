//! Writes a packed segment again, with other payloads in some of its frames: a user was erased whom they named, or they
//! are so old that they name users by pseudonyms.
//!
//! Everything else of the frames stays, so records keep their numbers and times, and the chain of checksums goes on
//! ([`super::frame`] has the mark of a replaced payload). The new file is written as a packed one is: under a temporary
//! name, synced and read back, and only then does it take the place of the other ([`super::Segments::put_packed`]).

use std::collections::BTreeMap;
use std::io::{self, ErrorKind};

use tallyring_archive::{Disk, names};
use zstd::bulk::Compressor;

use super::cursor::{Cursor, Step};
use super::entries::{Entry, ended};
use super::error::{ApplyError, OplogError, Result};
use super::frame::{self, Frame, FrameHeader, crc, decode_header, frame_bytes};
use super::pack::{LEVEL, Out, Packing, create, failed};
use super::packed::{BLOCK_BYTES, Block, Head, SegmentBytes, encode_tail};
use super::recovery::{check_end, corrupt};
use super::segment::{Form, SEGMENT_HEADER_BYTES};
use super::window::{Source, Window};

/// The payload that replaces that of a frame of records; none where it stays. It has as many records.
pub type Redact<'a> = &'a mut dyn FnMut(Frame<'_>) -> Result<Option<Vec<u8>>, ApplyError>;

/// Writes the segment that begins with this record, which is packed, again. Returns none where no payload is replaced,
/// unless the file is to be noted as `pseudonymous`. A failure of `redact` ends the work. Takes memory for a few
/// blocks. Changes no segment. Fails when the segment is damaged, missing or not packed, and when the disk fails or is
/// full.
pub fn redact(
    disk: &dyn Disk,
    first_sequence: u64,
    pseudonymous: bool,
    redact: Redact<'_>,
) -> Result<Option<Packing>> {
    let (entry, next) = ended(disk, first_sequence)?;
    let days = SegmentBytes::open(disk, &entry.file)?
        .days()
        .map(<[_]>::to_vec);
    let days = days.ok_or_else(|| {
        let problem = "the segment is not packed, and only packed ones are written again";
        corrupt(&entry, &entry.start(), problem.to_owned())
    })?;
    // Asked before the segment is read, so that a full disk costs nothing.
    if disk.free_bytes().map_err(failed())? < entry.bytes {
        return Err(failed()(ErrorKind::StorageFull.into()));
    }
    let form = match pseudonymous {
        true => Form::Pseudonymous,
        false => Form::Redacted,
    };
    let mut plain_bytes = SEGMENT_HEADER_BYTES as u64;
    let mut is_other = pseudonymous && entry.form != form;
    each_frame(disk, &entry, &next, &mut |_, frame, _| {
        let replaced = replaced(&entry, frame, redact)?;
        let payload_bytes = replaced.as_ref().map_or(frame.payload.len(), Vec::len);
        plain_bytes += frame_bytes(payload_bytes) as u64;
        is_other |= replaced.is_some();
        Ok(())
    })?;
    if !is_other {
        return Ok(None);
    }
    let tail = (form, plain_bytes, days.as_slice());
    let redacted = Redacted::write(disk, (&entry, &next), tail, redact)
        .and_then(|written| check(disk, &entry, &next, &written).map(|()| written));
    if redacted.is_err() {
        // The next start removes it otherwise.
        disk.remove(names::PACKING).ok();
    }
    Ok(Some(Packing {
        first_sequence,
        bytes: redacted?.bytes,
        plain_bytes,
        is_pseudonymous: pseudonymous,
    }))
}

/// The file that was written.
struct Redacted {
    bytes: u64,
    crc: u32,
}

impl Redacted {
    fn write(
        disk: &dyn Disk,
        (entry, next): (&Entry, &Entry),
        (form, plain_bytes, days): (Form, u64, &[(u32, u64)]),
        redact: Redact<'_>,
    ) -> Result<Self> {
        let head = Head {
            header: entry.header,
            seed: entry.crc,
            plain_bytes,
        };
        let mut blocks = Blocks {
            out: Out {
                file: create(disk)?,
                bytes: 0,
                crc: 0,
            },
            zstd: Compressor::new(LEVEL).map_err(failed())?,
            seed: entry.crc,
            plain: entry.header.encode(Form::Plain).to_vec(),
            plain_bytes: 0,
            starts: BTreeMap::new(),
            blocks: Vec::new(),
        };
        blocks.out.put(&head.encode(form))?;
        let mut other = Vec::new();
        each_frame(disk, entry, next, &mut |before, frame, bytes| {
            blocks.note_start(before);
            match replaced(entry, frame, redact)? {
                None => blocks.plain.extend_from_slice(bytes),
                Some(payload) => {
                    let header = decode_header(bytes, entry.crc);
                    let header = header.map_err(|problem| corrupt(entry, before, problem))?;
                    let header = FrameHeader {
                        replaced: Some(header.crc),
                        ..header.fields
                    };
                    frame::encode(&mut other, entry.crc, &header, &payload);
                    blocks.plain.extend_from_slice(&other);
                }
            }
            blocks.write_full()
        })?;
        blocks.finish(days)
    }
}

/// Packed blocks being written.
struct Blocks {
    out: Out,
    zstd: Compressor<'static>,
    seed: u32,
    /// Plain bytes that are in no block yet.
    plain: Vec<u8>,
    /// Plain bytes of the blocks.
    plain_bytes: usize,
    /// The first frame that begins in each block.
    starts: BTreeMap<usize, Cursor>,
    blocks: Vec<Block>,
}

impl Blocks {
    /// Notes that a frame begins here, where this cursor is before it in the other file.
    fn note_start(&mut self, cursor: &Cursor) {
        let offset = self.plain_bytes + self.plain.len();
        let start = Cursor { offset, ..*cursor };
        self.starts.entry(offset / BLOCK_BYTES).or_insert(start);
    }

    fn write_full(&mut self) -> Result<()> {
        while self.plain.len() >= BLOCK_BYTES {
            self.write_block(BLOCK_BYTES)?;
        }
        Ok(())
    }

    fn write_block(&mut self, bytes: usize) -> Result<()> {
        let block = self.zstd.compress(&self.plain[..bytes]).map_err(failed())?;
        self.plain.drain(..bytes);
        self.plain_bytes += bytes;
        self.blocks.push(Block {
            at: self.out.bytes,
            bytes: block.len() as u32,
            crc: crc(self.seed, &block),
            start: self.starts.get(&self.blocks.len()).copied(),
        });
        self.out.put(&block)
    }

    fn finish(mut self, days: &[(u32, u64)]) -> Result<Redacted> {
        if !self.plain.is_empty() {
            self.write_block(self.plain.len())?;
        }
        self.out.put(&encode_tail(self.seed, &self.blocks, days))?;
        self.out.file.sync().map_err(failed())?;
        Ok(Redacted {
            bytes: self.out.bytes,
            crc: self.out.crc,
        })
    }
}

/// Checks that the disk has what was written, and that its frames can be read as those of the segment.
fn check(disk: &dyn Disk, entry: &Entry, next: &Entry, written: &Redacted) -> Result<()> {
    let mut found = 0;
    disk.read_from_disk(names::PACKING, &mut |part| found = crc(found, part))
        .map_err(failed())?;
    if found != written.crc {
        let other = io::Error::other("it was read back with other bytes");
        return Err(failed()(other));
    }
    let bytes = SegmentBytes::open(disk, names::PACKING)?;
    each_frame_of(bytes, entry, next, &mut |_, _, _| Ok(()))
}

/// The payload that replaces that of a frame.
fn replaced(entry: &Entry, frame: Frame<'_>, redact: Redact<'_>) -> Result<Option<Vec<u8>>> {
    if frame.count == 0 {
        return Ok(None);
    }
    redact(frame).map_err(|source| OplogError::Apply {
        file: entry.file.clone(),
        offset: 0,
        sequence: frame.first_sequence,
        source,
    })
}

/// Visits a frame with its bytes, and the cursor before it.
type Visit<'a> = &'a mut dyn FnMut(&Cursor, Frame<'_>, &[u8]) -> Result<()>;

/// Visits every frame of a segment, and checks that the next segment follows.
fn each_frame(disk: &dyn Disk, entry: &Entry, next: &Entry, visit: Visit<'_>) -> Result<()> {
    each_frame_of(SegmentBytes::open(disk, &entry.file)?, entry, next, visit)
}

fn each_frame_of(bytes: SegmentBytes, entry: &Entry, next: &Entry, visit: Visit<'_>) -> Result<()> {
    let mut window = Window::new(Source::File(bytes));
    let mut cursor = entry.start();
    let problem = loop {
        let before = cursor;
        let rest = window.frame(before.offset, entry.crc)?;
        match cursor.step(rest, entry.crc) {
            Step::Frame(frame) => {
                visit(&before, frame, &rest[..cursor.offset - before.offset])?;
            }
            Step::End => break None,
            Step::Broken(problem) => break Some(problem),
            Step::Misplaced(problem) => return Err(corrupt(entry, &before, problem)),
        }
    };
    check_end(&mut window, entry, &cursor, problem, next)
}
