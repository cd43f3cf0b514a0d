//! The archive as other crates see it: the file format, damage, merges, reads and verification.
//!
//! One test binary, a module a subject. Runs are written to memory: what a disk does under faults is
//! the simulation's subject.
#![allow(clippy::unwrap_used, reason = "a test stops at what it did not expect")]

mod damage;
mod format;
mod golden;
mod laws;
mod long_totals;
mod model;
mod objects;
mod parts;
mod reads;
mod resharding;
mod signs;
mod summaries;
mod sums;
mod verify;

use std::collections::BTreeMap;
use std::io;
use std::ops::{ControlFlow, Deref};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use tallyring_archive::{
    Blobs, BlockCache, Content, Disk, DiskFile, Error, Origin, Partition, Run, RunEntry, RunSpec,
    RunWriter, merge,
};

/// A line: key and payload.
pub type Line = (Vec<u8>, Vec<u8>);

/// Code of the error of a disk that fails.
const EIO: i32 = 5;

/// Blobs in memory.
pub struct MemoryDisk {
    files: Files,
    blobs: Blobs,
}

/// Files by name, whether opening one to read it fails, and one that another process removes once it was listed.
#[derive(Debug, Clone, Default)]
struct Files(
    Arc<Mutex<BTreeMap<String, Vec<u8>>>>,
    Arc<AtomicBool>,
    Arc<Mutex<Option<String>>>,
);

struct MemoryFile {
    files: Files,
    name: String,
}

impl MemoryDisk {
    /// Makes a file, or replaces it: what the code under test must never do.
    pub fn put(&self, name: &str, bytes: Vec<u8>) {
        self.files.put(name, bytes);
    }

    /// Says whether opening a file to read it fails as on a disk with faults.
    pub fn set_failing(&self, fails: bool) {
        self.files.1.store(fails, Ordering::Relaxed);
    }
}

impl Default for MemoryDisk {
    fn default() -> Self {
        let files = Files::default();
        let blobs = Blobs::new(Arc::new(files.clone()));
        Self { files, blobs }
    }
}

impl Deref for MemoryDisk {
    type Target = Blobs;

    fn deref(&self) -> &Blobs {
        &self.blobs
    }
}

impl Files {
    fn put(&self, name: &str, bytes: Vec<u8>) {
        self.0.lock().unwrap().insert(name.to_owned(), bytes);
    }

    fn bytes(&self, name: &str) -> io::Result<Vec<u8>> {
        let found = self.0.lock().unwrap().get(name).cloned();
        found.ok_or_else(|| io::Error::from(io::ErrorKind::NotFound))
    }
}

impl Disk for Files {
    fn create(&self, name: &str) -> io::Result<Box<dyn DiskFile>> {
        if self.0.lock().unwrap().contains_key(name) {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        self.put(name, Vec::new());
        self.open(name)
    }

    fn open(&self, name: &str) -> io::Result<Box<dyn DiskFile>> {
        Ok(Box::new(MemoryFile {
            files: self.clone(),
            name: name.to_owned(),
        }))
    }

    fn content(&self, name: &str) -> io::Result<Content> {
        match self.1.load(Ordering::Relaxed) {
            true => Err(io::Error::from_raw_os_error(EIO)),
            false => self.bytes(name).map(Content::new),
        }
    }

    fn link(&self, from: &str, to: &str) -> io::Result<bool> {
        let bytes = self.bytes(from)?;
        if self.0.lock().unwrap().contains_key(to) {
            return Ok(false);
        }
        self.put(to, bytes);
        Ok(true)
    }

    fn replace(&self, from: &str, to: &str) -> io::Result<()> {
        self.put(to, self.bytes(from)?);
        self.remove(from)
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        let removed = self.0.lock().unwrap().remove(name);
        let gone = || io::ErrorKind::NotFound.into();
        removed.map(drop).ok_or_else(gone)
    }

    fn list(&self, directory: &str) -> io::Result<Vec<String>> {
        let mut files = self.0.lock().unwrap();
        let names = files.keys().filter_map(|name| name.rsplit_once('/'));
        let listed = names
            .filter(|(parent, _)| *parent == directory)
            .map(|(_, file)| file.to_owned())
            .collect();
        if let Some(name) = self.2.lock().unwrap().take() {
            files.remove(&name);
        }
        Ok(listed)
    }

    fn create_directory(&self, _: &str) -> io::Result<()> {
        Ok(())
    }

    fn sync_directory(&self, _: &str) -> io::Result<()> {
        Ok(())
    }

    fn free_bytes(&self) -> io::Result<u64> {
        Ok(u64::MAX)
    }
}

impl DiskFile for MemoryFile {
    fn write_at(&mut self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        let mut files = self.files.0.lock().unwrap();
        let file = files.get_mut(&self.name).unwrap();
        let start = usize::try_from(offset).unwrap();
        file.resize(file.len().max(start + bytes.len()), 0);
        file[start..start + bytes.len()].copy_from_slice(bytes);
        Ok(())
    }

