//! A disk in memory that loses power: what is not synced survives a crash in part, or not at all.
//!
//! A file has a durable content and a list of writes since, cut at sectors; a directory has durable
//! entries and a list of changes since. [`SimDisk::crash`] keeps what is durable and draws for each
//! of the others whether it survived, so writes tear, are reordered, and names go missing. Nothing
//! depends on time, addresses or hash order: the same calls and draws give the same disk.

mod inode;
mod rot;
mod tally;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::fmt;
use std::io::{self, ErrorKind};
use std::sync::{Arc, Mutex, MutexGuard};

use tallyring_archive::{Blobs, Content, Disk, DiskFile};

pub use inode::SECTOR_BYTES;
use inode::{Inode, survivors};
use tally::Call;
pub use tally::{Damage, Tally};

/// Bytes of the whole disk until [`SimDisk::set_free_bytes`] says otherwise.
const CAPACITY_BYTES: u64 = 1 << 40;

/// A disk for one process: after [`SimDisk::crash`] or [`SimDisk::kill`] it and its open files fail,
/// and the next process gets the disk that was returned. A clone is the same disk.
#[derive(Clone)]
pub struct SimDisk(Arc<Mutex<State>>);

struct State {
    /// False when the process that held the disk is dead.
    alive: bool,
    directories: BTreeMap<String, Directory>,
    inodes: u64,
    capacity: u64,
    /// Bytes of all files that have a name, each counted once.
    used: u64,
    calls: u64,
    faults: BTreeMap<u64, ErrorKind>,
    stop_at: Option<u64>,
    tally: Tally,
}

#[derive(Clone, Default)]
struct Directory {
    /// True once its parent was synced.
    is_durable: bool,
    current: BTreeMap<String, File>,
    durable: BTreeMap<String, File>,
    /// Changes of entries since the last sync, which make the current ones of the durable ones; none is a removal.
    changes: Vec<(String, Option<File>)>,
}

/// A file by any of its names. Locked only while the disk's state is.
type File = Arc<Mutex<Inode>>;

impl Default for SimDisk {
    fn default() -> Self {
        let root = Directory {
            is_durable: true,
            ..Directory::default()
        };
        let directories = BTreeMap::from([(String::new(), root)]);
        Self::of(directories, 0, CAPACITY_BYTES, Tally::default())
    }
}

impl fmt::Debug for SimDisk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SimDisk")
    }
}

impl SimDisk {
    /// The blobs on this disk.
    pub fn blobs(&self) -> Blobs {
        Blobs::new(Arc::new(self.clone()))
    }

    fn of(
        directories: BTreeMap<String, Directory>,
        inodes: u64,
        capacity: u64,
        tally: Tally,
    ) -> Self {
        let mut used = 0;
        for file in directories.values().flat_map(|d| d.current.values()) {
            let mut inode = lock(file);
            inode.names += 1;
            if inode.names == 1 {
                used += inode.current.len() as u64;
            }
        }
        Self(Arc::new(Mutex::new(State {
            alive: true,
            directories,
            inodes,
            capacity,
            used,
            calls: 0,
            faults: BTreeMap::new(),
            stop_at: None,
            tally,
        })))
    }

    /// Loses power, and returns the disk as the next process finds it. The draws of `rng` decide which unsynced writes
    /// survive.
    pub fn crash(&self, rng: &mut impl FnMut() -> u64) -> Self {
        let mut state = self.lock();
        state.alive = false;
        let mut tally = state.tally.clone();
        let mut kept: BTreeMap<String, Directory> = BTreeMap::new();
        let mut inodes: BTreeMap<u64, File> = BTreeMap::new();
        // A parent's path is a prefix, so it comes before its children.
        for (path, directory) in &state.directories {
            let has_parent = path.is_empty() || kept.contains_key(split(path).0);
            if !has_parent || !(directory.is_durable || rng() >> 63 == 1) {
                continue;
            }
            let mut entries = directory.durable.clone();
            let survivors = survivors(directory.changes.len(), rng);
            for ((name, file), survived) in directory.changes.iter().zip(survivors) {
                if survived {
                    set(&mut entries, name, file.clone());
                } else {
                    tally.add(Damage::LostName);
                }
            }
            for file in entries.values_mut() {
                let inode = lock(file).clone();
                let crashed = inodes
                    .entry(inode.number)
                    .or_insert_with(|| Arc::new(Mutex::new(inode.crash(rng, &mut tally))));
                *file = Arc::clone(crashed);
            }
            let directory = Directory {
                is_durable: true,
                current: entries.clone(),
                durable: entries,
                changes: Vec::new(),
            };
            kept.insert(path.clone(), directory);
        }
        Self::of(kept, state.inodes, state.capacity, tally)
    }

