//! A view: everything that one request reads is of one state of the counts, within the budget of reads.

use std::io::{self, BufWriter, Write};
use std::sync::Arc;

use tallyring_archive::Run;
use tallyring_records::{Offset, Schema, StoreId, is_hash};

use super::Live;
use super::snapshot::Snapshot;
use crate::budget::Reading;
use crate::delta::DeltaStore;
use crate::error::Result;

/// Domain of [`LongKeys::identity_of`] for answers; that of the bodies of batches (`realtime/src/intake/mod.rs`).
const ANSWER_DOMAIN: u8 = 3;
/// Pieces of an answer that are hashed together.
const PIECE_BYTES: usize = 1 << 10;

/// One state of the counts, which never changes, and what a request that reads it holds of the budget of reads.
pub struct View<'s> {
    pub(super) live: &'s Live,
    pub(super) snapshot: Arc<Snapshot>,
    pub(super) reading: Reading,
}

impl Live {
    /// A reader of what is counted now, for this request.
    pub(crate) fn view_for(&self, reading: Reading) -> View<'_> {
        View {
            live: self,
            snapshot: self.snapshot(),
            reading,
        }
    }
}

impl<'s> View<'s> {
    /// The declaration in force.
    pub fn schema(&self) -> &'s Schema {
        &self.live.schema
    }

    /// True when everything that was counted before `instant` (Unix seconds) is in the active generation: no day before
    /// it has a store any more, and nothing that came late waits to be merged.
    pub fn is_archived(&self, instant: i64) -> bool {
        let snapshot = &self.snapshot;
        let waits = |store: &DeltaStore| match store.id {
            StoreId::Day(day) => day.start() < instant,
            StoreId::Late(_) => !store.is_empty(),
        };
        let pending_from = snapshot.archive.pending_from;
        !snapshot.ring.stores().any(waits) && pending_from.is_none_or(|from| from >= instant)
    }

    /// Since when a kept generation has hours (Unix seconds): earlier ones are folded into days. None where it has
    /// all.
    pub fn hours_from(&self, generation: u64) -> Option<i64> {
        self.snapshot.archive.hours_from.get(&generation).copied()
    }

    /// 128 keyed bits of an answer, for its validator; `write` writes the text to hash, which is not kept.
    ///
    /// # Errors
    /// Those of `write`.
    pub fn answer_identity(
        &self,
        write: impl FnOnce(&mut dyn Write) -> io::Result<()>,
    ) -> io::Result<u128> {
        let mut written = Ok(());
        let identity = self.live.keys.identity_of(ANSWER_DOMAIN, |hasher| {
            let mut pieces = BufWriter::with_capacity(PIECE_BYTES, hasher);
            written = write(&mut pieces).and_then(|()| pieces.flush());
        });
        written.map(|()| identity)
    }

    /// The request, and what it holds of the budget.
    pub fn reading(&self) -> &Reading {
        &self.reading
    }

    /// The archive generation in the view, 0 before the first.
    pub fn generation(&self) -> u64 {
        self.snapshot.archive.generation
    }

    /// The manifest in the view.
    pub fn manifest(&self) -> u64 {
        self.snapshot.manifest.number
    }

    /// Everything before this offset is counted in the view.
    pub fn applied(&self) -> Offset {
        self.snapshot.applied()
    }

    /// Minutes of base buckets that began earlier have expired (Unix seconds), in the view or the kept generation; none
    /// has, without.
    pub fn minutes_from(&self, as_of: Option<u64>) -> Option<i64> {
        let generation = as_of.unwrap_or(self.generation());
        self.snapshot.archive.minutes_from.get(&generation).copied()
    }

    /// First instant for which increments of `namespace` are still expected at `now` (both Unix seconds): earlier counts
    /// change by corrections only.
    pub fn settled_until(&self, namespace: &str, as_of: Option<u64>, now: i64) -> i64 {
        let schema = &self.live.schema;
        super::lateness::settled_until(&self.snapshot, schema, namespace, as_of, now)
    }

    /// The text behind what is stored: of a hash, that which memory has, else that of the first of `runs` that has it; else
    /// the stored form itself.
    pub(super) fn text_of(&self, stored: &str, runs: &[Arc<Run>]) -> Result<String> {
        if is_hash(stored) {
            let deltas = self.snapshot.ring.stores().flat_map(|store| store.deltas());
            let mut texts = deltas.filter_map(|delta| delta.lookups().get(stored.as_bytes()));
            if let Some(text) = texts.next() {
                return Ok(text.to_owned());
            }
            for run in runs {
                if let Some(text) = run.look_up(&self.live.cache, stored.as_bytes())? {
                    return Ok(text);
                }
            }
        }
        Ok(stored.to_owned())
    }
}