    fn sync(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Where the tests' runs go: one shard of `partition`.
pub fn spec(partition: &str, shard: u16, shards: u16) -> RunSpec {
    RunSpec {
        origin: "export day-2012-03-16".parse::<Origin>().unwrap(),
        partition: partition.parse::<Partition>().unwrap(),
        shard,
        shards,
        level: 3,
    }
}

/// Writes lines, which must be sorted, as a run.
pub fn write(disk: &Blobs, spec: RunSpec, lines: &[Line]) -> Result<Option<RunEntry>, Error> {
    let mut writer = RunWriter::create(disk, spec)?;
    for (key, payload) in lines {
        writer.push(key, payload)?;
    }
    writer.finish()
}

/// Writes lines, of which there must be some, as the only shard of April 2012.
pub fn write_april(disk: &Blobs, lines: &[Line]) -> RunEntry {
    write(disk, spec("2012-04", 0, 1), lines).unwrap().unwrap()
}

/// Merges runs into one shard.
pub fn merge_runs(
    disk: &Blobs,
    inputs: &[RunEntry],
    spec: RunSpec,
) -> Result<Option<RunEntry>, Error> {
    let inputs: Result<Vec<Arc<Run>>, Error> = inputs
        .iter()
        .map(|entry| Run::open(disk, &entry.name))
        .collect();
    merge::merge(
        &inputs?,
        RunWriter::create(disk, spec)?,
        merge::Horizon::ALL,
    )
}

/// All lines of a run, read one after another.
pub fn read_all(disk: &Blobs, name: &str) -> Result<Vec<Line>, Error> {
    let mut cursor = Run::open(disk, name)?.cursor();
    let mut lines = Vec::new();
    while cursor.advance()? {
        let (key, payload) = cursor.line()?.unwrap();
        lines.push((key.to_vec(), payload.to_vec()));
    }
    assert!(!cursor.advance()?, "an end is an end");
    assert!(cursor.line()?.is_none(), "there is no line at the end");
    Ok(lines)
}

/// At most `count` lines from `from` on, read through the block index.
pub fn read_from(
    run: &Run,
    cache: &BlockCache,
    from: &[u8],
    count: usize,
) -> Result<Vec<Line>, Error> {
    let mut lines = Vec::new();
    if count == 0 {
        return Ok(lines);
    }
    run.visit_from(cache, from, &mut |key, payload| {
        lines.push((key.to_vec(), payload.to_vec()));
        if lines.len() == count {
            ControlFlow::Break(())
        } else {
            ControlFlow::Continue(())
        }
    })?;
    Ok(lines)
}

/// Lines from CSV text.
pub fn lines(text: &str) -> Vec<Line> {
    text.lines()
        .map(|line| {
            let (key, payload) = line.split_once(',').unwrap();
            (key.into(), payload.into())
        })
        .collect()
}

/// Lines as CSV text, which is what a run holds.
pub fn csv(lines: &[Line]) -> Vec<u8> {
    let mut text = Vec::new();
    for (key, payload) in lines {
        text.extend_from_slice(&[key, &b","[..], payload, b"\n"].concat());
    }
    text
}