    /// The process dies and the system lives on: every write is there, synced or not.
    pub fn kill(&self) -> Self {
        let mut state = self.lock();
        state.alive = false;
        let directories = std::mem::take(&mut state.directories);
        for file in directories.values().flat_map(|d| d.current.values()) {
            lock(file).names = 0;
        }
        Self::of(
            directories,
            state.inodes,
            state.capacity,
            state.tally.clone(),
        )
    }

    /// Number of I/O calls so far, failed ones included.
    pub fn calls(&self) -> u64 {
        self.lock().calls
    }

    /// The faults that befell the disk so far, under earlier processes too.
    pub fn tally(&self) -> Tally {
        self.lock().tally.clone()
    }

    /// Lets the `n`th I/O call from now (1 is the next one) fail with `kind`. A write is then done
    /// in part; a sync makes nothing durable, and no later sync makes up for it.
    pub fn fail_nth_call(&self, n: u64, kind: ErrorKind) {
        let mut state = self.lock();
        let call = state.calls + n;
        state.faults.insert(call, kind);
    }

    /// Lets the `n`th I/O call from now and all after it fail without effect: what follows is
    /// [`SimDisk::crash`], which then happens at a place of the caller's choice.
    pub fn stop_at_nth_call(&self, n: u64) {
        let mut state = self.lock();
        state.stop_at = Some(state.calls + n);
    }

    /// Lets this many more bytes fit; what goes beyond fails with `StorageFull`.
    pub fn set_free_bytes(&self, bytes: u64) {
        let mut state = self.lock();
        state.capacity = state.used + bytes;
    }

    /// Every file with its size in bytes, by name.
    pub fn files(&self) -> Vec<(String, u64)> {
        let state = self.lock();
        let mut files = Vec::new();
        for (path, directory) in &state.directories {
            for (name, file) in &directory.current {
                files.push((join(path, name), lock(file).current.len() as u64));
            }
        }
        files.sort_unstable();
        files
    }

    /// The content of a file, without a call; none where there is no such file. Equal pointers are equal bytes, as long
    /// as both are held.
    pub fn bytes(&self, name: &str) -> Option<Arc<Vec<u8>>> {
        let file = self.lock().file(name).ok()?;
        let bytes = Arc::clone(&lock(&file).current);
        Some(bytes)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        lock(&self.0)
    }

    /// Counts a call: the state, and whether the call is to fail.
    fn call(&self, kind: Call) -> io::Result<(MutexGuard<'_, State>, io::Result<()>)> {
        let mut state = self.lock();
        if !state.alive {
            return Err(io::Error::other(
                "the process that opened this disk is dead",
            ));
        }
        state.calls += 1;
        let call = state.calls;
        if state.stop_at.is_some_and(|stop| stop <= call) {
            return Err(io::Error::other("the disk stopped at this call"));
        }
        let fault = match state.faults.remove(&call) {
            Some(error) => {
                state.tally.add(kind.failed(error));
                Err(io::Error::from(error))
            }
            None => Ok(()),
        };
        Ok((state, fault))
    }

    /// Counts a call that has no effect when it fails.
    fn whole_call(&self, kind: Call) -> io::Result<MutexGuard<'_, State>> {
        let (state, fault) = self.call(kind)?;
        fault.map(|()| state)
    }
}

impl Disk for SimDisk {
    fn create(&self, name: &str) -> io::Result<Box<dyn DiskFile>> {
        let mut state = self.whole_call(Call::Name)?;
        if state.file(name).is_ok() {
            return Err(ErrorKind::AlreadyExists.into());
        }
        state.inodes += 1;
        let file = Arc::new(Mutex::new(Inode::new(state.inodes)));
        state.change(name, Some(Arc::clone(&file)))?;
        Ok(Box::new(SimFile {
            disk: self.clone(),
            file,
        }))
    }

    fn open(&self, name: &str) -> io::Result<Box<dyn DiskFile>> {
        let file = self.whole_call(Call::Read)?.file(name)?;
        Ok(Box::new(SimFile {
            disk: self.clone(),
            file,
        }))
    }

    fn content(&self, name: &str) -> io::Result<Content> {
        let file = self.whole_call(Call::Read)?.file(name)?;
        let bytes = Arc::clone(&lock(&file).current);
        Ok(Content::new(Bytes(bytes)))
    }

    fn link(&self, from: &str, to: &str) -> io::Result<bool> {
        let mut state = self.whole_call(Call::Name)?;
        let file = state.file(from)?;
        if state.file(to).is_ok() {
            return Ok(false);
        }
        state.change(to, Some(file))?;
        Ok(true)
    }

