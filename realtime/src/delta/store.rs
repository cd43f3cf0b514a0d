//! One delta store: memory in front of runs.

use std::sync::Arc;

use tallyring_archive::{Run, RunEntry, StoreEntry};
use tallyring_records::{Offset, StoreId};

use super::layers::Layers;
use super::memory::Delta;

/// A run with what the manifest says of it.
#[derive(Clone)]
pub struct OpenRun {
    /// The manifest's entry.
    pub entry: RunEntry,
    /// The open file.
    pub run: Arc<Run>,
}

/// What one store of the ring, or one late epoch, counts. A clone shares everything, and takes a time that does not depend on
/// how much is counted.
#[derive(Clone)]
pub struct DeltaStore {
    /// Day or late epoch.
    pub id: StoreId,
    /// First offset it takes.
    pub opened: Offset,
    /// Offset from which it takes nothing more.
    pub cut: Option<Offset>,
    /// Everything before this offset is in `runs`.
    pub flushed: Offset,
    /// Take increments.
    pub layers: Layers,
    /// Taken from `layers` to be flushed, oldest first; they count until the manifest names their runs.
    pub frozen: Vec<Arc<Delta>>,
    /// Flushed runs.
    pub runs: Arc<[OpenRun]>,
}

impl DeltaStore {
    /// An empty store that opens at `opened`.
    pub fn new(id: StoreId, opened: Offset, shards: u16) -> Self {
        Self {
            id,
            opened,
            cut: None,
            flushed: opened,
            layers: Layers::new(shards),
            frozen: Vec::new(),
            runs: Arc::default(),
        }
    }

    /// A store as the manifest describes it, its runs opened by `open`.
    ///
    /// # Errors
    /// When a run cannot be opened.
    pub fn from_entry<E>(
        entry: &StoreEntry,
        shards: u16,
        mut open: impl FnMut(&RunEntry) -> Result<OpenRun, E>,
    ) -> Result<Self, E> {
        Ok(Self {
            id: entry.id,
            opened: entry.opened,
            cut: entry.cut,
            flushed: entry.flushed,
            layers: Layers::new(shards),
            frozen: Vec::new(),
            runs: entry.runs.iter().map(&mut open).collect::<Result<_, E>>()?,
        })
    }

    /// The manifest's entry for it as it is flushed now.
    pub fn entry(&self) -> StoreEntry {
        StoreEntry {
            id: self.id,
            opened: self.opened,
            cut: self.cut,
            flushed: self.flushed,
            runs: self.runs.iter().map(|run| run.entry.clone()).collect(),
        }
    }

    /// True while it takes the record with this sequence.
    pub fn takes(&self, sequence: u64) -> bool {
        self.opened.sequence <= sequence && self.cut.is_none_or(|cut| sequence < cut.sequence)
    }

    /// Memory deltas: all layers, and what is being flushed.
    pub fn deltas(&self) -> impl Iterator<Item = &Delta> {
        let all = self.layers.deltas().chain(&self.frozen);
        all.map(|delta| &**delta)
    }

    /// True when it counts nothing at all.
    pub fn is_empty(&self) -> bool {
        self.runs.is_empty() && self.deltas().all(Delta::is_empty)
    }
}
