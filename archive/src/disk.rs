//! The file system, handed in, so that a simulation can drive the real code of every stage under faults.
//!
//! A [`Disk`] is rooted at one data directory; every name is relative to it, with `/` between parts. Two things stand
//! on it: the log, which writes its newest file in place, and [`crate::Blobs`], which never change.

use std::fmt;
use std::io;
use std::sync::Arc;

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

    /// Up to `bytes` bytes of a file from `offset` on; fewer only at its end. Without a mapping, so that a disk that
    /// fails is an error.
    fn read_part(&self, name: &str, offset: u64, bytes: usize) -> io::Result<Vec<u8>> {
        let content = self.read(name)?;
        let start = usize::try_from(offset).map_or(content.len(), |at| at.min(content.len()));
        let end = start.saturating_add(bytes).min(content.len());
        Ok(content[start..end].to_vec())
    }

    /// Reads a file in parts from the first byte to the last; as far as the system can it is the disk that is asked,
    /// not what memory holds of it.
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
