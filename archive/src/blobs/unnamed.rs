//! A blob between its first byte and its name.

use super::{Blobs, directory_of};
use crate::disk::DiskFile;
use crate::error::{Error, Result};

/// A blob that is being written and has no name yet. Dropping it removes what was written.
pub struct Unnamed {
    blobs: Blobs,
    temporary: String,
    file: Box<dyn DiskFile>,
    bytes: u64,
    is_named: bool,
}

impl Unnamed {
    /// Begins with a file that is empty, under this temporary name.
    pub(super) fn begun(blobs: Blobs, temporary: String, file: Box<dyn DiskFile>) -> Self {
        Self {
            blobs,
            temporary,
            file,
            bytes: 0,
            is_named: false,
        }
    }

    /// The name of what is written, for errors.
    pub fn temporary_name(&self) -> &str {
        &self.temporary
    }

    /// Bytes that were written.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Adds bytes at the end.
    pub fn write(&mut self, bytes: &[u8]) -> Result<()> {
        self.file
            .write_at(self.bytes, bytes)
            .map_err(Error::io("write", &self.temporary))?;
        self.bytes += bytes.len() as u64;
        Ok(())
    }

    /// Names the blob unless the name is taken; true when it was free. It is durable then. See [`Blobs::put`].
    pub fn put(self, name: &str) -> Result<bool> {
        let group = self.blobs.clone();
        let group = group.group();
        let is_free = group.put(self, name)?;
        group.commit()?;
        Ok(is_free)
    }

    /// Names the blob in the place of what has the name, durably and in one step.
    pub(super) fn put_over(mut self, name: &str) -> Result<()> {
        self.sync()?;
        match self.blobs.object(name) {
            None => self
                .blobs
                .disk
                .replace(&self.temporary, name)
                .map_err(Error::io("name", name))?,
            Some(object) => object.put_over(&self.temporary)?,
        }
        self.is_named = true;
        self.blobs.sync(directory_of(name))
    }

    /// Names the blob unless the name is taken. The content is durable then; the name is not.
    pub(super) fn name(mut self, name: &str) -> Result<bool> {
        self.sync()?;
        let is_free = match self.blobs.object(name) {
            None => self.blobs.link(&self.temporary, name)?,
            Some(object) => object.put(&self.temporary)?,
        };
        // A name that stays is only space, which the next start gives back.
        let _ = self.blobs.disk.remove(&self.temporary);
        self.is_named = true;
        Ok(is_free)
    }

    pub(super) fn sync(&mut self) -> Result<()> {
        self.file.sync().map_err(Error::io("sync", &self.temporary))
    }
}

impl Drop for Unnamed {
    fn drop(&mut self) {
        if !self.is_named {
            // If that fails too, the next start removes it.
            let _ = self.blobs.disk.remove(&self.temporary);
        }
    }
}
