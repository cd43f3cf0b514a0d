//! Blobs: immutable files, each written once under a name.
//!
//! Runs, generations, manifests and the small files beside them are blobs. Durability is part of [`Blobs::put`]: when
//! it returns, the blob survives a power cut, whole, under its name. A name that is taken stays as it is. Many blobs
//! become durable together by a [`PutGroup`].
//!
//! This is the one place that knows how a local directory does that: a blob is written under a temporary name, synced,
//! linked to its name, and the directory is synced. The log does not go through here: its newest file changes in place.
//!
//! Blobs may lie in an object store ([`Blobs::over`]), which many nodes share. A blob is durable then when the object
//! store says so, and the directory of a node holds copies.

mod group;
mod object;
mod unnamed;

use std::fmt;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::disk::{Content, Disk};
use crate::error::{Error, Result};
use crate::names::{self, TEMPORARY_SUFFIX};
use crate::objects::Objects;
use crate::os_disk::OsDisk;

use object::Object;

pub use group::PutGroup;
pub use unnamed::Unnamed;

pub(crate) use object::list_objects;

/// The blobs of one data directory, or of an object store. A clone shares them. Each method that returns a result fails
/// when the disk or the object store refuses.
///
/// ```
/// use tallyring_archive::Blobs;
///
/// let directory = tempfile::tempdir()?;
/// let blobs = Blobs::local(directory.path())?;
/// assert!(blobs.put("a-blob", b"text")?);
/// assert!(!blobs.put("a-blob", b"other text")?, "the name is taken");
/// assert_eq!(blobs.read("a-blob")?, b"text");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct Blobs {
    disk: Arc<dyn Disk>,
    /// Where the blobs lie that do not belong to this node; none where all lie on the disk.
    objects: Option<Arc<dyn Objects>>,
    /// Is told of every file that these blobs make.
    made: Option<Arc<Made>>,
    /// Is told of every part that is read.
    read: Option<Arc<Read>>,
}

/// A function that is told the name of a file.
type Made = dyn Fn(&str) + Send + Sync;
/// A function that is told of a part of a blob.
type Read = dyn Fn() + Send + Sync;

/// Names that are tried for what is put aside; where `aside` is no directory, none is free.
const ASIDE_NAMES_MAX: u64 = 1_000;
/// Bytes of one write.
const WRITE_BYTES: usize = 1 << 20;

impl Blobs {
    /// The blobs on this disk.
    pub fn new(disk: Arc<dyn Disk>) -> Self {
        Self {
            disk,
            objects: None,
            made: None,
            read: None,
        }
    }

    /// The blobs in an object store. [`names::object_key`] says which these are; all others belong to the node and stay
    /// on its disk. The disk has copies of sorted files, too, each under its name.
    ///
    /// Five methods differ. [`Blobs::put`] finds a sorted file's name taken when the object store has its content.
    /// [`Blobs::list`] refuses a directory of sorted files. [`Blobs::remove`] takes the node's copy of a sorted file,
    /// and a blob that is not there is no error. [`Blobs::read_from_disk`] reads the object. [`Blobs::sync`] has
    /// nothing to do, but for what belongs to the node.
    pub fn over(disk: Arc<dyn Disk>, objects: Arc<dyn Objects>) -> Self {
        Self {
            objects: Some(objects),
            ..Self::new(disk)
        }
    }

    /// Blobs of the same directory. `made` is told of every file that is made through them, unfinished ones too, so
    /// that these files and no others can be removed. A name that was taken is not told.
    #[must_use]
    pub fn telling(&self, made: impl Fn(&str) + Send + Sync + 'static) -> Self {
        Self {
            made: Some(Arc::new(made)),
            ..self.clone()
        }
    }

    /// Blobs of the same directory. `read` is told of each part of a blob that is read through them, also where it is
    /// copied, or goes to the object store or comes from there: so slow work is told from such that hangs.
    #[must_use]
    pub fn telling_parts(&self, read: impl Fn() + Send + Sync + 'static) -> Self {
        Self {
            read: Some(Arc::new(read)),
            ..self.clone()
        }
    }

    /// The blobs in a directory of the local file system, which is made if absent, for its owner only.
    pub fn local(root: impl Into<PathBuf>) -> io::Result<Self> {
        Ok(Self::new(Arc::new(OsDisk::new(root)?)))
    }

