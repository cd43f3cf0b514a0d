//! The file system, handed in, so that a simulation can drive the real code of every stage under faults.
//!
//! A [`Disk`] is rooted at one data directory; every name is relative to it, with `/` between parts. Two things stand
//! on it: the log, which writes its newest file in place, and [`crate::Blobs`], which never change.

use std::fmt;
use std::fs::File;
use std::io;
use std::sync::Arc;

use rustix::buffer::spare_capacity;
use rustix::io::Errno;

use crate::parts::PartedObject;

/// One data directory. Implemented by the operating system's ([`crate::OsDisk`]) and by the
/// fault-injecting one of the simulation.
pub trait Disk: Send + Sync + fmt::Debug {
    /// Creates a new empty file for writing; fails with `AlreadyExists` if the name is taken.
    fn create(&self, name: &str) -> io::Result<Box<dyn DiskFile>>;

    /// Opens an existing file for reading and writing in place.
    fn open(&self, name: &str) -> io::Result<Box<dyn DiskFile>>;

    /// Opens a file for reading, with its length as it is now. The content stays readable after [`Disk::remove`].
    fn content(&self, name: &str) -> io::Result<Content>;

    /// All bytes of a small file.
    fn read(&self, name: &str) -> io::Result<Vec<u8>> {
        self.content(name)?.all()
    }

    /// Up to `bytes` bytes of a file from `offset` on; fewer only at its end.
    fn read_part(&self, name: &str, offset: u64, bytes: usize) -> io::Result<Vec<u8>> {
        let content = self.content(name)?;
        let left = content.len().saturating_sub(offset);
        content.part(offset, left.min(bytes as u64) as usize)
    }

    /// Reads a file in parts from the first byte to the last; as far as the system can it is the disk that is asked,
    /// not what memory holds of it.
    fn read_from_disk(&self, name: &str, part: &mut dyn FnMut(&[u8])) -> io::Result<()> {
        self.content(name)?.parts(part)
    }

    /// Gives the file `from` the second name `to` unless that is taken; true when it was free.
    /// Durable once the directory of `to` is synced.
    fn link(&self, from: &str, to: &str) -> io::Result<bool>;

    /// Gives the file `from` the name `to`, whatever had it, and takes its own: in one step, so that
    /// `to` is always there whole. Durable once the directory of `to` is synced.
    fn replace(&self, from: &str, to: &str) -> io::Result<()>;

    /// Removes a name. Content held from [`Disk::content`] stays readable.
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

/// The content of an open file, of which parts are read when they are asked for. Cheap to clone.
///
/// A part comes from the file by a call that fails where the disk does. A mapping would end the process by a signal
/// instead, at a bad sector as well as in a file that was made shorter.
///
/// ```
/// use tallyring_archive::Content;
///
/// let content = Content::new(vec![1, 2, 3]);
/// assert_eq!((content.len(), content.part(1, 2)?), (3, vec![2, 3]));
/// assert!(content.part(1, 3).is_err(), "the file ends before");
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Clone)]
pub struct Content(Source);

#[derive(Clone)]
enum Source {
    Memory(Arc<dyn AsRef<[u8]> + Send + Sync>),
    File(Arc<File>, u64),
    Object(Arc<PartedObject>),
    /// A content whose reader is watched.
    Told(Box<Content>, Arc<dyn Fn() + Send + Sync>),
}

/// Bytes of one part of a content that is read from its first byte to its last.
const PART_BYTES: usize = 1 << 20;

impl Content {
    /// Wraps anything that holds bytes.
    pub fn new(bytes: impl AsRef<[u8]> + Send + Sync + 'static) -> Self {
        Self(Source::Memory(Arc::new(bytes)))
    }

    /// The content of a file, up to its end as it is now.
    pub(crate) fn of(file: File) -> io::Result<Self> {
        let bytes = file.metadata()?.len();
        Ok(Self(Source::File(Arc::new(file), bytes)))
    }

