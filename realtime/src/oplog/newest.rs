//! The segment that is written: the only one with bytes that may not be durable.

use std::io;
use std::sync::Arc;

use tallyring_archive::{Disk, DiskFile, is_full, names};

use super::cursor::Cursor;
use super::error::{OplogError, Result};
use super::frame::{self, Frame, FrameHeader};
use super::packed::SegmentBytes;
use super::recovery::TornTail;
use super::segment::{Form, SEGMENT_HEADER_BYTES, SegmentHeader, header_crc};
use super::spare::{Spare, write_zeros};
use super::window::{Source, Window};

/// The newest segment, open for writing.
pub(super) struct Newest {
    disk: Arc<dyn Disk>,
    name: String,
    file: Box<dyn DiskFile>,
    /// CRC of the segment header.
    seed: u32,
    /// CRC of the last frame header, or of the segment header before the first frame.
    crc: u32,
    /// Position of the next frame, bytes.
    end: u64,
    /// Bytes of the segment that are durable.
    synced: u64,
    /// The encoded frame, kept for its capacity.
    buffer: Vec<u8>,
}

impl Newest {
    /// Begins a segment, durably.
    pub(super) fn create(
        disk: &Arc<dyn Disk>,
        spare: &Spare,
        header: &SegmentHeader,
    ) -> Result<Self> {
        let bytes = header.encode(Form::Plain);
        let name = names::segment(header.first_sequence);
        Ok(Self {
            disk: Arc::clone(disk),
            file: spare.publish(&name, &bytes)?,
            name,
            seed: header_crc(&bytes),
            crc: header_crc(&bytes),
            end: SEGMENT_HEADER_BYTES as u64,
            synced: SEGMENT_HEADER_BYTES as u64,
            buffer: Vec::new(),
        })
    }

    /// Continues a segment behind its last whole frame. A torn write behind the frame is cut, and frames that were read
    /// become durable. They may have been in memory only: a client that retries would get "duplicate" for an increment
    /// that a power cut then removes. A sync alone is not enough: if a sync failed before the restart, the system takes
    /// those bytes for clean and never writes them. So the bytes are written again.
    pub(super) fn reopen(
        disk: &Arc<dyn Disk>,
        name: &str,
        seed: u32,
        cursor: &Cursor,
        torn: Option<&TornTail>,
    ) -> Result<Self> {
        let mut file = disk.open(name).map_err(OplogError::io(name, "open"))?;
        if let Some(torn) = torn {
            write_zeros(&mut *file, torn.offset, torn.bytes)
                .map_err(OplogError::io(name, "cut the torn tail"))?;
        }
        let durable = cursor.durable.min(cursor.offset);
        let unproved = disk
            .content(name)
            .and_then(|content| content.part(durable as u64, cursor.offset - durable))
            .map_err(OplogError::io(name, "read"))?;
        if !unproved.is_empty() {
            file.write_at(durable as u64, &unproved)
                .map_err(OplogError::io(name, "write again what was read"))?;
        }
        file.sync().map_err(OplogError::io(name, "sync"))?;
        Ok(Self {
            disk: Arc::clone(disk),
            name: name.to_owned(),
            file,
            seed,
            crc: cursor.crc,
            end: cursor.offset as u64,
            synced: cursor.offset as u64,
            buffer: Vec::new(),
        })
    }

    /// Writes a frame at the end. After [`OplogError::Full`] the segment is unchanged and all of it is durable; any
    /// other error leaves the segment in an unknown state.
    pub(super) fn write(&mut self, frame: &Frame<'_>) -> Result<()> {
        let header = FrameHeader {
            epoch: frame.epoch,
            count: frame.count,
            first_sequence: frame.first_sequence,
            written_ms: frame.written_ms,
            is_plausible: frame.is_plausible,
            synced_bytes: u32::try_from(self.synced).expect("BUG: a segment above 4 GiB"),
            previous_crc: self.crc,
            replaced: None,
        };
        let crc = frame::encode(&mut self.buffer, self.seed, &header, frame.payload);
        match self.file.write_at(self.end, &self.buffer) {
            Ok(()) => {
                self.end += self.buffer.len() as u64;
                self.crc = crc;
                Ok(())
            }
            Err(full) if is_full(&full) => {
                self.undo()
                    .map_err(OplogError::io(&self.name, "undo a write on a full disk"))?;
                self.synced = self.end;
                Err(OplogError::full_or_io(&self.name, "a frame")(full))
            }
            Err(error) => Err(OplogError::io(&self.name, "write")(error)),
        }
    }

    /// Makes all of the segment durable.
    pub(super) fn sync(&mut self) -> Result<()> {
        if self.synced < self.end {
            self.file
                .sync()
                .map_err(OplogError::io(&self.name, "sync"))?;
            self.synced = self.end;
        }
        Ok(())
    }

    /// Position of the next frame, bytes.
    pub(super) fn end(&self) -> u64 {
        self.end
    }

    /// Bytes that no sync has covered yet.
    pub(super) fn unsynced_bytes(&self) -> u64 {
        self.end - self.synced
    }

    /// CRC of the last frame header.
    pub(super) fn crc(&self) -> u32 {
        self.crc
    }

    /// Removes the bytes that a failed write left behind the last frame, durably, so that the failed frame can never
    /// come back.
    fn undo(&mut self) -> io::Result<()> {
        let left_bytes = self.bytes_behind_end()?;
        write_zeros(&mut *self.file, self.end, left_bytes)?;
        self.file.sync()?;
        match self.bytes_behind_end()? {
            0 => Ok(()),
            left => Err(io::Error::other(format!(
                "{left} bytes are still in the file"
            ))),
        }
    }

    fn bytes_behind_end(&self) -> io::Result<u64> {
        let bytes = SegmentBytes::open(&*self.disk, &self.name).map_err(io::Error::other)?;
        let mut window = Window::new(Source::File(bytes));
        let behind = window.tail(self.end as usize);
        behind
            .map(|behind| behind.len() as u64)
            .map_err(io::Error::other)
    }
}

#[cfg(test)]
mod tests {
    use tallyring_archive::OsDisk;

    use super::*;

    #[test]
    fn a_segment_that_was_made_shorter_since_it_was_read_is_an_error_and_stays_as_it_is() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("a.tlog");
        let bytes: Vec<u8> = (0..64).collect();
        std::fs::write(&path, &bytes).unwrap();
        let disk: Arc<dyn Disk> = Arc::new(OsDisk::new(directory.path()).unwrap());
        let cursor = Cursor {
            offset: 100,
            durable: 10,
            sequence: 0,
            epoch: 0,
            crc: 0,
        };
        let reopened = Newest::reopen(&disk, "a.tlog", 0, &cursor, None);
        let error = reopened.err().unwrap().to_string();
        assert!(error.contains("a.tlog"), "{error}");
        assert_eq!(std::fs::read(&path).unwrap(), bytes);
    }
}
