//! An object store, such as a bucket of S3, handed in beneath [`crate::Blobs`].
//!
//! This is the raw service and no more. How blobs lie in it, what a lost answer means and which bytes are believed is
//! decided above it, in one place for a real bucket and for a simulated one.

use std::fmt;
use std::io;

use crate::disk::Content;
use crate::parts::ObjectParts;

/// One object store, or the part of one that belongs to one store of counts. Many nodes share it.
///
/// An answer may be lost: after an error of a method that changes something, the change was made, or was not, or comes
/// later. All reads and lists see every change that was answered before they began.
///
/// ```
/// # use std::collections::BTreeMap;
/// # use std::io::{Error, ErrorKind, Result};
/// # use std::sync::{Arc, Mutex};
/// use tallyring_archive::{Blobs, Content, ObjectInfo, Objects, OsDisk};
///
/// #[derive(Debug, Default)]
/// struct InMemory(Mutex<BTreeMap<String, Vec<u8>>>);
///
/// impl Objects for InMemory {
///     fn put_if_absent(&self, key: &str, bytes: &[u8]) -> Result<bool> {
///         let mut objects = self.0.lock().unwrap();
///         let is_free = !objects.contains_key(key);
///         objects.entry(key.into()).or_insert_with(|| bytes.into());
///         Ok(is_free)
///     }
///     // And so on.
/// #   fn put(&self, key: &str, content: &Content) -> Result<()> {
/// #       self.0.lock().unwrap().insert(key.into(), content.all()?);
/// #       Ok(())
/// #   }
/// #   fn get(&self, key: &str, part: &mut dyn FnMut(&[u8])) -> Result<()> {
/// #       match self.0.lock().unwrap().get(key) {
/// #           Some(bytes) => Ok(part(bytes)),
/// #           None => Err(Error::from(ErrorKind::NotFound)),
/// #       }
/// #   }
/// #   fn get_part(&self, _: &str, _: u64, _: usize) -> Result<Vec<u8>> {
/// #       Err(Error::from(ErrorKind::Unsupported))
/// #   }
/// #   fn info(&self, key: &str) -> Result<ObjectInfo> {
/// #       match self.0.lock().unwrap().get(key) {
/// #           Some(bytes) => Ok(ObjectInfo { bytes: bytes.len() as u64, modified_ms: 0 }),
/// #           None => Err(Error::from(ErrorKind::NotFound)),
/// #       }
/// #   }
/// #   fn list(&self, _: &str, _: &str) -> Result<Vec<(String, ObjectInfo)>> {
/// #       Ok(Vec::new())
/// #   }
/// #   fn remove(&self, key: &str) -> Result<()> {
/// #       self.0.lock().unwrap().remove(key);
/// #       Ok(())
/// #   }
/// }
///
/// let bucket = Arc::new(InMemory::default());
/// let (one, two) = (tempfile::tempdir()?, tempfile::tempdir()?);
/// let node = |directory: &tempfile::TempDir| -> Result<Blobs> {
///     let disk = Arc::new(OsDisk::new(directory.path())?);
///     Ok(Blobs::over(disk, bucket.clone()))
/// };
/// let (one, two) = (node(&one)?, node(&two)?);
/// one.prepare()?;
/// two.prepare()?;
/// assert!(one.put("manifests/manifest-00000001", b"of one")?);
/// assert!(!two.put("manifests/manifest-00000001", b"of two")?, "the number is taken");
/// assert_eq!(two.read("manifests/manifest-00000001")?, b"of one");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub trait Objects: Send + Sync + fmt::Debug {
    /// Makes an object unless there is one with this key; true when there was none. One of several callers that race
    /// for a key gets true. It is one request, which no layer below sends a second time: the caller could not tell its
    /// own object from another's then.
    fn put_if_absent(&self, key: &str, bytes: &[u8]) -> io::Result<bool>;

    /// Makes an object of any size, in the place of the one with this key. A reader gets the one or the other, whole.
    fn put(&self, key: &str, content: &Content) -> io::Result<()>;

    /// Reads an object from its first byte to its last. Fails with `NotFound` when there is none with this key, before
    /// any part then.
    fn get(&self, key: &str, part: &mut dyn FnMut(&[u8])) -> io::Result<()>;

    /// The `bytes` bytes of an object from `offset` on, at least one. Where the object has fewer, the answer is shorter
    /// or an error. Fails as [`Objects::get`] does.
    fn get_part(&self, key: &str, offset: u64, bytes: usize) -> io::Result<Vec<u8>>;

    /// The parts in which files are read of which the node has no copies; none where it makes a copy of each file
    /// before it reads it.
    fn parts(&self) -> Option<&ObjectParts> {
        None
    }

    /// Facts of an object. Fails with `NotFound` when there is none with this key.
    fn info(&self, key: &str) -> io::Result<ObjectInfo>;

    /// The objects whose keys begin with `directory` and a `/` and are greater than `after`, ascending by key: some
    /// thousands at most. None only where there are no more.
    fn list(&self, directory: &str, after: &str) -> io::Result<Vec<(String, ObjectInfo)>>;

    /// Removes an object. No error where there is none with this key.
    fn remove(&self, key: &str) -> io::Result<()>;
}

/// Facts of an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ObjectInfo {
    /// Length, bytes.
    pub bytes: u64,
    /// When it was put, Unix milliseconds of the object store's clock.
    pub modified_ms: i64,
}