    /// The content of an object that is read in parts.
    pub(crate) fn of_object(object: PartedObject) -> Self {
        Self(Source::Object(Arc::new(object)))
    }

    /// This content, where `read` is told of each part that was read.
    pub(crate) fn telling(&self, read: Arc<dyn Fn() + Send + Sync>) -> Self {
        Self(Source::Told(Box::new(self.clone()), read))
    }

    /// Length, bytes.
    pub fn len(&self) -> u64 {
        match &self.0 {
            Source::Memory(bytes) => (**bytes).as_ref().len() as u64,
            Source::File(_, bytes) => *bytes,
            Source::Object(object) => object.len(),
            Source::Told(content, _) => content.len(),
        }
    }

    /// True when the file had no byte.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The `bytes` bytes from `offset` on. Fails when the disk cannot read them, or the file ends before.
    pub fn part(&self, offset: u64, bytes: usize) -> io::Result<Vec<u8>> {
        let ended = || io::Error::from(io::ErrorKind::UnexpectedEof);
        // Before memory is taken for a length that no file has.
        if offset
            .checked_add(bytes as u64)
            .is_none_or(|end| end > self.len())
        {
            return Err(ended());
        }
        let file = match &self.0 {
            Source::Memory(held) => {
                let start = offset as usize;
                return Ok((**held).as_ref()[start..start + bytes].to_vec());
            }
            Source::File(file, _) => file,
            Source::Object(object) => return object.part(offset, bytes),
            Source::Told(content, read) => {
                let part = content.part(offset, bytes)?;
                read();
                return Ok(part);
            }
        };
        let mut part = Vec::with_capacity(bytes);
        while part.len() < bytes {
            let at = offset + part.len() as u64;
            // The bytes go where no zeros were written before.
            match rustix::io::pread(file, spare_capacity(&mut part), at) {
                Ok(0) => return Err(ended()),
                Ok(_) | Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
        part.truncate(bytes);
        Ok(part)
    }

    /// This content from the object store itself, where kept parts of its object are read otherwise: those may be
    /// damaged. None for any other content.
    pub(crate) fn anew(&self) -> Option<Self> {
        match &self.0 {
            Source::Object(object) => Some(Self::of_object(object.anew())),
            Source::Told(content, read) => Some(content.anew()?.telling(Arc::clone(read))),
            Source::Memory(_) | Source::File(..) => None,
        }
    }

    /// All bytes, for a file that is small. Fails as [`Content::part`] does.
    pub fn all(&self) -> io::Result<Vec<u8>> {
        self.part(0, usize::try_from(self.len()).unwrap_or(usize::MAX))
    }

    /// True when the first `bytes` bytes of both are equal. Both have them. Fails as [`Content::part`] does.
    pub fn equals(&self, other: &Self, bytes: u64) -> io::Result<bool> {
        let mut at = 0;
        while at < bytes {
            let more = (bytes - at).min(PART_BYTES as u64) as usize;
            if self.part(at, more)? != other.part(at, more)? {
                return Ok(false);
            }
            at += more as u64;
        }
        Ok(true)
    }

    /// Reads all bytes in parts of at most a mebibyte; those of an object come from the object store, whatever parts of
    /// it are kept. Fails as [`Content::part`] does.
    pub fn parts(&self, part: &mut dyn FnMut(&[u8])) -> io::Result<()> {
        match &self.0 {
            Source::Object(object) => return object.whole(part),
            Source::Told(content, read) => {
                return content.parts(&mut |bytes| {
                    part(bytes);
                    read();
                });
            }
            Source::Memory(_) | Source::File(..) => {}
        }
        let mut at = 0;
        while at < self.len() {
            let bytes = (self.len() - at).min(PART_BYTES as u64);
            part(&self.part(at, bytes as usize)?);
            at += bytes;
        }
        Ok(())
    }
}

impl fmt::Debug for Content {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Content({} bytes)", self.len())
    }
}
