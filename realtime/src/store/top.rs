//! The heaviest keys of a namespace: those of recent hours from memory, else one pass over its totals in archive
//! and deltas.
//!
//! The totals of a namespace stand together in every run, sorted by key, so the keys of all sources
//! are met in order and only the best are held. Time is that of reading the namespace's totals.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::ops::{ControlFlow, Range};
use std::sync::Arc;

use tallyring_archive::Run;
use tallyring_records::line::{self, hours};
use tallyring_records::{COUNT_MAX, TimeCode, is_hash};

use super::Store;
use super::read::no_generation;
use crate::error::Result;

/// The heaviest keys of a range.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ranking {
    /// The archive generation in the view.
    pub generation: u64,
    /// Sum over all keys of the namespace.
    pub total: u64,
    /// Heaviest first, ties by stored key.
    pub keys: Vec<TopKey>,
    /// Where in the range counts lie; none where there is none, or in recent hours.
    pub counted: Option<Counted>,
    /// A key that is not listed may have up to this many; none where it has no more than the last one listed.
    pub bound: Option<u64>,
}

/// Where counts lie.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Counted {
    /// Start of the first base bucket, Unix seconds.
    pub first: i64,
    /// Start of the last one.
    pub last: i64,
    /// Length of the longest, seconds.
    pub grain_seconds: i64,
}

impl Counted {
    /// Takes one base bucket more into it.
    fn note(counted: &mut Option<Self>, code: TimeCode) {
        let (start, grain) = (code.start(), code.grain().seconds());
        let before = counted.unwrap_or(Self {
            first: start,
            last: start,
            grain_seconds: grain,
        });
        *counted = Some(Self {
            first: before.first.min(start),
            last: before.last.max(start),
            grain_seconds: before.grain_seconds.max(grain),
        });
    }
}

/// A key and its count.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TopKey {
    /// The key as it was counted.
    pub key: String,
    /// Its count in the range.
    pub count: u64,
}

/// Keys summed at a time: bounds memory however many keys there are.
const CHUNK_KEYS: usize = 100_000;

impl Store {
    /// The `limit` heaviest keys of a namespace in `range` (Unix seconds) with their exact counts, from one view.
    /// Of recent hours there may be heavier ones, within the ranking's bound.
    ///
    /// # Errors
    /// When a generation is not kept or a block is damaged.
    pub fn top(
        &self,
        namespace: &str,
        range: Range<i64>,
        limit: usize,
        as_of: Option<u64>,
    ) -> Result<Ranking> {
        if as_of.is_none()
            && let Some(ranking) = self.top_recent(namespace, &range, limit)?
        {
            return Ok(ranking);
        }
        self.top_of_all(namespace, range, limit, as_of)
    }

    fn top_of_all(
        &self,
        namespace: &str,
        range: Range<i64>,
        limit: usize,
        as_of: Option<u64>,
    ) -> Result<Ranking> {
        let section = format!("{namespace}|");
        let mut memory: BTreeMap<Vec<u8>, u64> = BTreeMap::new();
        let mut texts: BTreeMap<String, String> = BTreeMap::new();
        let mut runs: Vec<Arc<Run>> = Vec::new();
        let mut counted = None;
        let generation = {
            let live = self.live();
            match as_of {
                Some(number) => {
                    let files = live
                        .archive
                        .kept
                        .get(&number)
                        .ok_or_else(|| no_generation(&live, number))?;
                    runs.extend(files.iter().map(Arc::clone));
                }
                None => {
                    for store in live.ring.stores() {
                        for delta in store.deltas() {
                            delta.section_totals(
                                section.as_bytes(),
                                &range,
                                &mut |key, code, count, text| {
                                    Counted::note(&mut counted, code);
                                    let sum = memory.entry(key.to_vec()).or_insert(0);
                                    *sum = sum.saturating_add(count);
                                    if let Some((hash, raw)) = text {
                                        texts.insert(hash.to_owned(), raw.to_owned());
                                    }
                                },
                            );
                        }
                        runs.extend(store.runs.iter().map(|run| Arc::clone(&run.run)));
                    }
                    runs.extend(live.archive.runs.iter().map(Arc::clone));
                }
            }
            as_of.unwrap_or(live.archive.generation)
        };
        runs.retain(|run| run.meta().overlaps(range.start, range.end));
        let mut best = Best::new(limit, counted);
        self.merge_section(&section, &range, &runs, memory, &mut best)?;
        let mut keys = Vec::with_capacity(best.heap.len());
        for Reverse((count, Reverse(key))) in best.heap.into_sorted_vec() {
            let stored = String::from_utf8_lossy(&key[section.len()..]).into_owned();
            let key = match texts.remove(&stored) {
                Some(raw) => raw,
                None if is_hash(&stored) => self.look_up(&runs, &stored)?.unwrap_or(stored),
                None => stored,
            };
            keys.push(TopKey { key, count });
        }
        Ok(Ranking {
            generation,
            total: best.total,
            keys,
            counted: best.counted,
            bound: None,
        })
    }

