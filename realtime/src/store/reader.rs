//! One request that reads: everything it reads is of one view, within the budget of reads.

use std::sync::Arc;

use tallyring_archive::Run;
use tallyring_records::{Offset, is_hash};

use super::Store;
use super::view::View;
use crate::budget::Reading;
use crate::error::Result;

/// Reads of a store, all from the view that was the newest when it was made.
pub struct Reader<'s> {
    pub(super) store: &'s Store,
    pub(super) view: Arc<View>,
    pub(super) reading: Reading,
}

impl Store {
    /// A reader of what is counted now, for a request of its own.
    pub fn reader(&self) -> Reader<'_> {
        self.reader_for(Reading::new(&self.read_budget))
    }

    /// A reader of what is counted now, for this request.
    pub fn reader_for(&self, reading: Reading) -> Reader<'_> {
        Reader {
            store: self,
            view: self.view(),
            reading,
        }
    }
}

impl<'s> Reader<'s> {
    /// The store.
    pub fn store(&self) -> &'s Store {
        self.store
    }

    /// The request, and what it holds of the budget.
    pub fn reading(&self) -> &Reading {
        &self.reading
    }

    /// The archive generation in the view, 0 before the first.
    pub fn generation(&self) -> u64 {
        self.view.archive.generation
    }

    /// The manifest in the view.
    pub fn manifest(&self) -> u64 {
        self.view.manifest.number
    }

    /// Everything before this offset is counted in the view.
    pub fn applied(&self) -> Offset {
        self.view.applied
    }

    /// Minutes of base buckets that began earlier have expired (Unix seconds), in the view or the kept generation; none
    /// has, without.
    pub fn minutes_from(&self, as_of: Option<u64>) -> Option<i64> {
        let generation = as_of.unwrap_or(self.generation());
        self.view.archive.minutes_from.get(&generation).copied()
    }

    /// First instant for which increments of `namespace` are still expected at `now` (both Unix seconds): earlier counts
    /// change by corrections only.
    pub fn settled_until(&self, namespace: &str, as_of: Option<u64>, now: i64) -> i64 {
        let schema = &self.store.schema;
        super::lateness::settled_until(&self.view, schema, namespace, as_of, now)
    }

    /// The text behind what is stored: of a hash, that which memory has, else that of the first of `runs` that has it; else
    /// the stored form itself.
    pub(super) fn text_of(&self, stored: &str, runs: &[Arc<Run>]) -> Result<String> {
        if is_hash(stored) {
            let deltas = self.view.ring.stores().flat_map(|store| store.deltas());
            let mut texts = deltas.filter_map(|delta| delta.lookups().get(stored.as_bytes()));
            if let Some(text) = texts.next() {
                return Ok(text.to_owned());
            }
            for run in runs {
                if let Some(text) = run.look_up(&self.store.cache, stored.as_bytes())? {
                    return Ok(text);
                }
            }
        }
        Ok(stored.to_owned())
    }
}