    /// The disk beneath, on which the log of the same directory lives. It is this node's, also over an object store.
    pub fn disk(&self) -> &dyn Disk {
        &*self.disk
    }

    /// Makes the places of all blobs that are not there yet, durably.
    pub fn prepare(&self) -> Result<()> {
        for directory in names::DIRECTORIES {
            self.disk
                .create_directory(directory)
                .map_err(Error::io("create", directory))?;
        }
        self.sync("")
    }

    /// Writes a blob unless the name is taken; true when it was free. It is durable then. When the name is there after
    /// an error, whether it survives a power cut is unknown.
    pub fn put(&self, name: &str, bytes: &[u8]) -> Result<bool> {
        match self.small_object(name) {
            Some(object) => object.put_small(bytes),
            None => self.written(name, bytes)?.put(name),
        }
    }

    /// Writes a blob in the place of what has its name, durably and in one step. After an error the name has its old
    /// content or the new one.
    pub fn put_over(&self, name: &str, bytes: &[u8]) -> Result<()> {
        match self.small_object(name) {
            Some(object) => object.put_small_over(bytes),
            None => self.written(name, bytes)?.put_over(name),
        }
    }

    /// Writes the content of a blob, of these or of others, in the place of what has the name `to`, as
    /// [`Blobs::put_over`] does. Fails when `from` cannot be read.
    pub fn put_over_from(&self, others: &Self, from: &str, to: &str) -> Result<()> {
        let content = others.content(from)?;
        self.written_from(&content, from, to)?.put_over(to)
    }

    /// Gives the content of a blob a second name, durably; true when the name was free. The copy takes no space. Fails
    /// when there is no such blob.
    pub fn copy(&self, from: &str, to: &str) -> Result<bool> {
        if let Some(object) = self.object(to) {
            return object.copy(from);
        }
        if let Some(object) = self.object(from) {
            return self.written_from(&object.content()?, from, to)?.put(to);
        }
        let is_free = self.link(from, to)?;
        self.sync(directory_of(to))?;
        Ok(is_free)
    }

    /// Gives a blob a name in a directory that may not be there yet, as [`Blobs::copy`].
    pub(crate) fn copy_into(&self, directory: &str, from: &str, to: &str) -> Result<bool> {
        self.disk
            .create_directory(directory)
            .map_err(Error::io("create", directory))?;
        self.sync("")?;
        self.copy(from, to)
    }

    /// Begins a blob whose bytes come one after another; `name` is part of the name that it has meanwhile.
    pub fn begin(&self, name: &str) -> Result<Unnamed> {
        static UNIQUE: AtomicU64 = AtomicU64::new(0);
        let unique = UNIQUE.fetch_add(1, Ordering::Relaxed);
        let process = std::process::id();
        self.unnamed(format!("{name}.{process}-{unique}{TEMPORARY_SUFFIX}"))
    }

