//! Parts of objects: an object store for a server whose disk does not have room for all files.
//!
//! A sorted file is read there in parts of [`PART_BYTES`], when somebody asks for them. The parts that were asked for
//! lately stay in the directory `parts/` of the server's disk, each as `parts/<last name of the object>.<number>`,
//! within a bound of bytes. Nothing there is durable, and nothing there counts: a part that is gone, too short, or
//! fails the checksum of what stands in it (`run/reader.rs`) is fetched again. A file that is read from its first byte
//! to its last, to prove or to copy it, comes from the object itself.
//!
//! Parts never take the last room of a disk: the bound is lower for as long as it has little, and what else is written
//! there goes first.
//!
//! Several processes may keep parts in one directory, each within its own bound: what one removes or writes anew is
//! fetched again by the others.

use std::collections::HashSet;
use std::fmt;
use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use hashbrown::DefaultHashBuilder;
use quick_cache::sync::{Cache, GuardResult};
use quick_cache::{Lifecycle, Weighter};

use crate::disk::{Content, Disk};
use crate::names;
use crate::objects::{ObjectInfo, Objects};
use crate::outage::Outage;

/// Bytes of a part; the last one of an object may have fewer.
const PART_BYTES: u64 = 1 << 20;

/// Bytes that a part takes at least: a file takes a block, a place in its directory, and one in memory.
const LEAST_BYTES: u64 = 64 << 10;

/// Bytes of a disk that parts leave free, at most: the log, what is flushed and what is uploaded need them more.
const LEFT_FREE: u64 = 1 << 30;

/// How long a reader waits for another one that fetches the same part.
const WAIT: Duration = Duration::from_secs(3);

/// The parts of objects that a disk keeps. A clone shares them.
///
/// The name of a sorted file's object tells its content, so object stores that have one key have equal bytes there: the
/// strands of a store keep their parts together, within one bound.
#[derive(Clone)]
pub struct PartCache(Arc<Kept>);

/// An object store, and the parts of its sorted files that were read lately.
///
/// All but [`Objects::parts`] is the object store's own.
pub struct ObjectParts {
    objects: Arc<dyn Objects>,
    kept: Arc<Kept>,
    /// True where only files of the archive are read in parts.
    is_of_archive: bool,
}

/// The parts that the disk has.
struct Kept {
    disk: Arc<dyn Disk>,
    /// The most bytes of parts.
    bytes_max: u64,
    outage: Outage,
    /// The bound now, which is lower where the disk has little room.
    room: AtomicU64,
    /// Bytes of each part.
    parts: Cache<Part, u32, PartBytes, DefaultHashBuilder, Removing>,
}

/// A part: the object's key, and the number of the part.
#[derive(Clone, PartialEq, Eq, Hash)]
struct Part {
    key: Arc<str>,
    number: u64,
}

#[derive(Clone)]
struct PartBytes;

impl Weighter<Part, u32> for PartBytes {
    fn weight(&self, _: &Part, bytes: &u32) -> u64 {
        u64::from(*bytes).max(LEAST_BYTES)
    }
}

/// Removes parts for which there is no room any more.
#[derive(Clone)]
struct Removing(Arc<dyn Disk>);

impl Lifecycle<Part, u32> for Removing {
    type RequestState = ();

    fn on_evict(&self, (): &mut (), part: Part, _: u32) {
        // A file that stays is found by the next start.
        let _ = self.0.remove(&part.name());
    }
}

impl Part {
    fn name(&self) -> String {
        let file = self.key.rsplit('/').next().unwrap_or_default();
        format!("{}/{file}.{}", names::PARTS, self.number)
    }

    /// The part that a file of the directory is.
    fn of_file(file: &str) -> Option<Self> {
        let (object, number) = file.rsplit_once('.')?;
        let key = format!("{}/{object}", names::OBJECTS);
        let part = Self {
            key: key.into(),
            number: number.parse().ok()?,
        };
        (names::is_object_key(&part.key) && part.name().ends_with(file)).then_some(part)
    }
}

