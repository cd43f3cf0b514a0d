//! The mirror of a topic: local segments, byte for byte the messages that count, in the files of every log.
//!
//! The topic keeps the log, so nothing waits for a sync of the mirror. [`Mirror::sync`] syncs segments that are written
//! no more, at leisure. A start reads all others anew from the topic, whatever a crash left of their files.

use std::sync::Arc;

use tallyring_archive::{Disk, DiskFile, names};

use super::entries::Entry;
use super::error::{OplogError, Result};
use super::frame::Frame;
use super::headers::{HeaderAt, Headers};
use super::recovery::describe;
use super::segment::{Form, SegmentHeader, header_crc};
use super::segments::Segments;
use super::spare::write_zeros;
use super::topic::Message;
use super::writer::LogOptions;

/// The mirror, open for writing.
pub(super) struct Mirror {
    disk: Arc<dyn Disk>,
    segments: Segments,
    newest: Box<dyn DiskFile>,
    /// Bytes of the newest segment that a failed write may have touched.
    touched: u64,
    headers: Headers,
    /// First record of the oldest segment that may not be synced.
    unsynced: u64,
}

impl Mirror {
    /// Begins behind the segments that are there and stay, with this header of the next one. The file of that segment,
    /// if there is one, is written anew.
    pub(super) fn begin(
        disk: Arc<dyn Disk>,
        options: LogOptions,
        older: Vec<Entry>,
        mut headers: Headers,
        message: &Message,
    ) -> Result<Self> {
        let header = decode(message)?;
        let newest = new_segment(&*disk, &header, message)?;
        headers.note(at(&header, message));
        let list = describe(older, header.first_sequence, header.created_ms);
        let mut segments = Segments::new(Arc::clone(&disk), options, list, 0);
        segments.begun(&header);
        Ok(Self {
            disk,
            segments,
            newest,
            touched: 0,
            headers,
            unsynced: header.first_sequence,
        })
    }

    pub(super) fn segments(&self) -> &Segments {
        &self.segments
    }

    pub(super) fn segments_mut(&mut self) -> &mut Segments {
        &mut self.segments
    }

    /// Where the topic has the header of the segment that begins with this record, as far as it is known.
    pub(super) fn header_of(&self, first: u64) -> Option<HeaderAt> {
        self.headers.of(first)
    }

    /// Writes the bytes of a frame behind the last one. The frame is part of the mirror once [`Self::grown`] says so; a
    /// failed write, or one that is done again, changes nothing.
    pub(super) fn put(&mut self, bytes: &[u8]) -> Result<()> {
        let (start, end) = (
            self.segments.end(),
            self.segments.end() + bytes.len() as u64,
        );
        let touched = self.touched.max(end);
        self.touched = touched;
        let name = &self.segments.newest().file;
        self.newest
            .write_at(start, bytes)
            // Bytes that an earlier attempt left would be damage once the segment is ended.
            .and_then(|()| write_zeros(&mut *self.newest, end, touched - end))
            .map_err(OplogError::full_or_io(name, "a frame of the topic"))
    }

    /// Takes the frame that was put.
    pub(super) fn grown(&mut self, frame: &Frame<'_>, bytes: usize) {
        let end = self.segments.end() + bytes as u64;
        self.segments.grown(frame.count, end, frame.written_ms);
        self.touched = end;
    }

    /// Ends the newest segment and begins the next. A failure changes nothing.
    pub(super) fn begin_segment(&mut self, message: &Message) -> Result<()> {
        let header = decode(message)?;
        let end = self.segments.end();
        if self.touched > end {
            let name = &self.segments.newest().file;
            write_zeros(&mut *self.newest, end, self.touched - end)
                .map_err(OplogError::full_or_io(name, "zeros behind the last frame"))?;
        }
        self.newest = new_segment(&*self.disk, &header, message)?;
        self.headers.note(at(&header, message));
        self.segments.cut_newest();
        self.segments.begun(&header);
        self.touched = self.segments.end();
        Ok(())
    }

    /// Syncs all segments that are written no more, and notes that, so that the next start does not read them anew.
    pub(super) fn sync(&mut self) -> Result<()> {
        let newest = self.segments.newest().first_sequence;
        if self.unsynced == newest {
            return Ok(());
        }
        let ended = self.segments.list().iter();
        for one in ended.filter(|one| (self.unsynced..newest).contains(&one.first_sequence)) {
            self.disk
                .open(&one.file)
                .and_then(|mut file| file.sync())
                .map_err(OplogError::io(&one.file, "sync"))?;
        }
        self.segments.sync_directory()?;
        self.headers.write(&*self.disk, newest)?;
        self.unsynced = newest;
        Ok(())
    }

    /// Removes the oldest segment, durably.
    pub(super) fn remove_oldest(&mut self) -> Result<()> {
        self.segments.remove_oldest()?;
        self.headers
            .forget_before(self.segments.list()[0].first_sequence);
        self.segments.sync_directory()
    }
}

/// Where the segment of this header begins.
pub(super) fn at(header: &SegmentHeader, message: &Message) -> HeaderAt {
    HeaderAt {
        first: header.first_sequence,
        offset: message.offset,
        crc: header_crc(&message.bytes),
    }
}

/// The header in a message that was judged to be one.
pub(super) fn decode(message: &Message) -> Result<SegmentHeader> {
    match SegmentHeader::decode(&message.bytes) {
        Ok((header, _, Form::Plain)) => Ok(header),
        _ => Err(OplogError::NoLog {
            offset: message.offset,
        }),
    }
}

/// Makes a segment of this header alone, and lets it take its name, whatever had it.
fn new_segment(
    disk: &dyn Disk,
    header: &SegmentHeader,
    message: &Message,
) -> Result<Box<dyn DiskFile>> {
    let name = names::segment(header.first_sequence);
    // A failed attempt may have left it.
    disk.remove(names::MIRRORING).ok();
    let create = || {
        let mut file = disk.create(names::MIRRORING)?;
        file.write_at(0, &message.bytes)?;
        disk.replace(names::MIRRORING, &name)?;
        Ok(file)
    };
    create().map_err(OplogError::full_or_io(&name, "a new segment"))
}
