//! The segments of a log as a list, oldest first; the last one is written.

use std::sync::Arc;

use tallyring_archive::{Disk, names};

use super::error::{OplogError, Result};
use super::pack::Packing;
use super::segment::{SEGMENT_HEADER_BYTES, SegmentHeader, SegmentInfo};
use super::writer::LogOptions;

/// The segments of one log. The list is never empty once the log has begun.
pub struct Segments {
    pub(super) disk: Arc<dyn Disk>,
    pub(super) options: LogOptions,
    list: Vec<SegmentInfo>,
    /// Bytes of the newest segment that are written.
    end: u64,
}

impl Segments {
    /// The segments that were read, of whose newest so many bytes are written.
    pub(super) fn new(
        disk: Arc<dyn Disk>,
        options: LogOptions,
        list: Vec<SegmentInfo>,
        end: u64,
    ) -> Self {
        Self {
            disk,
            options,
            list,
            end,
        }
    }

    /// The segments, oldest first; never empty.
    pub fn list(&self) -> &[SegmentInfo] {
        &self.list
    }

    /// The packed segments, oldest first.
    pub fn packed(&self) -> impl Iterator<Item = &SegmentInfo> {
        self.list.iter().filter(|one| one.is_packed)
    }

    pub(super) fn newest(&self) -> &SegmentInfo {
        self.list.last().expect("BUG: a log has a segment")
    }

    /// Bytes of the newest segment that are written.
    pub(super) fn end(&self) -> u64 {
        self.end
    }

    /// Size of the whole log, bytes.
    pub fn bytes(&self) -> u64 {
        self.list.iter().map(|segment| segment.bytes).sum()
    }

    /// Bytes that were written (in the plain form) behind byte `bytes` of the segment that begins with record `first`.
    pub fn bytes_behind(&self, first: u64, bytes: u64) -> u64 {
        let newest = self.newest().first_sequence;
        let behind = self.list.iter().filter(|one| one.first_sequence >= first);
        behind
            .map(|one| {
                let end = match one.first_sequence == newest {
                    true => self.end,
                    false => one.plain_bytes,
                };
                let from = if one.first_sequence == first {
                    bytes
                } else {
                    0
                };
                end.saturating_sub(from)
            })
            .sum()
    }

    /// Notes that a segment was begun, which ended the one before.
    pub(super) fn begun(&mut self, header: &SegmentHeader) {
        if let Some(ended) = self.list.last_mut() {
            ended.written_until_ms = ended.written_until_ms.max(header.created_ms);
        }
        let bytes = self.options.segment_bytes;
        self.list.push(SegmentInfo::begun(header, bytes));
        self.end = SEGMENT_HEADER_BYTES as u64;
    }

    /// Notes that the file of the newest segment ends behind its last frame, where no zeros follow.
    pub(super) fn cut_newest(&mut self) {
        let newest = self.list.last_mut().expect("BUG: a log has a segment");
        (newest.bytes, newest.plain_bytes) = (self.end, self.end);
    }

    /// Notes a frame of `count` records, with which the newest segment has `end` bytes.
    pub(super) fn grown(&mut self, count: u32, end: u64, written_ms: i64) {
        let newest = self.list.last_mut().expect("BUG: a log has a segment");
        newest.end_sequence += u64::from(count);
        newest.written_until_ms = newest.written_until_ms.max(written_ms);
        newest.bytes = newest.bytes.max(end);
        newest.plain_bytes = newest.bytes;
        self.end = end;
    }

    /// Whether the records of the oldest segment are all below `sequence` and were written before `older_than_ms` (Unix
    /// milliseconds). The newest one never goes.
    pub(super) fn may_remove_oldest(&self, sequence: u64, older_than_ms: i64) -> bool {
        let [oldest, _, ..] = self.list.as_slice() else {
            return false;
        };
        let times = || self.list.iter().map(|one| one.written_until_ms);
        // A segment is newer than the last one only because a clock was ahead: it is no younger than those that follow
        // it.
        let is_ahead = Some(oldest.written_until_ms) > times().next_back();
        let written_until_ms = match is_ahead {
            true => times().min().unwrap_or(oldest.written_until_ms),
            false => oldest.written_until_ms,
        };
        oldest.end_sequence <= sequence && written_until_ms < older_than_ms
    }

    /// First record of the oldest segment, and the earliest time at which a later one was begun (Unix milliseconds),
    /// where a trim would remove the former.
    pub(crate) fn next_to_trim(&self, sequence: u64, older_than_ms: i64) -> Option<(u64, i64)> {
        let (oldest, later) = self.list.split_first()?;
        let begun_ms = later.iter().map(|one| one.created_ms).min()?;
        let goes = self.may_remove_oldest(sequence, older_than_ms);
        goes.then_some((oldest.first_sequence, begun_ms))
    }

    /// Removes the oldest segment. The caller syncs the directory before it removes another: of several unsynced
    /// removals, a crash may undo any, which leaves a gap.
    pub(super) fn remove_oldest(&mut self) -> Result<()> {
        let oldest = self.list.first().expect("BUG: a log has a segment");
        self.disk
            .remove(&oldest.file)
            .map_err(OplogError::io(&oldest.file, "remove"))?;
        self.list.remove(0);
        Ok(())
    }

    pub(super) fn sync_directory(&self) -> Result<()> {
        self.disk
            .sync_directory(names::OPLOG)
            .map_err(OplogError::io(names::OPLOG, "sync directory"))
    }

    /// First record of the oldest segment that can be packed: written no more, with all records at or above `from` and
    /// below `below`.
    pub fn to_pack(&self, from: u64, below: u64) -> Option<u64> {
        let written_no_more = self.list.split_last()?.1;
        let mut plain = written_no_more.iter().filter(|one| !one.is_packed);
        let found = plain.find(|one| one.first_sequence >= from)?;
        (found.end_sequence <= below).then_some(found.first_sequence)
    }

    /// Lets a packed segment take the place of the file that there is, in one step. A crash may undo it, which leaves
    /// the other. Returns false when the log has no such segment any more. Fails when the disk does; the segment has
    /// either file then.
    pub fn put_packed(&mut self, packing: &Packing) -> Result<bool> {
        let newest = self.newest().first_sequence;
        let mut written_no_more = self.list.iter_mut();
        let found = written_no_more
            .find(|one| one.first_sequence == packing.first_sequence)
            .filter(|one| one.first_sequence != newest);
        let Some(plain) = found else {
            self.disk.remove(names::PACKING).ok();
            return Ok(false);
        };
        self.disk
            .replace(names::PACKING, &plain.file)
            .map_err(OplogError::io(&plain.file, "replace by its packed form"))?;
        (plain.is_packed, plain.bytes, plain.plain_bytes) =
            (true, packing.bytes, packing.plain_bytes);
        plain.is_pseudonymous = packing.is_pseudonymous;
        Ok(true)
    }
}