impl PartCache {
    /// Keeps parts on `disk`, at most `bytes_max` bytes of them, and knows those that an earlier process left there.
    /// Other files of the directory `parts/` are removed. Fails where the directory cannot be made or listed.
    pub fn open(disk: Arc<dyn Disk>, bytes_max: u64) -> io::Result<Self> {
        disk.create_directory(names::PARTS)?;
        let items = usize::try_from(bytes_max / PART_BYTES).unwrap_or(usize::MAX);
        let parts = Cache::with(
            items.clamp(16, 1 << 24),
            bytes_max,
            PartBytes,
            DefaultHashBuilder::default(),
            Removing(Arc::clone(&disk)),
        );
        for file in disk.list(names::PARTS)? {
            let name = format!("{}/{file}", names::PARTS);
            let bytes = disk.content(&name).ok();
            let bytes = bytes.and_then(|content| u32::try_from(content.len()).ok());
            match Part::of_file(&file).zip(bytes) {
                Some((part, bytes)) => parts.insert(part, bytes),
                None => remove_if_there(&*disk, &name)?,
            }
        }
        let room = AtomicU64::new(bytes_max);
        Ok(Self(Arc::new(Kept {
            disk,
            bytes_max,
            outage: Outage::default(),
            room,
            parts,
        })))
    }

    /// Removes the parts of files that have none of these names. A file of them that is read all the same is fetched
    /// again.
    pub fn keep_only<'n>(&self, names: impl IntoIterator<Item = &'n str>) {
        let names = names.into_iter();
        let keys: HashSet<String> = names.filter_map(names::object_key).collect();
        let parts = self.0.parts.iter().map(|(part, _)| part);
        let others: Vec<Part> = parts.filter(|part| !keys.contains(&*part.key)).collect();
        others.iter().for_each(|part| self.0.forget(part));
    }

    /// An object store all of whose sorted files are read in parts, which are kept here.
    pub fn over(&self, objects: Arc<dyn Objects>) -> ObjectParts {
        ObjectParts {
            objects,
            kept: Arc::clone(&self.0),
            is_of_archive: false,
        }
    }

    /// As [`PartCache::over`], for a node that makes copies of what was flushed from memory: only the files that add up
    /// over the years ([`names::is_of_archive`]) are read in parts.
    pub fn over_archive(&self, objects: Arc<dyn Objects>) -> ObjectParts {
        ObjectParts {
            is_of_archive: true,
            ..self.over(objects)
        }
    }
}

impl ObjectParts {
    /// The parts, which other object stores may share.
    pub fn cache(&self) -> PartCache {
        PartCache(Arc::clone(&self.kept))
    }

    /// Whether the sorted file of this name is read in parts.
    pub(crate) fn has(&self, name: &str) -> bool {
        !self.is_of_archive || names::is_of_archive(name)
    }

    /// The content of the object of a sorted file. Fails as [`Objects::info`] does.
    pub(crate) fn content(&self, key: &str) -> io::Result<Content> {
        let info = self.kept.outage.ask(|| match self.objects.info(key) {
            // Only an answer with a body says that it is the bucket that is gone, not the object.
            Err(gone) if gone.kind() == io::ErrorKind::NotFound => {
                self.objects.get_part(key, 0, 1)?;
                self.objects.info(key)
            }
            info => info,
        })?;
        Ok(Content::of_object(PartedObject {
            objects: Arc::clone(&self.objects),
            kept: Arc::clone(&self.kept),
            key: key.into(),
            bytes: info.bytes,
            believes: true,
        }))
    }
}

impl Objects for ObjectParts {
    fn put_if_absent(&self, key: &str, bytes: &[u8]) -> io::Result<bool> {
        self.objects.put_if_absent(key, bytes)
    }

    fn put(&self, key: &str, content: &Content) -> io::Result<()> {
        self.objects.put(key, content)
    }

    fn get(&self, key: &str, part: &mut dyn FnMut(&[u8])) -> io::Result<()> {
        self.objects.get(key, part)
    }

    fn get_part(&self, key: &str, offset: u64, bytes: usize) -> io::Result<Vec<u8>> {
        self.objects.get_part(key, offset, bytes)
    }

    fn info(&self, key: &str) -> io::Result<ObjectInfo> {
        self.objects.info(key)
    }

    fn list(&self, directory: &str, after: &str) -> io::Result<Vec<(String, ObjectInfo)>> {
        self.objects.list(directory, after)
    }

    fn remove(&self, key: &str) -> io::Result<()> {
        self.objects.remove(key)
    }

    fn parts(&self) -> Option<&ObjectParts> {
        Some(self)
    }
}

impl fmt::Debug for ObjectParts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (kept, bytes) = (self.kept.parts.len(), self.kept.parts.weight());
        write!(
            f,
            "{:?}, of which {kept} parts ({bytes} bytes) are kept",
            self.objects
        )
    }
}

/// An object that is read in parts.
#[derive(Clone)]
pub(crate) struct PartedObject {
    objects: Arc<dyn Objects>,
    kept: Arc<Kept>,
    key: Arc<str>,
    bytes: u64,
    /// Whether kept parts are believed; those that are not are fetched again.
    believes: bool,
}