    /// Sums the section's keys in order, a chunk at a time: a chunk ends at the smallest key that some
    /// run has only read up to.
    fn merge_section(
        &self,
        section: &str,
        range: &Range<i64>,
        runs: &[Arc<Run>],
        mut sums: BTreeMap<Vec<u8>, u64>,
        best: &mut Best,
    ) -> Result<()> {
        let mut froms: Vec<Option<Vec<u8>>> = runs
            .iter()
            .map(|_| Some(section.as_bytes().to_vec()))
            .collect();
        let chunk = (CHUNK_KEYS / runs.len().max(1)).max(1_000);
        loop {
            for (run, from) in runs.iter().zip(&mut froms) {
                if let Some(start) = from.take() {
                    let counted = &mut best.counted;
                    let sums = &mut sums;
                    *from = self.read_chunk(run, section, &start, (range, chunk), sums, counted)?;
                }
            }
            let Some(complete) = froms.iter().flatten().min().cloned() else {
                break;
            };
            let rest = sums.split_off(&complete);
            best.take(std::mem::replace(&mut sums, rest));
        }
        best.take(sums);
        Ok(())
    }

    /// Adds up to `chunk` keys from `start` on; the key to go on from, none at the section's end.
    fn read_chunk(
        &self,
        run: &Run,
        section: &str,
        start: &[u8],
        (range, chunk): (&Range<i64>, usize),
        sums: &mut BTreeMap<Vec<u8>, u64>,
        counted: &mut Option<Counted>,
    ) -> Result<Option<Vec<u8>>> {
        let (mut lines, mut next) = (0, None);
        run.visit_from(&self.cache, start, &mut |key, payload| {
            if !key.starts_with(section.as_bytes()) {
                return ControlFlow::Break(());
            }
            if lines >= chunk
                && sums
                    .last_key_value()
                    .is_none_or(|(last, _)| last.as_slice() != key)
            {
                next = Some(key.to_vec());
                return ControlFlow::Break(());
            }
            lines += 1;
            let counts = hours(payload)
                .flatten()
                .filter(|(code, _)| range.contains(&code.start()))
                .inspect(|&(code, _)| Counted::note(counted, code));
            let count = counts.fold(0_u64, |sum, (_, count)| sum.saturating_add(count));
            if count > 0 {
                let sum = sums.entry(key.to_vec()).or_insert(0);
                *sum = sum.saturating_add(count).min(COUNT_MAX);
            }
            ControlFlow::Continue(())
        })?;
        Ok(next)
    }

    /// The text behind a hash, from the first run that has it.
    pub(super) fn look_up(&self, runs: &[Arc<Run>], hash: &str) -> Result<Option<String>> {
        let wanted = line::lookup_key(hash);
        for run in runs {
            let mut found = None;
            run.visit_from(&self.cache, wanted.as_bytes(), &mut |key, payload| {
                if key == wanted.as_bytes() {
                    found = line::unescape(payload).map(|text| text.into_owned());
                }
                ControlFlow::Break(())
            })?;
            if found.is_some() {
                return Ok(found);
            }
        }
        Ok(None)
    }
}

/// The best so far: the heap's top is the worst of them.
struct Best {
    limit: usize,
    total: u64,
    counted: Option<Counted>,
    heap: BinaryHeap<Reverse<(u64, Reverse<Vec<u8>>)>>,
}

impl Best {
    fn new(limit: usize, counted: Option<Counted>) -> Self {
        Self {
            limit,
            total: 0,
            counted,
            heap: BinaryHeap::new(),
        }
    }

    fn take(&mut self, sums: BTreeMap<Vec<u8>, u64>) {
        for (key, count) in sums {
            self.total = self.total.saturating_add(count).min(COUNT_MAX);
            self.heap.push(Reverse((count, Reverse(key))));
            if self.heap.len() > self.limit {
                self.heap.pop();
            }
        }
    }
}
