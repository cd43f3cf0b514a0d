//! Packs segments that are written no more, one at a time and beside the writer; [`super::packed`] has the format.
//!
//! A segment is packed only while all its frames can be read and the next segment follows them. The packed file is
//! written under a temporary name, synced, read back from the disk and compared byte for byte, and only then does it
//! take the place of the plain one ([`super::Segments::put_packed`]). A crash before leaves a temporary file, which
//! the next start removes.

use std::collections::BTreeMap;
use std::io::{self, ErrorKind};

use tallyring_archive::{Disk, DiskFile, names};
use zstd::bulk::Compressor;

use super::cursor::{Cursor, Step};
use super::entries::{Entry, ended};
use super::error::{ApplyError, OplogError, Result};
use super::frame::{Frame, crc, is_replaced};
use super::packed::{BLOCK_BYTES, Block, Head, SegmentBytes, encode_tail};
use super::recovery::{check_end, corrupt};
use super::segment::Form;
use super::window::{Source, Window};

/// Level of zstd. It makes made-up events with four entities, a UUID, a user and two breakdowns 5.0 times smaller, in
/// 7.6 ms of a processor for a MiB; level 3 makes them 4.7 times smaller in 2.7 ms, level 9 5.05 times in 12.5 ms.
pub(super) const LEVEL: i32 = 6;

/// Adds the events of a frame to those of their UTC days, whose numbers begin at 2000-01-01.
pub type CountDays<'a> =
    &'a mut dyn FnMut(Frame<'_>, &mut BTreeMap<u32, u64>) -> Result<(), ApplyError>;

/// A packed segment that has no name yet.
#[derive(Debug)]
pub struct Packing {
    /// Sequence number of the segment's first record.
    pub(super) first_sequence: u64,
    /// Size of the packed file, bytes.
    pub(super) bytes: u64,
    /// Size of the plain form, bytes.
    pub(super) plain_bytes: u64,
    /// Whether the records name users by pseudonyms.
    pub(super) is_pseudonymous: bool,
}

/// Packs the segment that begins with this record, which is not the newest. `days` sees all frames of records, and its
/// failure ends the work. Takes memory for a few blocks. Changes no segment. Fails when the segment is damaged or
/// missing, and when the disk fails or is full.
pub fn pack(disk: &dyn Disk, first_sequence: u64, days: CountDays<'_>) -> Result<Packing> {
    let packed = write_and_check(disk, first_sequence, days);
    if packed.is_err() {
        // The next start removes it otherwise.
        disk.remove(names::PACKING).ok();
    }
    packed
}

fn write_and_check(disk: &dyn Disk, first_sequence: u64, days: CountDays<'_>) -> Result<Packing> {
    let (entry, next) = ended(disk, first_sequence)?;
    let (starts, days, form) = walk(disk, &entry, &next, days)?;
    let mut plain = SegmentBytes::open(disk, &entry.file)?;
    // Otherwise the packed file would take space that other writers need for a moment.
    if disk.free_bytes().map_err(failed())? < plain.len() {
        return Err(failed()(ErrorKind::StorageFull.into()));
    }
    let (bytes, file_crc) = write(disk, (&entry, form), &mut plain, &starts, &days)?;
    check(disk, &mut plain, file_crc)?;
    Ok(Packing {
        first_sequence,
        bytes,
        plain_bytes: plain.len(),
        is_pseudonymous: false,
    })
}

