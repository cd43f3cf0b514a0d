//! A view: one request reads one state of the counts, within the budget of reads.

use std::io::{BufWriter, Write};
use std::sync::Arc;

use serde::Serialize;
use tallyring_archive::Run;
use tallyring_records::{Offset, Schema, StoreId, breakdowns_from, is_hash};

use super::Live;
use super::snapshot::Snapshot;
use crate::budget::Reading;
use crate::delta::DeltaStore;
use crate::error::Result;

/// Domain of [`LongKeys::identity_of`] for answers. Bodies of batches have another one (`realtime/src/intake/mod.rs`).
const ANSWER_DOMAIN: u8 = 3;
/// Bytes of an answer that are hashed together.
const PIECE_BYTES: usize = 1 << 10;

/// One state of the counts, which never changes, and the part of the budget of reads that the reading request holds.
pub struct View<'s> {
    pub(super) live: &'s Live,
    pub(super) snapshot: Arc<Snapshot>,
    pub(super) reading: Reading,
}

impl Live {
    /// Takes a view of the newest counts for a request.
    pub(crate) fn view_for(&self, reading: Reading) -> View<'_> {
        View {
            live: self,
            snapshot: self.snapshot(),
            reading,
        }
    }
}

impl View<'_> {
    /// The schema in force at the offset of the view.
    pub fn schema(&self) -> &Schema {
        &self.snapshot.schema
    }

    /// True when files alone hold what was counted before `instant` (Unix seconds): no earlier day has a delta store
    /// any more, and no late increment waits in one. Nothing comes to a file, whether a generation has merged it or
    /// not.
    pub fn is_archived(&self, instant: i64) -> bool {
        let snapshot = &self.snapshot;
        let waits = |store: &DeltaStore| match store.id {
            StoreId::Day(day) => day.start() < instant,
            StoreId::Again(day, _) => day.start() < instant && !store.is_empty(),
            StoreId::Late(_) => !store.is_empty(),
        };
        !snapshot.ring.stores().any(waits)
    }

    /// The instant from which a kept generation has hours (Unix seconds); earlier hours are folded into days. None
    /// where the generation has all hours.
    pub fn hours_from(&self, generation: u64) -> Option<i64> {
        self.snapshot.archive.hours_from.get(&generation).copied()
    }

    /// 128 keyed bits of an answer's JSON, for its validator; the JSON is not kept. Fails for an answer that cannot be
    /// written as JSON.
    pub fn answer_identity(&self, answer: &impl Serialize) -> serde_json::Result<u128> {
        let mut written = Ok(());
        let identity = self.live.keys.identity_of(ANSWER_DOMAIN, |hasher| {
            let mut pieces = BufWriter::with_capacity(PIECE_BYTES, hasher);
            written = serde_json::to_writer(&mut pieces, answer)
                .and_then(|()| pieces.flush().map_err(serde_json::Error::io));
        });
        written.map(|()| identity)
    }

    /// The request and its part of the budget.
    pub fn reading(&self) -> &Reading {
        &self.reading
    }

    /// Number of the active generation in the view, 0 before the first.
    pub fn generation(&self) -> u64 {
        self.snapshot.archive.generation
    }

    /// Number of the manifest in the view.
    pub fn manifest(&self) -> u64 {
        self.snapshot.manifest.number
    }

    /// The view counts everything before this offset.
    pub fn applied(&self) -> Offset {
        self.snapshot.applied()
    }

    /// Minutes of base buckets that began before this instant (Unix seconds) have expired, in the view or in the kept
    /// generation `as_of`. None where no minute has expired.
    pub fn minutes_from(&self, as_of: Option<u64>) -> Option<i64> {
        let generation = as_of.unwrap_or(self.generation());
        self.snapshot.archive.minutes_from.get(&generation).copied()
    }

    /// Start of the first hour whose breakdowns are kept by the minute at `now` (both Unix seconds). None where none
    /// are kept.
    pub fn breakdowns_from(&self, now: i64) -> Option<i64> {
        let hours = self.live.breakdown_hours;
        (hours > 0).then(|| breakdowns_from(now, hours))
    }

    /// First instant (Unix seconds) for which increments of `namespace` are still expected at `now` (Unix seconds).
    /// Counts of earlier times change by corrections only.
    pub fn settled_until(&self, namespace: &str, as_of: Option<u64>, now: i64) -> i64 {
        let schema = &self.snapshot.schema;
        super::lateness::settled_until(&self.snapshot, schema, namespace, as_of, now)
    }

    /// The text behind a stored form. For a hash, memory is searched first and `runs` after it. A stored form without a
    /// lookup is returned unchanged.
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