    /// Begins a group of blobs that become durable together.
    pub fn group(&self) -> PutGroup<'_> {
        PutGroup::of(self)
    }

    /// Opens a blob, whose parts are read when they are asked for. Fails when there is no such blob
    /// ([`Error::is_gone`]), or it cannot be opened.
    pub fn content(&self, name: &str) -> Result<Content> {
        let content = match self.object(name) {
            None => self.disk.content(name).map_err(Error::io("read", name))?,
            Some(object) => object.content()?,
        };
        Ok(self.told(content))
    }

    /// This content, of whose parts is told.
    fn told(&self, content: Content) -> Content {
        match &self.read {
            Some(read) => content.telling(Arc::clone(read)),
            None => content,
        }
    }

    /// All bytes of a small blob. Fails when there is no such blob ([`Error::is_gone`]), or it cannot be read.
    pub fn read(&self, name: &str) -> Result<Vec<u8>> {
        let read = match self.object(name) {
            None => self.disk.read(name),
            Some(object) => object.content()?.all(),
        };
        read.map_err(Error::io("read", name))
    }

    /// As [`Blobs::read`]; none where there is no such blob.
    pub fn read_if_there(&self, name: &str) -> Result<Option<Vec<u8>>> {
        match self.read(name) {
            Err(error) if error.is_gone() => Ok(None),
            read => read.map(Some),
        }
    }

    /// Reads a blob in parts from its first byte to its last; as far as the system can it is the disk that is asked,
    /// not what memory holds of it.
    pub fn read_from_disk(&self, name: &str, part: &mut dyn FnMut(&[u8])) -> Result<()> {
        match self.object(name) {
            None => self
                .disk
                .read_from_disk(name, part)
                .map_err(Error::io("read", name)),
            Some(object) => object.get(part),
        }
    }

    /// Names (without the directory) of the blobs in `directory`, sorted. Unfinished ones are not among them.
    pub fn list(&self, directory: &str) -> Result<Vec<String>> {
        if let Some(objects) = self.objects_of(directory) {
            return object::list(objects, directory).map_err(Error::io("list", directory));
        }
        let mut files = self.all_files(directory)?;
        files.retain(|file| !file.ends_with(TEMPORARY_SUFFIX));
        Ok(files)
    }

    /// Removes a blob. Content that is held stays readable. Whether the removal survives a power cut is not known.
    /// Fails when there is no such blob.
    pub fn remove(&self, name: &str) -> Result<()> {
        match self.object(name) {
            None => self.disk.remove(name).map_err(Error::io("remove", name)),
            Some(object) => object.remove(),
        }
    }

    /// Looks whether the object store has a sorted file, and puts the file from the node's copy where it is gone; true
    /// then. Nothing happens where the blob is on the local disk alone. Fails when the node has no copy
    /// ([`Error::is_gone`]), or a damaged one.
    pub fn ensure_object(&self, name: &str) -> Result<bool> {
        match self.object(name) {
            Some(object) => object.ensure(),
            None => Ok(false),
        }
    }

    /// Puts aside what has the name of a blob and is no file, such as a directory or a link to itself, so that the name
    /// is free for the blob. A file stays, readable or not: the disk may have failed for a moment only, and
    /// [`Blobs::put_over`] needs no free name then. `manifest` is the number of the newest manifest. True when it was
    /// so.
    pub fn clear_way(&self, manifest: u64, name: &str) -> Result<bool> {
        let on_disk = |name: &str| self.disk.content(name).map_err(Error::io("read", name));
        match on_disk(name) {
            Err(error) if error.is_damage() && !error.is_gone() => {}
            _ => return Ok(false),
        }
        let (directory, file) = name.rsplit_once('/').unwrap_or(("", name));
        if self.all_files(directory)?.iter().any(|there| there == file) {
            return Ok(false);
        }
        let is_free = |name: &String| on_disk(name).is_err_and(|error| error.is_gone());
        let aside = (0..ASIDE_NAMES_MAX)
            .map(|again| names::aside(manifest, directory, file, again))
            .find(is_free);
        let none = || Error::io("put aside", name)(io::Error::other("no name is free in `aside/`"));
        let aside = aside.ok_or_else(none)?;
        self.disk
            .create_directory(names::ASIDE)
            .and_then(|()| self.disk.replace(name, &aside))
            .map_err(Error::io("put aside", name))?;
        for directory in ["", names::ASIDE, directory] {
            self.sync_on_disk(directory)?;
        }
        Ok(true)
    }

    /// Removes what was begun in `directory` and not finished, by whichever process. How many files.
    pub fn remove_unfinished(&self, directory: &str) -> Result<usize> {
        let mut removed = 0;
        for file in self.all_files(directory)? {
            if file.ends_with(TEMPORARY_SUFFIX) {
                let path = match directory {
                    "" => file,
                    directory => format!("{directory}/{file}"),
                };
                self.disk
                    .remove(&path)
                    .map_err(Error::io("remove", &path))?;
                removed += 1;
            }
        }
        Ok(removed)
    }

    /// Makes every name in `directory` durable, also those that a process gave which died before its blob was.
    pub fn sync(&self, directory: &str) -> Result<()> {
        match self.objects_of(directory) {
            None => self.sync_on_disk(directory),
            Some(_) => Ok(()),
        }
    }

    /// The blob of that name, if it lies in the object store.
    fn object<'b>(&'b self, name: &'b str) -> Option<Object<'b>> {
        Object::of(self, self.objects()?, name)
    }

    /// The blob of that name, if it is a small one of the object store. Its bytes need no file on their way.
    fn small_object<'b>(&'b self, name: &'b str) -> Option<Object<'b>> {
        self.object(name).filter(Object::is_small)
    }

    /// The object store, if there is one.
    pub(crate) fn objects(&self) -> Option<&dyn Objects> {
        self.objects.as_deref()
    }

    /// The object store, if the blobs of `directory` lie there.
    fn objects_of(&self, directory: &str) -> Option<&dyn Objects> {
        let objects = self.objects()?;
        names::is_shared(directory).then_some(objects)
    }

    fn sync_on_disk(&self, directory: &str) -> Result<()> {
        self.disk
            .sync_directory(directory)
            .map_err(Error::io("sync", directory))
    }

    /// Bytes free for this process.
    pub fn free_bytes(&self) -> io::Result<u64> {
        self.disk.free_bytes()
    }

    fn all_files(&self, directory: &str) -> Result<Vec<String>> {
        self.disk
            .list(directory)
            .map_err(Error::io("list", directory))
    }

    fn link(&self, from: &str, to: &str) -> Result<bool> {
        let is_free = self.disk.link(from, to).map_err(Error::io("name", to))?;
        if is_free {
            self.tell(to);
        }
        Ok(is_free)
    }

    fn tell(&self, name: &str) {
        if let Some(made) = &self.made {
            made(name);
        }
    }

    fn unnamed(&self, temporary: String) -> Result<Unnamed> {
        let file = self.disk.create(&temporary);
        let file = file.map_err(Error::io("create", &temporary))?;
        self.tell(&temporary);
        Ok(Unnamed::begun(self.clone(), temporary, file))
    }

    /// Writes all of a blob that has no name yet. Its temporary name is always the same, so that a try that failed
    /// leaves nothing behind the next one.
    fn written(&self, name: &str, bytes: &[u8]) -> Result<Unnamed> {
        let temporary = format!("{name}{TEMPORARY_SUFFIX}");
        let _ = self.disk.remove(&temporary);
        let mut unnamed = self.unnamed(temporary)?;
        for chunk in bytes.chunks(WRITE_BYTES) {
            unnamed.write(chunk)?;
        }
        Ok(unnamed)
    }

    /// As [`Blobs::written`], with the content of the blob `from`.
    fn written_from(&self, content: &Content, from: &str, name: &str) -> Result<Unnamed> {
        let mut unnamed = self.written(name, b"")?;
        let mut written = Ok(());
        let read = content.parts(&mut |part| {
            if written.is_ok() {
                written = unnamed.write(part);
            }
        });
        read.map_err(Error::io("read", from))?;
        written?;
        Ok(unnamed)
    }
}