    fn replace(&self, from: &str, to: &str) -> io::Result<()> {
        let mut state = self.whole_call(Call::Name)?;
        let file = state.file(from)?;
        state.change(to, Some(file))?;
        state.change(from, None)
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        let mut state = self.whole_call(Call::Name)?;
        state.file(name)?;
        state.change(name, None)
    }

    fn list(&self, directory: &str) -> io::Result<Vec<String>> {
        let state = self.whole_call(Call::Read)?;
        let directory = state.directories.get(directory);
        Ok(directory.map_or(Vec::new(), |directory| {
            directory.current.keys().cloned().collect()
        }))
    }

    fn create_directory(&self, directory: &str) -> io::Result<()> {
        let mut state = self.whole_call(Call::Name)?;
        let ends = directory.match_indices('/').map(|(at, _)| at);
        for end in ends.chain([directory.len()]) {
            let path = directory[..end].to_owned();
            state.directories.entry(path).or_default();
        }
        Ok(())
    }

    fn sync_directory(&self, directory: &str) -> io::Result<()> {
        let mut state = self.whole_call(Call::Sync)?;
        let synced = state.directory(directory)?;
        for (name, file) in synced.changes.drain(..) {
            set(&mut synced.durable, &name, file);
        }
        for (path, child) in &mut state.directories {
            child.is_durable |= !path.is_empty() && split(path).0 == directory;
        }
        Ok(())
    }

    fn free_bytes(&self) -> io::Result<u64> {
        let state = self.whole_call(Call::Read)?;
        Ok(state.capacity.saturating_sub(state.used))
    }
}

impl State {
    fn directory(&mut self, path: &str) -> io::Result<&mut Directory> {
        self.directories
            .get_mut(path)
            .ok_or_else(|| ErrorKind::NotFound.into())
    }

    fn file(&self, name: &str) -> io::Result<File> {
        let (path, name) = split(name);
        let directory = self.directories.get(path);
        let file = directory.and_then(|directory| directory.current.get(name));
        file.cloned().ok_or_else(|| ErrorKind::NotFound.into())
    }

    fn change(&mut self, name: &str, file: Option<File>) -> io::Result<()> {
        let (path, name) = split(name);
        if let Some(file) = &file {
            let mut inode = lock(file);
            inode.names += 1;
            if inode.names == 1 {
                self.used += inode.current.len() as u64;
            }
        }
        let directory = self.directory(path)?;
        let before = set(&mut directory.current, name, file.clone());
        directory.changes.push((name.to_owned(), file));
        if let Some(before) = before {
            let mut inode = lock(&before);
            inode.names -= 1;
            if inode.names == 0 {
                self.used -= inode.current.len() as u64;
            }
        }
        Ok(())
    }
}

struct SimFile {
    disk: SimDisk,
    file: File,
}

impl DiskFile for SimFile {
    fn write_at(&mut self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        let (mut state, mut result) = self.disk.call(Call::Write)?;
        let offset = usize::try_from(offset).map_err(io::Error::other)?;
        let free = state.capacity.saturating_sub(state.used);
        let mut inode = lock(&self.file);
        let room = (inode.current.len().max(offset) as u64).saturating_add(free);
        let room = usize::try_from(room)
            .unwrap_or(usize::MAX)
            .saturating_sub(offset);
        let mut written = bytes.len();
        if result.is_err() {
            written /= 2;
        }
        if room < written {
            written = room;
            state.tally.add(Damage::FullDisk);
            result = Err(ErrorKind::StorageFull.into());
        }
        let before = inode.current.len();
        inode.write(offset, &bytes[..written]);
        if inode.names > 0 {
            state.used += (inode.current.len() - before) as u64;
        }
        result
    }

    fn sync(&mut self) -> io::Result<()> {
        let (_state, result) = self.disk.call(Call::Sync)?;
        lock(&self.file).sync(result.is_ok());
        result
    }
}

struct Bytes(Arc<Vec<u8>>);

impl AsRef<[u8]> for Bytes {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

/// A seeded source of draws (SplitMix64).
pub fn random(mut seed: u64) -> impl FnMut() -> u64 {
    move || {
        seed = seed.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = (seed ^ (seed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }
}

/// Returns the file that had the name.
fn set(entries: &mut BTreeMap<String, File>, name: &str, file: Option<File>) -> Option<File> {
    match file {
        Some(file) => entries.insert(name.to_owned(), file),
        None => entries.remove(name),
    }
}

/// Directory and file name.
fn split(name: &str) -> (&str, &str) {
    name.rsplit_once('/').unwrap_or(("", name))
}

fn join(path: &str, name: &str) -> String {
    if path.is_empty() {
        name.to_owned()
    } else {
        format!("{path}/{name}")
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().expect("BUG: a call on the disk panicked")
}
