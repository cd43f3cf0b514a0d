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

/// A delta that takes nothing more.
#[derive(Clone)]
struct FrozenDelta {
    /// Sequence number before which everything of the delta is: runs that hold everything before it hold the delta.
    until: u64,
    delta: Arc<Delta>,
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
    /// Deltas taken from `layers` to be flushed, oldest first; they count until a manifest names their runs.
    frozen: Vec<FrozenDelta>,
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
        let frozen = self.frozen.iter().map(|frozen| &frozen.delta);
        let all = self.layers.deltas().chain(frozen);
        all.map(|delta| &**delta)
    }

    /// Freezes the layers, which hold records before the sequence number `until`. Returns all frozen deltas.
    pub(crate) fn freeze(&mut self, until: u64) -> Vec<Arc<Delta>> {
        let taken = self.layers.take();
        let frozen = taken.into_iter().map(|delta| FrozenDelta { until, delta });
        self.frozen.extend(frozen);
        self.frozen
            .iter()
            .map(|frozen| Arc::clone(&frozen.delta))
            .collect()
    }

    /// Takes a delta that no layer had, as the oldest frozen one. It holds records before the sequence number `until`.
    pub(crate) fn put_frozen(&mut self, delta: Arc<Delta>, until: u64) {
        self.frozen.insert(0, FrozenDelta { until, delta });
    }

    /// Lets runs that hold everything before `until` count instead of what was frozen by then. Memory that was frozen
    /// since goes on counting: another writer of the log may have written these runs while more was frozen here.
    pub(crate) fn flushed(&mut self, runs: Arc<[OpenRun]>, until: Offset) {
        self.frozen.retain(|frozen| frozen.until > until.sequence);
        self.runs = runs;
    }

    /// True when the delta store counts nothing at all.
    pub(crate) fn is_empty(&self) -> bool {
        self.runs.is_empty() && self.deltas().all(Delta::is_empty)
    }
}

#[cfg(test)]
mod tests {
    use tallyring_records::{Day, Increment, LongKeys, Schema};

    use super::*;

    #[test]
    fn runs_end_the_memory_that_was_frozen_before_them_and_no_other() {
        let form = Form {
            shards: 2,
            breakdowns: false,
        };
        let (keys, schema) = (LongKeys::new([7; 32]), Schema::default_clicks());
        let mut store = DeltaStore::new(StoreId::Day(Day::of(0)), Offset::default(), form);
        let at = |sequence| Offset { epoch: 1, sequence };
        let count = |store: &mut DeltaStore| {
            let click = Increment::new(0, 1, [("l", "a".to_owned())]);
            store.layers.open().add(&keys, &schema, &[&click]);
        };
        count(&mut store);
        assert_eq!(store.freeze(1).len(), 1);
        // That flush failed, and the next one has its memory, too.
        count(&mut store);
        assert_eq!(store.freeze(2).len(), 2);
        count(&mut store);
        let deltas = |store: &DeltaStore| store.deltas().filter(|delta| !delta.is_empty()).count();
        assert_eq!(deltas(&store), 3);
        // A manifest of the first flush comes all the same, from another writer.
        store.flushed(Arc::default(), at(1));
        assert_eq!(deltas(&store), 2);
        store.flushed(Arc::default(), at(2));
        assert_eq!(deltas(&store), 1, "what was not frozen counts");
    }
}
