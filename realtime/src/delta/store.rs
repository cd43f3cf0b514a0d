//! One delta store: memory in front of runs.

use std::sync::Arc;

use tallyring_archive::{Run, RunEntry, StoreEntry};
use tallyring_records::{Offset, StoreId};

use super::layers::Layers;
use super::memory::{Delta, Form};

/// A run and its entry in the manifest.
#[derive(Clone)]
pub(crate) struct OpenRun {
    /// Entry of the manifest.
    pub entry: RunEntry,
    /// The open file.
    pub run: Arc<Run>,
}

/// The counters of one day of the ring, or of one late epoch. A clone shares everything, and takes constant time.
#[derive(Clone)]
pub(crate) struct DeltaStore {
    /// The day, or the late epoch.
    pub id: StoreId,
    /// First offset that the delta store takes.
    pub opened: Offset,
    /// Offset from which on the delta store takes nothing more.
    pub cut: Option<Offset>,
    /// Everything before this offset is in `runs`.
    pub flushed: Offset,
    /// Layers of memory, which take increments.
    pub layers: Layers,
    /// Deltas taken from `layers` to be flushed, oldest first; they count until the manifest names their runs.
    pub frozen: Vec<Arc<Delta>>,
    /// Flushed runs.
    pub runs: Arc<[OpenRun]>,
}

impl DeltaStore {
    /// Creates an empty delta store that opens at `opened`.
    pub(crate) fn new(id: StoreId, opened: Offset, form: Form) -> Self {
        Self {
            id,
            opened,
            cut: None,
            flushed: opened,
            layers: Layers::new(form),
            frozen: Vec::new(),
            runs: Arc::default(),
        }
    }

    /// Creates a delta store from its entry in the manifest. `open` opens its runs.
    pub(crate) fn from_entry<E>(
        entry: &StoreEntry,
        form: Form,
        mut open: impl FnMut(&RunEntry) -> Result<OpenRun, E>,
    ) -> Result<Self, E> {
        Ok(Self {
            id: entry.id,
            opened: entry.opened,
            cut: entry.cut,
            flushed: entry.flushed,
            layers: Layers::new(form),
            frozen: Vec::new(),
            runs: entry.runs.iter().map(&mut open).collect::<Result<_, E>>()?,
        })
    }

    /// The entry in a manifest, with the runs that are flushed.
    pub(crate) fn entry(&self) -> StoreEntry {
        StoreEntry {
            id: self.id,
            opened: self.opened,
            cut: self.cut,
            flushed: self.flushed,
            runs: self.runs.iter().map(|run| run.entry.clone()).collect(),
        }
    }

    /// True when the delta store takes the record with this sequence number.
    pub(crate) fn takes(&self, sequence: u64) -> bool {
        self.opened.sequence <= sequence && self.cut.is_none_or(|cut| sequence < cut.sequence)
    }

    /// The deltas: all layers, and the frozen ones.
    pub(crate) fn deltas(&self) -> impl Iterator<Item = &Delta> {
        let all = self.layers.deltas().chain(&self.frozen);
        all.map(|delta| &**delta)
    }

    /// True when the delta store counts nothing at all.
    pub(crate) fn is_empty(&self) -> bool {
        self.runs.is_empty() && self.deltas().all(Delta::is_empty)
    }
}
