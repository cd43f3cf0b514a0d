//! A disk in memory that forgets what was not synced, and fails on demand.

use std::collections::BTreeMap;
use std::io::{self, ErrorKind};
use std::sync::{Arc, Mutex, MutexGuard};

use tallyring_archive::{Content, Disk, DiskFile};

/// Bytes that a crash keeps or loses as a whole; small, so that headers tear too.
const SECTOR_BYTES: usize = 16;

#[derive(Debug, Clone, Default)]
pub(super) struct MemoryDisk(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    files: Vec<File>,
    names: BTreeMap<String, usize>,
    durable_names: BTreeMap<String, usize>,
    /// Changes of names since the last sync of their directory.
    renamed: Vec<(String, Option<usize>)>,
    /// Bytes by which files may still grow.
    space: Option<u64>,
    /// Number of changes that still succeed.
    fuse: Option<u64>,
    fail_write: Option<ErrorKind>,
    fail_sync: bool,
}

#[derive(Debug, Default)]
struct File {
    now: Vec<u8>,
    durable: Vec<u8>,
    /// Writes since the last sync.
    written: Vec<(usize, Vec<u8>)>,
}

/// A small deterministic source of choices.
pub(super) struct Choices(pub u64);

impl Choices {
    pub(super) fn flip(&mut self) -> bool {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        self.0 >> 63 == 1
    }
}

impl MemoryDisk {
    pub(super) fn bytes(&self, name: &str) -> Vec<u8> {
        self.read(name).expect("the file is there").to_vec()
    }

    /// Replaces or adds a file, durably.
    pub(super) fn set(&self, name: &str, bytes: Vec<u8>) {
        let mut state = self.state();
        let file = File {
            now: bytes.clone(),
            durable: bytes,
            written: Vec::new(),
        };
        state.files.push(file);
        let index = state.files.len() - 1;
        state.names.insert(name.to_owned(), index);
        state.durable_names.insert(name.to_owned(), index);
    }

    /// Turns the power off and on: any part of the unsynced changes is kept.
    pub(super) fn crash(&self, choices: &mut Choices) {
        let mut state = self.state();
        for file in &mut state.files {
            for (offset, bytes) in std::mem::take(&mut file.written) {
                for (at, piece) in sectors(offset, &bytes) {
                    if choices.flip() {
                        overwrite(&mut file.durable, at, piece);
                    }
                }
            }
            file.now = file.durable.clone();
        }
        for (name, index) in std::mem::take(&mut state.renamed) {
            if choices.flip() {
                apply_name(&mut state.durable_names, &name, index);
            }
        }
        state.names = state.durable_names.clone();
        drop(state);
        self.heal();
    }

    /// Ends all failures.
    pub(super) fn heal(&self) {
        let mut state = self.state();
        (state.space, state.fuse, state.fail_write, state.fail_sync) = (None, None, None, false);
    }

    /// Lets files grow by so many bytes in all, or freely.
    pub(super) fn limit_space(&self, bytes: Option<u64>) {
        self.state().space = bytes;
    }

    /// Makes every change fail after so many more, until the crash.
    pub(super) fn fail_after(&self, changes: u64) {
        self.state().fuse = Some(changes);
    }

    /// Makes the next write stop half-way.
    pub(super) fn fail_next_write(&self, kind: ErrorKind) {
        self.state().fail_write = Some(kind);
    }

    pub(super) fn fail_next_sync(&self) {
        self.state().fail_sync = true;
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0
            .lock()
            .expect("no test panics while it holds the disk")
    }
}

impl State {
    /// Fails if the disk is dead by now.
    fn change(&mut self) -> io::Result<()> {
        match &mut self.fuse {
            Some(0) => Err(io::Error::other("the disk is gone")),
            Some(left) => {
                *left -= 1;
                Ok(())
            }
            None => Ok(()),
        }
    }

    fn index(&self, name: &str) -> io::Result<usize> {
        self.names
            .get(name)
            .copied()
            .ok_or_else(|| ErrorKind::NotFound.into())
    }

    fn rename(&mut self, name: &str, index: Option<usize>) {
        apply_name(&mut self.names, name, index);
        self.renamed.push((name.to_owned(), index));
    }

    /// How many of the bytes are written, and the result for the rest.
    fn admit(&mut self, index: usize, offset: usize, bytes: usize) -> (usize, io::Result<()>) {
        if let Some(kind) = self.fail_write.take() {
            return (bytes / 2, Err(kind.into()));
        }
        if let Err(error) = self.change() {
            return (bytes / 2, Err(error));
        }
        let len = self.files[index].now.len();
        let growth = (offset + bytes).saturating_sub(len) as u64;
        match &mut self.space {
            Some(space) if growth > *space => {
                let written = bytes - (growth - *space) as usize;
                *space = 0;
                (written, Err(ErrorKind::StorageFull.into()))
            }
            Some(space) => {
                *space -= growth;
                (bytes, Ok(()))
            }
            None => (bytes, Ok(())),
        }
    }
}

