//! A view: one request reads one state of the counts, of one store or of several strands, within the budget of reads.

use std::io::{BufWriter, Write};
use std::ptr;

use serde::Serialize;
use tallyring_records::{LongKeys, Offset, Position, Schema, StoreId, breakdowns_from, is_hash};

use super::Live;
use super::lateness::settled_until;
use super::parts::{File, Part};
use crate::budget::Reading;
use crate::delta::DeltaStore;
use crate::error::Result;

/// Domain of [`LongKeys::identity_of`] for answers. Bodies of batches have another one (`realtime/src/intake/mod.rs`).
const ANSWER_DOMAIN: u8 = 3;
/// Bytes of an answer that are hashed together.
const PIECE_BYTES: usize = 1 << 10;

/// One state of the counts, which never changes, and the part of the budget of reads that the reading request holds.
///
/// A view of several strands has one state of each. Counts of all strands add up in every read. Numbers of generations
/// and manifests are those of the first strand.
pub struct View<'s> {
    pub(super) first: Part<'s>,
    /// The parts of further strands.
    pub(super) beside: Vec<Part<'s>>,
    pub(super) reading: Reading,
}

impl Live {
    /// Takes a view of the newest counts for a request.
    pub(crate) fn view_for(&self, reading: Reading) -> View<'_> {
        View::over([self], reading)
    }
}

impl View<'_> {
    /// As [`Reading::check`], of the request.
    pub fn check(&self) -> Result<()> {
        self.reading.check()
    }

    /// The schema in force at the offset of the view. Strands declare alike; while they differ, that of the first one.
    pub fn schema(&self) -> &Schema {
        &self.first.snapshot.schema
    }

    /// True when files alone hold what was counted before `instant` (Unix seconds): no earlier day has a delta store
    /// any more, and no late increment waits in one. Nothing comes to a file, whether a generation has merged it or
    /// not.
    pub fn is_archived(&self, instant: i64) -> bool {
        let waits = |store: &DeltaStore| match store.id {
            StoreId::Day(day) => day.start() < instant,
            StoreId::Again(day, _) => day.start() < instant && !store.is_empty(),
            StoreId::Late(_) => !store.is_empty(),
        };
        !self.stores().any(waits)
    }

    /// The instant from which a kept generation has hours (Unix seconds); earlier hours are folded into days. None
    /// where the generation has all hours. The number of the active generation stands for those of all strands.
    pub fn hours_from(&self, generation: u64) -> Option<i64> {
        let as_of = (generation != self.generation()).then_some(generation);
        let of_parts = self.parts().filter_map(|part| {
            let archive = &part.snapshot.archive;
            let generation = as_of.unwrap_or(archive.generation);
            archive.hours_from.get(&generation)
        });
        of_parts.max().copied()
    }

    /// 128 keyed bits of an answer's JSON, for its validator; the JSON is not kept. Fails for an answer that cannot be
    /// written as JSON.
    pub fn answer_identity(&self, answer: &impl Serialize) -> serde_json::Result<u128> {
        let mut written = Ok(());
        let identity = self.keys().identity_of(ANSWER_DOMAIN, |hasher| {
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
        self.first.snapshot.archive.generation
    }

    /// Number of the manifest in the view.
    pub fn manifest(&self) -> u64 {
        self.first.snapshot.manifest.number
    }

    /// The view counts everything before this offset: of several strands, of the log of the first one.
    pub fn applied(&self) -> Offset {
        self.first.snapshot.applied()
    }

    /// The position before which the view counts everything.
    pub fn position(&self) -> Position {
        self.parts().map(|part| part.snapshot.applied()).collect()
    }

    /// True where the view is of these stores, in this order.
    pub(crate) fn is_of<'v>(&self, stores: impl Iterator<Item = &'v Live>) -> bool {
        let own = self.parts().map(|part| ptr::from_ref(part.live));
        own.eq(stores.map(ptr::from_ref))
    }

    /// The offset before which the view counts everything in the log of one of its stores.
    pub(crate) fn applied_of(&self, store: &Live) -> Offset {
        let part = self.parts().find(|part| ptr::eq(part.live, store));
        let part = part.expect("BUG: the view is of this store");
        part.snapshot.applied()
    }

    /// Minutes of base buckets that began before this instant (Unix seconds) have expired, in the view or in the kept
    /// generation `as_of`. None where no minute has expired.
    pub fn minutes_from(&self, as_of: Option<u64>) -> Option<i64> {
        let of_parts = self.parts().filter_map(|part| {
            let archive = &part.snapshot.archive;
            let generation = as_of.unwrap_or(archive.generation);
            archive.minutes_from.get(&generation)
        });
        of_parts.max().copied()
    }

    /// Start of the first hour whose breakdowns are kept by the minute at `now` (both Unix seconds). None where none
    /// are kept.
    pub fn breakdowns_from(&self, now: i64) -> Option<i64> {
        let hours = self.first.live.breakdown_hours;
        (hours > 0).then(|| breakdowns_from(now, hours))
    }

    /// First instant (Unix seconds) for which increments of `namespace` are still expected at `now` (Unix seconds).
    /// Counts of earlier times change by corrections only. The earliest such instant of all strands stands for them.
    pub fn settled_until(&self, namespace: &str, as_of: Option<u64>, now: i64) -> i64 {
        let of_parts = self
            .parts()
            .map(|part| settled_until(&part.snapshot, namespace, as_of, now));
        of_parts.min().expect("BUG: a view has a part")
    }

    /// Number of blocks that reads of its strands had to read from files since the start.
    pub(super) fn blocks_decoded(&self) -> u64 {
        let of_parts = self.parts().map(|part| part.live.blocks_decoded());
        of_parts.sum()
    }

    /// The keyed hashes, which all strands share.
    pub(super) fn keys(&self) -> &LongKeys {
        self.first.live.keys()
    }

    /// The text behind a stored form. For a hash, memory is searched first and `files` after it. A stored form without
    /// a lookup is returned unchanged.
    pub(super) fn text_of<'v>(
        &self,
        stored: &str,
        files: impl IntoIterator<Item = File<'v>>,
    ) -> Result<String> {
        if is_hash(stored) {
            let deltas = self.stores().flat_map(DeltaStore::deltas);
            let mut texts = deltas.filter_map(|delta| delta.lookups().get(stored.as_bytes()));
            if let Some(text) = texts.next() {
                return Ok(text.to_owned());
            }
            for File { run, cache, .. } in files {
                if let Some(text) = run.look_up(cache, stored.as_bytes())? {
                    return Ok(text);
                }
            }
        }
        Ok(stored.to_owned())
    }
}
