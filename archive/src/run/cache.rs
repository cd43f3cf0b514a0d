//! Blocks that are kept decoded, so that a read of a hot key reads no file; and what was found in blocks that may be
//! gone since: sums of keys that rankings ask for again and again, and texts behind hashes.

use std::collections::BTreeSet;
use std::mem;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use quick_cache::Weighter;
use quick_cache::sync::Cache;

use crate::error::{Error, Result};
use crate::run::block::IndexedBlock;

/// The part of the budget that sums take, and texts as much again: one byte in so many.
const FOUND_PART: u64 = 32;
/// Memory of a sum or a text in its table, besides the bytes of its name and of the text.
const FOUND_BYTES: u64 = 96;

/// Decoded blocks of all runs that reads used lately, and what was found in runs, within a budget of bytes.
pub struct BlockCache {
    blocks: Cache<(u64, u32), Arc<IndexedBlock>, BlockWeight>,
    pub(super) sums: Found<u64>,
    pub(super) texts: Found<Option<Box<str>>>,
    decoded: AtomicU64,
    /// Names of runs in which reads met damage.
    damaged: Mutex<BTreeSet<String>>,
}

#[derive(Clone)]
struct BlockWeight;

impl Weighter<(u64, u32), Arc<IndexedBlock>> for BlockWeight {
    fn weight(&self, _: &(u64, u32), block: &Arc<IndexedBlock>) -> u64 {
        block.weight()
    }
}

/// Facts that were found in runs, by a name that begins with the number of its run.
pub(super) struct Found<V>(Cache<Box<[u8]>, V, FoundWeight>);

#[derive(Clone)]
pub(super) struct FoundWeight;

impl Weighter<Box<[u8]>, u64> for FoundWeight {
    fn weight(&self, name: &Box<[u8]>, _: &u64) -> u64 {
        FOUND_BYTES + name.len() as u64
    }
}

impl Weighter<Box<[u8]>, Option<Box<str>>> for FoundWeight {
    fn weight(&self, name: &Box<[u8]>, text: &Option<Box<str>>) -> u64 {
        let text = text.as_ref().map_or(0, |text| text.len());
        FOUND_BYTES + (name.len() + text) as u64
    }
}

impl<V: Clone> Found<V>
where
    FoundWeight: Weighter<Box<[u8]>, V>,
{
    fn new(bytes: u64) -> Self {
        let about = items(bytes, 2 * FOUND_BYTES);
        Self(Cache::with_weighter(about, bytes, FoundWeight))
    }

    /// The fact of this name: as it was found before, or as `find` finds it.
    pub(super) fn get_or(&self, name: Vec<u8>, find: impl FnOnce() -> Result<V>) -> Result<V> {
        if let Some(found) = self.0.get(&name[..]) {
            return Ok(found);
        }
        let found = find()?;
        self.0.insert(name.into(), found.clone());
        Ok(found)
    }
}

/// The number of items that fill so many bytes, about.
fn items(bytes: u64, each: u64) -> usize {
    let number = usize::try_from(bytes / each).unwrap_or(usize::MAX);
    number.clamp(16, 1 << 20)
}

impl BlockCache {
    /// A cache of at most `bytes`, nearly all of them for decoded blocks.
    pub fn new(bytes: u64) -> Self {
        let of_found = bytes / FOUND_PART;
        let of_blocks = bytes - 2 * of_found;
        Self {
            blocks: Cache::with_weighter(items(bytes, 64 << 10), of_blocks, BlockWeight),
            sums: Found::new(of_found),
            texts: Found::new(of_found),
            decoded: AtomicU64::new(0),
            damaged: Mutex::default(),
        }
    }

    pub(super) fn get(&self, key: (u64, u32)) -> Option<Arc<IndexedBlock>> {
        self.blocks.get(&key)
    }

    /// Keeps a block that was read from a file.
    pub(super) fn insert(&self, key: (u64, u32), block: &Arc<IndexedBlock>) {
        self.decoded.fetch_add(1, Ordering::Relaxed);
        self.blocks.insert(key, Arc::clone(block));
    }

    /// Notes the file of an error that says that a file is damaged.
    pub fn note_damage(&self, error: &Error) {
        if let Error::Damaged { name, .. } = error {
            self.damaged().insert(name.clone());
        }
    }

    /// Names of the runs in which reads met damage since the last call.
    pub fn take_damaged(&self) -> BTreeSet<String> {
        mem::take(&mut *self.damaged())
    }

    fn damaged(&self) -> MutexGuard<'_, BTreeSet<String>> {
        self.damaged.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Blocks that reads had to read from files, because the cache did not hold them.
    pub fn decoded(&self) -> u64 {
        self.decoded.load(Ordering::Relaxed)
    }
}

impl std::fmt::Debug for BlockCache {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "BlockCache({} blocks, {} sums, {} texts, {} bytes)",
            self.blocks.len(),
            self.sums.0.len(),
            self.texts.0.len(),
            self.blocks.weight() + self.sums.0.weight() + self.texts.0.weight()
        )
    }
}