impl Disk for MemoryDisk {
    fn create(&self, name: &str) -> io::Result<Box<dyn DiskFile>> {
        let mut state = self.state();
        state.change()?;
        if state.names.contains_key(name) {
            return Err(ErrorKind::AlreadyExists.into());
        }
        state.files.push(File::default());
        let index = state.files.len() - 1;
        state.rename(name, Some(index));
        Ok(Box::new(MemoryFile {
            disk: self.clone(),
            index,
        }))
    }

    fn open(&self, name: &str) -> io::Result<Box<dyn DiskFile>> {
        let index = self.state().index(name)?;
        Ok(Box::new(MemoryFile {
            disk: self.clone(),
            index,
        }))
    }

    fn content(&self, name: &str) -> io::Result<Content> {
        let state = self.state();
        Ok(Content::new(state.files[state.index(name)?].now.clone()))
    }

    fn link(&self, from: &str, to: &str) -> io::Result<bool> {
        let mut state = self.state();
        state.change()?;
        let index = state.index(from)?;
        if state.names.contains_key(to) {
            return Ok(false);
        }
        state.rename(to, Some(index));
        Ok(true)
    }

    fn replace(&self, from: &str, to: &str) -> io::Result<()> {
        let mut state = self.state();
        state.change()?;
        let index = state.index(from)?;
        state.rename(to, Some(index));
        state.rename(from, None);
        Ok(())
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        let mut state = self.state();
        state.change()?;
        state.index(name)?;
        state.rename(name, None);
        Ok(())
    }

    fn list(&self, directory: &str) -> io::Result<Vec<String>> {
        let state = self.state();
        let inside = state
            .names
            .keys()
            .filter_map(|name| name.strip_prefix(directory));
        Ok(inside
            .filter_map(|name| name.strip_prefix('/'))
            .map(str::to_owned)
            .collect())
    }

    fn create_directory(&self, _directory: &str) -> io::Result<()> {
        Ok(())
    }

    fn sync_directory(&self, directory: &str) -> io::Result<()> {
        let mut state = self.state();
        state.change()?;
        if std::mem::take(&mut state.fail_sync) {
            return Err(io::Error::other("sync failed"));
        }
        for (name, index) in std::mem::take(&mut state.renamed) {
            if name.rsplit_once('/').map_or("", |(parent, _)| parent) == directory {
                apply_name(&mut state.durable_names, &name, index);
            } else {
                state.renamed.push((name, index));
            }
        }
        Ok(())
    }

    fn free_bytes(&self) -> io::Result<u64> {
        Ok(self.state().space.unwrap_or(u64::MAX))
    }
}

struct MemoryFile {
    disk: MemoryDisk,
    index: usize,
}

impl DiskFile for MemoryFile {
    fn write_at(&mut self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        let mut state = self.disk.state();
        let offset = offset as usize;
        let (written, result) = state.admit(self.index, offset, bytes.len());
        let file = &mut state.files[self.index];
        overwrite(&mut file.now, offset, &bytes[..written]);
        file.written.push((offset, bytes[..written].to_vec()));
        result
    }

    fn sync(&mut self) -> io::Result<()> {
        let mut state = self.disk.state();
        state.change()?;
        if std::mem::take(&mut state.fail_sync) {
            return Err(io::Error::other("sync failed"));
        }
        let file = &mut state.files[self.index];
        file.durable.clone_from(&file.now);
        file.written.clear();
        Ok(())
    }
}

fn sectors(offset: usize, bytes: &[u8]) -> impl Iterator<Item = (usize, &[u8])> {
    let first = (SECTOR_BYTES - offset % SECTOR_BYTES).min(bytes.len());
    let (head, rest) = bytes.split_at(first);
    let rest = rest.chunks(SECTOR_BYTES).enumerate();
    std::iter::once((offset, head))
        .chain(rest.map(move |(index, piece)| (offset + first + index * SECTOR_BYTES, piece)))
}

fn overwrite(content: &mut Vec<u8>, offset: usize, bytes: &[u8]) {
    if bytes.is_empty() {
        return;
    }
    content.resize(content.len().max(offset + bytes.len()), 0);
    content[offset..offset + bytes.len()].copy_from_slice(bytes);
}

fn apply_name(names: &mut BTreeMap<String, usize>, name: &str, index: Option<usize>) {
    match index {
        Some(index) => names.insert(name.to_owned(), index),
        None => names.remove(name),
    };
}
