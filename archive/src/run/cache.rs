//! Blocks that are kept decoded, so that a read of a hot key reads no file.

use std::collections::BTreeSet;
use std::mem;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use quick_cache::Weighter;
use quick_cache::sync::Cache;

use crate::error::Error;
use crate::run::block::IndexedBlock;

/// Decoded blocks of all runs that reads used lately, within a budget of bytes.
pub struct BlockCache {
    blocks: Cache<(u64, u32), Arc<IndexedBlock>, BlockWeight>,
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

impl BlockCache {
    /// A cache of at most `bytes` decoded bytes.
    pub fn new(bytes: u64) -> Self {
        let blocks = usize::try_from(bytes / (64 << 10))
            .unwrap_or(usize::MAX)
            .clamp(16, 1 << 20);
        Self {
            blocks: Cache::with_weighter(blocks, bytes, BlockWeight),
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
            "BlockCache({} blocks, {} bytes)",
            self.blocks.len(),
            self.blocks.weight()
        )
    }
}