/// Checks all frames. Returns the first that begins in each block, the events by day, and the form: a mirror has plain
/// segments with payloads that were replaced before the log came to its topic.
#[expect(clippy::type_complexity, reason = "each is used once")]
fn walk(
    disk: &dyn Disk,
    entry: &Entry,
    next: &Entry,
    count: CountDays<'_>,
) -> Result<(BTreeMap<usize, Cursor>, Vec<(u32, u64)>, Form)> {
    let bytes = SegmentBytes::open(disk, &entry.file)?;
    let mut window = Window::new(Source::File(bytes));
    let mut cursor = entry.start();
    let (mut starts, mut days) = (BTreeMap::new(), BTreeMap::new());
    let mut form = Form::Packed;
    let problem = loop {
        let before = cursor;
        let rest = window.frame(before.offset, entry.crc)?;
        match cursor.step(rest, entry.crc) {
            Step::Frame(frame) => {
                if is_replaced(rest) {
                    form = Form::Redacted;
                }
                starts.entry(before.offset / BLOCK_BYTES).or_insert(before);
                if frame.count == 0 {
                    continue;
                }
                count(frame, &mut days).map_err(|source| OplogError::Apply {
                    file: entry.file.clone(),
                    offset: before.offset as u64,
                    sequence: before.sequence,
                    source,
                })?;
            }
            Step::End => break None,
            Step::Broken(problem) => break Some(problem),
            Step::Misplaced(problem) => return Err(corrupt(entry, &before, problem)),
        }
    };
    check_end(&mut window, entry, &cursor, problem, next)?;
    Ok((starts, days.into_iter().collect(), form))
}

/// Writes and syncs the packed form. Returns its size and the CRC of all its bytes.
fn write(
    disk: &dyn Disk,
    (entry, form): (&Entry, Form),
    plain: &mut SegmentBytes,
    starts: &BTreeMap<usize, Cursor>,
    days: &[(u32, u64)],
) -> Result<(u64, u32)> {
    let mut out = Out {
        file: create(disk)?,
        bytes: 0,
        crc: 0,
    };
    let head = Head {
        header: entry.header,
        seed: entry.crc,
        plain_bytes: plain.len(),
    };
    out.put(&head.encode(form))?;
    let mut zstd = Compressor::new(LEVEL).map_err(failed())?;
    let mut blocks = Vec::new();
    for_each_block(plain.len(), &mut |at, length| {
        let block = zstd.compress(&plain.part(at, length)?).map_err(failed())?;
        blocks.push(Block {
            at: out.bytes,
            bytes: block.len() as u32,
            crc: crc(entry.crc, &block),
            start: starts.get(&blocks.len()).copied(),
        });
        out.put(&block)
    })?;
    out.put(&encode_tail(entry.crc, &blocks, days))?;
    out.file.sync().map_err(failed())?;
    Ok((out.bytes, out.crc))
}

/// Checks that the disk has what was written, and that it stands for the bytes of the plain segment.
fn check(disk: &dyn Disk, plain: &mut SegmentBytes, file_crc: u32) -> Result<()> {
    let mut found = 0;
    disk.read_from_disk(names::PACKING, &mut |part| found = crc(found, part))
        .map_err(failed())?;
    let mut packed = SegmentBytes::open(disk, names::PACKING)?;
    let mut is_equal = found == file_crc && packed.len() == plain.len();
    if is_equal {
        for_each_block(plain.len(), &mut |at, length| {
            is_equal = is_equal && packed.part(at, length)? == plain.part(at, length)?;
            Ok(())
        })?;
    }
    match is_equal {
        true => Ok(()),
        false => {
            let other = io::Error::other("it was read back with other bytes");
            Err(failed()(other))
        }
    }
}

pub(super) struct Out {
    pub file: Box<dyn DiskFile>,
    pub bytes: u64,
    pub crc: u32,
}

impl Out {
    pub(super) fn put(&mut self, bytes: &[u8]) -> Result<()> {
        self.file.write_at(self.bytes, bytes).map_err(failed())?;
        self.bytes += bytes.len() as u64;
        self.crc = crc(self.crc, bytes);
        Ok(())
    }
}

pub(super) fn create(disk: &dyn Disk) -> Result<Box<dyn DiskFile>> {
    // A failed attempt may have left it.
    disk.remove(names::PACKING).ok();
    disk.create(names::PACKING).map_err(failed())
}

/// Calls `each` with position and length of every block of so many bytes.
fn for_each_block(bytes: u64, each: &mut dyn FnMut(u64, usize) -> Result<()>) -> Result<()> {
    (0..bytes).step_by(BLOCK_BYTES).try_for_each(|at| {
        let length = (bytes - at).min(BLOCK_BYTES as u64);
        each(at, length as usize)
    })
}

pub(super) fn failed() -> impl FnOnce(io::Error) -> OplogError {
    OplogError::full_or_io(names::PACKING, "a packed segment")
}