impl fmt::Debug for Blobs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut tuple = f.debug_tuple("Blobs");
        tuple.field(&self.disk);
        if let Some(objects) = &self.objects {
            tuple.field(objects);
        }
        tuple.finish()
    }
}

/// The directory in which a name stands; `""` for the root.
fn directory_of(name: &str) -> &str {
    name.rsplit_once('/').map_or("", |(directory, _)| directory)
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    #[test]
    fn every_file_that_is_made_is_told_and_no_name_that_was_taken() {
        let directory = tempfile::tempdir().unwrap();
        let blobs = Blobs::local(directory.path()).unwrap();
        blobs.prepare().unwrap();
        blobs.put("runs/taken", b"by another").unwrap();
        let told = Arc::new(Mutex::new(Vec::new()));
        let telling = {
            let told = Arc::clone(&told);
            blobs.telling(move |name| told.lock().unwrap().push(name.to_owned()))
        };
        assert!(!telling.put("runs/taken", b"the same").unwrap());
        assert!(telling.put("runs/new", b"text").unwrap());
        assert!(telling.copy("runs/new", "archive/second").unwrap());
        assert!(!telling.copy("runs/new", "runs/taken").unwrap());
        let begun = telling.begin("archive/begun").unwrap();
        let begun = begun.temporary_name().to_owned();
        let told = told.lock().unwrap();
        assert_eq!(
            *told,
            [
                "runs/taken.tmp",
                "runs/new.tmp",
                "runs/new",
                "archive/second",
                &begun
            ]
        );
    }

    #[test]
    fn nothing_is_put_aside_where_aside_is_no_directory() {
        let directory = tempfile::tempdir().unwrap();
        let blobs = Blobs::local(directory.path()).unwrap();
        blobs.prepare().unwrap();
        std::fs::create_dir(directory.path().join("runs/a")).unwrap();
        std::fs::write(directory.path().join("aside"), "").unwrap();
        let refused = blobs.clear_way(1, "runs/a").unwrap_err().to_string();
        assert!(refused.contains("aside"), "{refused}");
    }
}
