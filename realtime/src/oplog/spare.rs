//! The spare: a segment of zeros that is prepared ahead, so that a commit only has to name it.

use std::io;
use std::sync::{Arc, PoisonError};

use tallyring_archive::{Disk, DiskFile, names};

use super::error::{OplogError, Result};
use super::segment::SEGMENT_HEADER_BYTES;
use crate::sync::{Mutex, MutexGuard};

/// Zeros that are written at once, bytes.
const ZERO_CHUNK_BYTES: usize = 1 << 20;

/// Prepares segments ahead. A helper thread calls [`Spare::prepare`] now and then, without the writer. The writer
/// prepares a segment itself when there is no spare.
pub struct Spare {
    disk: Arc<dyn Disk>,
    segment_bytes: u64,
    /// The spare's file once it is complete. The lock is held while a spare is prepared and while it is named, because
    /// both use the same name.
    ready: Mutex<Option<Box<dyn DiskFile>>>,
}

impl Spare {
    pub(super) fn new(disk: Arc<dyn Disk>, segment_bytes: u64) -> Self {
        Self {
            disk,
            segment_bytes,
            ready: Mutex::new(None),
        }
    }

    /// Prepares a spare unless there is one: writes a segment of zeros and syncs it. The caller repeats the call now
    /// and then; it costs nothing when there is a spare. After [`OplogError::Full`] or [`OplogError::Io`] the log is
    /// unchanged and there is no spare.
    pub fn prepare(&self) -> Result<()> {
        let mut ready = self.lock();
        if ready.is_none() {
            *ready = Some(self.prepare_file()?);
        }
        Ok(())
    }

    /// Gives the spare (prepared now if there is none) its header and then its name, durably.
    ///
    /// After an error of a full disk the log is unchanged; after any other error the file may or may not have its name.
    pub(super) fn publish(
        &self,
        name: &str,
        header: &[u8; SEGMENT_HEADER_BYTES],
    ) -> Result<Box<dyn DiskFile>> {
        let mut ready = self.lock();
        let mut file = match ready.take() {
            Some(file) => file,
            None => self.prepare_file()?,
        };
        let linked = file
            .write_at(0, header)
            .and_then(|()| file.sync())
            .and_then(|()| self.disk.link(names::SPARE_SEGMENT, name));
        match linked {
            Ok(true) => {}
            Ok(false) => {
                let taken = io::Error::from(io::ErrorKind::AlreadyExists);
                return Err(OplogError::io(name, "name a new segment")(taken));
            }
            Err(error) => {
                self.discard();
                return Err(OplogError::full_or_io(name, "a new segment")(error));
            }
        }
        self.disk
            .remove(names::SPARE_SEGMENT)
            .map_err(OplogError::io(names::SPARE_SEGMENT, "remove the old name"))?;
        self.disk
            .sync_directory(names::OPLOG)
            .map_err(OplogError::io(names::OPLOG, "sync directory"))?;
        Ok(file)
    }

    fn prepare_file(&self) -> Result<Box<dyn DiskFile>> {
        self.create_and_fill().map_err(|error| {
            self.discard();
            OplogError::full_or_io(names::SPARE_SEGMENT, "a spare segment")(error)
        })
    }

    fn create_and_fill(&self) -> io::Result<Box<dyn DiskFile>> {
        // Otherwise the spare would take space that other writers need for a moment.
        if self.disk.free_bytes()? < self.segment_bytes {
            return Err(io::ErrorKind::StorageFull.into());
        }
        let mut file = match self.disk.create(names::SPARE_SEGMENT) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                // A failed attempt left the file. It may be the second name of a segment by now, so it is never written
                // to.
                self.disk.remove(names::SPARE_SEGMENT)?;
                self.disk.create(names::SPARE_SEGMENT)?
            }
            created => created?,
        };
        // Each piece is durable before the next. A sync of the whole would hold up commits, which need the same disk.
        for offset in (0..self.segment_bytes).step_by(ZERO_CHUNK_BYTES) {
            let left = self.segment_bytes - offset;
            write_zeros(&mut *file, offset, left.min(ZERO_CHUNK_BYTES as u64))?;
            file.sync()?;
        }
        Ok(file)
    }

    /// Frees the space. A failure does no harm: the next attempt removes the file.
    fn discard(&self) {
        self.disk.remove(names::SPARE_SEGMENT).ok();
    }

    fn lock(&self) -> MutexGuard<'_, Option<Box<dyn DiskFile>>> {
        // A panic while a spare was prepared leaves no spare, which is a valid state.
        self.ready.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Writes zeros in large pieces.
pub(super) fn write_zeros(file: &mut dyn DiskFile, offset: u64, bytes: u64) -> io::Result<()> {
    let zeros = vec![0; ZERO_CHUNK_BYTES.min(usize::try_from(bytes).unwrap_or(usize::MAX))];
    let end = offset + bytes;
    let mut at = offset;
    while at < end {
        let piece = (end - at).min(zeros.len() as u64);
        file.write_at(at, &zeros[..piece as usize])?;
        at += piece;
    }
    Ok(())
}

/// Removes spare segments, and segments that were being copied.
pub(super) fn remove_spares(disk: &dyn Disk) -> io::Result<()> {
    for file in disk.list(names::OPLOG)? {
        if file.ends_with(names::TEMPORARY_SUFFIX) {
            disk.remove(&format!("{}/{file}", names::OPLOG))?;
        }
    }
    Ok(())
}
