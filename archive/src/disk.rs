//! The file system, handed in, so that a simulation can drive the real code of every stage under faults.
//!
//! A [`Disk`] is rooted at one data directory; every name is relative to it, with `/` between parts.
//! Invariant kept by all callers: a file is written whole under a temporary name, synced, then
//! published under its final name (created if absent), and then its directory is synced. Only the
//! oplog writes a named file in place.

use std::fmt;
use std::io;
use std::sync::Arc;

use crate::error::{Error, Result};

/// One data directory. Implemented by the operating system's ([`crate::OsDisk`]) and by the
/// fault-injecting one of the simulation.
pub trait Disk: Send + Sync + fmt::Debug {
    /// Creates a new empty file for writing; fails with `AlreadyExists` if the name is taken.
    fn create(&self, name: &str) -> io::Result<Box<dyn DiskFile>>;

    /// Opens an existing file for reading and writing in place.
    fn open(&self, name: &str) -> io::Result<Box<dyn DiskFile>>;

    /// The whole content of a file as it is now, for reading. The file must not shrink while the
    /// content is held.
    fn read(&self, name: &str) -> io::Result<Content>;

    /// Up to `bytes` bytes of a file from `offset` on; fewer only at its end. Without a mapping, so that a disk that fails is
    /// an error.
    fn read_part(&self, name: &str, offset: u64, bytes: usize) -> io::Result<Vec<u8>> {
        let content = self.read(name)?;
        let start = usize::try_from(offset).map_or(content.len(), |at| at.min(content.len()));
        let end = start.saturating_add(bytes).min(content.len());
        Ok(content[start..end].to_vec())
    }

    /// Reads a file in parts from the first byte to the last; as far as the system can it is the disk that is asked, not
    /// what memory holds of it.
    fn read_from_disk(&self, name: &str, part: &mut dyn FnMut(&[u8])) -> io::Result<()> {
        part(&self.read(name)?);
        Ok(())
    }

    /// Gives the file `from` the second name `to` unless that is taken; true when it was free.
    /// Durable once the directory of `to` is synced.
    fn link(&self, from: &str, to: &str) -> io::Result<bool>;

    /// Gives the file `from` the name `to`, whatever had it, and takes its own: in one step, so that
    /// `to` is always there whole. Durable once the directory of `to` is synced.
    fn replace(&self, from: &str, to: &str) -> io::Result<()>;

    /// Removes a name. Content held from [`Disk::read`] stays readable.
    fn remove(&self, name: &str) -> io::Result<()>;

    /// File names (without the directory) in `directory`, sorted; empty when there is none.
    fn list(&self, directory: &str) -> io::Result<Vec<String>>;

    /// Creates a directory and its parents; no error when it is there.
    fn create_directory(&self, directory: &str) -> io::Result<()>;

    /// Makes creations, links and removals in `directory` durable. `""` is the root.
    fn sync_directory(&self, directory: &str) -> io::Result<()>;

    /// Bytes free for this process on the file system of the root.
    fn free_bytes(&self) -> io::Result<u64>;
}

/// A file open for writing.
pub trait DiskFile: Send {
    /// Writes all of `bytes` at `offset`; the file grows as needed. On error any part may be written.
    fn write_at(&mut self, offset: u64, bytes: &[u8]) -> io::Result<()>;

    /// Makes all writes so far durable. After an error nothing may be assumed about them.
    fn sync(&mut self) -> io::Result<()>;
}

/// Immutable content of a file: mapped or in memory. Cheap to clone.
///
/// ```
/// use tallyring_archive::Content;
///
/// let content = Content::new(vec![1, 2, 3]);
/// assert_eq!(&content[..2], [1, 2]);
/// ```
#[derive(Clone)]
pub struct Content(Arc<dyn AsRef<[u8]> + Send + Sync>);

impl Content {
    /// Wraps anything that holds bytes.
    pub fn new(bytes: impl AsRef<[u8]> + Send + Sync + 'static) -> Self {
        Self(Arc::new(bytes))
    }
}

impl std::ops::Deref for Content {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        (*self.0).as_ref()
    }
}

impl fmt::Debug for Content {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Content({} bytes)", self.len())
    }
}

/// Writes a whole file: under a temporary name, synced, then named, unless the name is taken; true
/// when it was free. The directory is not synced.
pub fn write_whole(disk: &dyn Disk, name: &str, bytes: &[u8]) -> Result<bool> {
    let temporary = write_temporary(disk, name, bytes)?;
    let free = disk
        .link(&temporary, name)
        .map_err(Error::io("name", name))?;
    // What stays is only space, which the next start gives back.
    let _ = disk.remove(&temporary);
    Ok(free)
}

/// Writes a whole file in the place of what may be there. The directory is not synced.
pub fn replace_whole(disk: &dyn Disk, name: &str, bytes: &[u8]) -> Result<()> {
    let temporary = write_temporary(disk, name, bytes)?;
    disk.replace(&temporary, name)
        .map_err(Error::io("name", name))
}

fn write_temporary(disk: &dyn Disk, name: &str, bytes: &[u8]) -> Result<String> {
    let temporary = format!("{name}{TEMPORARY_SUFFIX}");
    // A leftover of an earlier try that failed.
    let _ = disk.remove(&temporary);
    let mut file = disk
        .create(&temporary)
        .map_err(Error::io("create", &temporary))?;
    for (number, chunk) in bytes.chunks(WRITE_BYTES).enumerate() {
        file.write_at((number * WRITE_BYTES) as u64, chunk)
            .map_err(Error::io("write", &temporary))?;
    }
    file.sync().map_err(Error::io("sync", &temporary))?;
    Ok(temporary)
}

/// Bytes of one write.
const WRITE_BYTES: usize = 1 << 20;

/// Removes leftovers of a crash: every file of `directory` whose name ends in [`TEMPORARY_SUFFIX`].
pub fn remove_temporary_files(disk: &dyn Disk, directory: &str) -> io::Result<usize> {
    let mut removed = 0;
    for name in disk.list(directory)? {
        if name.ends_with(TEMPORARY_SUFFIX) {
            disk.remove(&format!("{directory}/{name}"))?;
            removed += 1;
        }
    }
    Ok(removed)
}

/// Ends the name of a file that is still being written.
pub const TEMPORARY_SUFFIX: &str = ".tmp";
