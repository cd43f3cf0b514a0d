//! Reads a segment piece by piece, so that memory never holds more of it than a frame and a mebibyte.

use super::cursor::TORN_BYTES_MAX;
use super::error::Result;
use super::frame::{
    FRAME_HEADER_BYTES, PAYLOAD_BYTES_MAX, decode_header, frame_bytes, trimmed_len,
};
use super::packed::SegmentBytes;

/// Bytes that are read at once.
const PIECE_BYTES: usize = 1 << 20;

/// Where the bytes of a segment come from.
pub(super) enum Source<'d> {
    File(SegmentBytes),
    Bytes(&'d [u8]),
}

/// The bytes of one segment, of which a part is held.
pub(super) struct Window<'d> {
    source: Source<'d>,
    length: usize,
    start: usize,
    held: Vec<u8>,
}

impl<'d> Window<'d> {
    pub(super) fn new(source: Source<'d>) -> Self {
        let length = match &source {
            Source::File(bytes) => usize::try_from(bytes.len()).unwrap_or(usize::MAX),
            Source::Bytes(bytes) => bytes.len(),
        };
        Self {
            source,
            length,
            start: 0,
            held: Vec::new(),
        }
    }

    /// Bytes from `offset` on that hold the whole frame there; fewer where the file ends, or where no frame begins.
    pub(super) fn frame(&mut self, offset: usize, seed: u32) -> Result<&[u8]> {
        let header = decode_header(self.from(offset, FRAME_HEADER_BYTES)?, seed);
        let payload_bytes = header.map_or(0, |header| header.payload_bytes);
        self.from(offset, frame_bytes(payload_bytes.min(PAYLOAD_BYTES_MAX)))
    }

    /// Lets the next read ask the disk.
    pub(super) fn forget(&mut self) {
        self.held.clear();
    }

    /// The bytes from `offset` to the last one that is not zero, read anew: a writer may have been at work. Where they
    /// are more than a torn write leaves, only so many that this shows.
    pub(super) fn tail(&mut self, offset: usize) -> Result<Vec<u8>> {
        self.forget();
        let mut end = self.length;
        while end > offset {
            let start = end.saturating_sub(PIECE_BYTES).max(offset);
            let trimmed = trimmed_len(&self.part(start, end - start)?);
            if trimmed > 0 {
                return self.part(offset, (start + trimmed - offset).min(TORN_BYTES_MAX + 1));
            }
            end = start;
        }
        Ok(Vec::new())
    }

    /// At least `bytes` bytes from `offset` on; fewer at the end of the file.
    fn from(&mut self, offset: usize, bytes: usize) -> Result<&[u8]> {
        let left = self.length.saturating_sub(offset);
        let held = self.start..self.start + self.held.len();
        let is_held = held.start <= offset && offset + bytes.min(left) <= held.end;
        if !is_held && left > 0 {
            self.held = self.part(offset, bytes.max(PIECE_BYTES).min(left))?;
            self.start = offset;
        }
        let at = offset.checked_sub(self.start).filter(|_| left > 0);
        Ok(at.and_then(|at| self.held.get(at..)).unwrap_or_default())
    }

    fn part(&mut self, offset: usize, bytes: usize) -> Result<Vec<u8>> {
        match &mut self.source {
            Source::File(segment) => segment.part(offset as u64, bytes),
            Source::Bytes(whole) => Ok(whole[offset..offset + bytes].to_vec()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use tallyring_archive::OsDisk;

    use super::*;

    #[test]
    fn a_segment_that_is_made_shorter_while_it_is_open_is_an_error_that_names_it() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("a.tlog");
        fs::write(&path, vec![1; 3 * PIECE_BYTES]).unwrap();
        let disk = OsDisk::new(directory.path()).unwrap();
        let bytes = SegmentBytes::open(&disk, "a.tlog").unwrap();
        let mut window = Window::new(Source::File(bytes));
        assert_eq!(window.from(8, 8).unwrap().len(), PIECE_BYTES);
        fs::File::options()
            .write(true)
            .open(&path)
            .unwrap()
            .set_len(9)
            .unwrap();
        for error in [
            window.frame(2 * PIECE_BYTES, 0).unwrap_err(),
            window.tail(0).unwrap_err(),
        ] {
            let error = error.to_string();
            assert!(error.contains("a.tlog"), "{error}");
        }
    }

    #[test]
    fn of_a_tail_that_no_torn_write_leaves_no_more_is_held_than_shows_that() {
        let bytes = vec![1; TORN_BYTES_MAX + PIECE_BYTES];
        let mut window = Window::new(Source::Bytes(&bytes));
        assert_eq!(window.tail(9).unwrap().len(), TORN_BYTES_MAX + 1);
        assert_eq!(window.tail(PIECE_BYTES).unwrap().len(), TORN_BYTES_MAX);
    }

    #[test]
    fn the_tail_ends_at_its_last_byte_that_is_not_zero_and_a_read_goes_over_the_end_of_a_piece() {
        let mut bytes = vec![0; 3 * PIECE_BYTES];
        bytes[PIECE_BYTES + 5] = 1;
        let mut window = Window::new(Source::Bytes(&bytes));
        assert_eq!(window.tail(9).unwrap(), bytes[9..PIECE_BYTES + 6]);
        assert!(window.tail(PIECE_BYTES + 6).unwrap().is_empty());
        window.from(0, 1).unwrap();
        let over = window.from(PIECE_BYTES - 8, 16).unwrap();
        assert_eq!(over[..16], bytes[PIECE_BYTES - 8..PIECE_BYTES + 8]);
        assert!(window.from(3 * PIECE_BYTES, 8).unwrap().is_empty());
        assert!(window.from(4 * PIECE_BYTES, 8).unwrap().is_empty());
    }
}