impl PartedObject {
    /// Length, bytes.
    pub(crate) fn len(&self) -> u64 {
        self.bytes
    }

    /// This object, without belief in kept parts.
    pub(crate) fn anew(&self) -> Self {
        Self {
            believes: false,
            ..self.clone()
        }
    }

    /// Reads the object itself from its first byte to its last.
    pub(crate) fn whole(&self, part: &mut dyn FnMut(&[u8])) -> io::Result<()> {
        self.objects.get(&self.key, part)
    }

    /// The `bytes` bytes from `offset` on, all of which the object has. Fails when the object store fails, or has fewer
    /// bytes.
    pub(crate) fn part(&self, offset: u64, bytes: usize) -> io::Result<Vec<u8>> {
        let end = offset + bytes as u64;
        let mut read = Vec::with_capacity(bytes);
        while read.len() < bytes {
            let at = offset + read.len() as u64;
            let number = at / PART_BYTES;
            let start = number * PART_BYTES;
            let within = (at - start) as usize..(end.min(start + PART_BYTES) - start) as usize;
            if !self.believes {
                self.kept.forget(&self.numbered(number));
            }
            read.extend(self.within(number, within)?);
        }
        Ok(read)
    }

    /// Some bytes of a part. One of several readers that want a part at once fetches it for all.
    fn within(&self, number: u64, within: Range<usize>) -> io::Result<Vec<u8>> {
        let part = self.numbered(number);
        for _ in 0..2 {
            match self.kept.parts.get_value_or_guard(&part, Some(WAIT)) {
                GuardResult::Value(_) => match self.kept.read(&part, &within) {
                    Ok(kept) => return Ok(kept),
                    // It made room for others a moment ago, or a power cut left it too short.
                    Err(_) => self.kept.forget(&part),
                },
                GuardResult::Guard(guard) => {
                    let whole = self.fetch(number)?;
                    // A disk that takes nothing costs only time.
                    if self.kept.keep(&part, &whole).is_ok() {
                        let _ = guard.insert(whole.len() as u32);
                    }
                    return Ok(whole[within].to_vec());
                }
                // The object store keeps another reader waiting.
                GuardResult::Timeout => break,
            }
        }
        Ok(self.fetch(number)?[within].to_vec())
    }

    /// Fetches a whole part.
    fn fetch(&self, number: u64) -> io::Result<Vec<u8>> {
        let start = number * PART_BYTES;
        let bytes = (self.bytes - start).min(PART_BYTES) as usize;
        let fetch = || self.objects.get_part(&self.key, start, bytes);
        let fetched = self.kept.outage.ask(fetch)?;
        match fetched.len() == bytes {
            true => Ok(fetched),
            false => Err(io::ErrorKind::UnexpectedEof.into()),
        }
    }

    fn numbered(&self, number: u64) -> Part {
        Part {
            key: Arc::clone(&self.key),
            number,
        }
    }
}

/// Removes a file, unless another process did so since the list.
fn remove_if_there(disk: &dyn Disk, name: &str) -> io::Result<()> {
    match disk.remove(name) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        removed => removed,
    }
}

impl Kept {
    fn read(&self, part: &Part, within: &Range<usize>) -> io::Result<Vec<u8>> {
        let content = self.disk.content(&part.name())?;
        content.part(within.start as u64, within.len())
    }

    fn forget(&self, part: &Part) {
        // A part that is being fetched is none yet.
        if self.parts.remove_if(part, |_| true).is_some() {
            let _ = self.disk.remove(&part.name());
        }
    }

    /// Lowers the bound where the disk has little room, so that new parts take the place of others, and lifts it again.
    fn fit(&self) {
        let free = self.disk.free_bytes().unwrap_or(u64::MAX);
        let left_free = LEFT_FREE.min(self.bytes_max);
        let room = self.parts.weight().saturating_add(free);
        let room = room.saturating_sub(left_free).min(self.bytes_max);
        // In steps, because each new bound looks at all that is kept.
        let step = (self.bytes_max / 64).max(1);
        let room = room - room % step;
        if self.room.swap(room, Ordering::Relaxed) != room {
            self.parts.set_capacity(room);
        }
    }

    fn keep(&self, part: &Part, bytes: &[u8]) -> io::Result<()> {
        self.fit();
        let name = part.name();
        // A reader that failed, or an earlier process, may have left some of it.
        let _ = self.disk.remove(&name);
        let kept = self
            .disk
            .create(&name)
            .and_then(|mut file| file.write_at(0, bytes));
        if kept.is_err() {
            let _ = self.disk.remove(&name);
        }
        kept
    }
}
