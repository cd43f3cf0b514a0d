//! The spare: a segment of zeros made ahead, so that a roll in the commit path only names it.

use std::io;
use std::sync::{Arc, PoisonError};

use tallyring_archive::{Disk, DiskFile, names};

use super::error::OplogError;
use super::segment::SEGMENT_HEADER_BYTES;
use crate::sync::{Mutex, MutexGuard};

/// Bytes of zeros written at once.
const ZERO_CHUNK_BYTES: usize = 1 << 20;

/// Makes segments ahead. A helper thread calls [`Spare::prepare`] now and then, without the writer;
/// the writer makes one itself when there is none.
pub struct Spare {
    disk: Arc<dyn Disk>,
    segment_bytes: u64,
    /// The spare's file once it is whole. Held while one is made and while one is named, because
    /// both use the one name.
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

    /// Makes a spare unless there is one: writes a segment of zeros and syncs it. Call it after
    /// each group commit or once a second; it costs nothing when there is one.
    ///
    /// # Errors
    /// [`OplogError::Full`] or [`OplogError::Io`]; the log is not touched and there is no spare.
    pub fn prepare(&self) -> Result<(), OplogError> {
        let mut ready = self.lock();
        if ready.is_none() {
            *ready = Some(self.make()?);
        }
        Ok(())
    }

    /// Gives the spare (made now if there is none) its header and then its name, durably.
    ///
    /// An error that says the disk is full leaves the log as it was; after any other the file may
    /// or may not have its name.
    pub(super) fn publish(
        &self,
        name: &str,
        header: &[u8; SEGMENT_HEADER_BYTES],
    ) -> Result<Box<dyn DiskFile>, OplogError> {
        let mut ready = self.lock();
        let mut file = match ready.take() {
            Some(file) => file,
            None => self.make()?,
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

    fn make(&self) -> Result<Box<dyn DiskFile>, OplogError> {
        self.create_and_fill().map_err(|error| {
            self.discard();
            OplogError::full_or_io(names::SPARE_SEGMENT, "a spare segment")(error)
        })
    }

    fn create_and_fill(&self) -> io::Result<Box<dyn DiskFile>> {
        // Else what is left would be taken from whoever needs it for a moment.
        if self.disk.free_bytes()? < self.segment_bytes {
            return Err(io::ErrorKind::StorageFull.into());
        }
        let mut file = match self.disk.create(names::SPARE_SEGMENT) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                // Left by an attempt that failed. It may be a segment's second name by now, so it
                // is never written to.
                self.disk.remove(names::SPARE_SEGMENT)?;
                self.disk.create(names::SPARE_SEGMENT)?
            }
            created => created?,
        };
        write_zeros(&mut *file, 0, self.segment_bytes)?;
        file.sync()?;
        Ok(file)
    }

    /// Gives the space back. Failure is of no consequence: the next one made removes it again.
    fn discard(&self) {
        self.disk.remove(names::SPARE_SEGMENT).ok();
    }

    fn lock(&self) -> MutexGuard<'_, Option<Box<dyn DiskFile>>> {
        // A panic while a spare was made leaves none behind, which is a valid state.
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

/// Removes what was made ahead, and segments that were being copied.
pub fn remove_spares(disk: &dyn Disk) -> io::Result<()> {
    for file in disk.list(names::OPLOG)? {
        if file.ends_with(names::TEMPORARY_SUFFIX) {
            disk.remove(&format!("{}/{file}", names::OPLOG))?;
        }
    }
    Ok(())
}
