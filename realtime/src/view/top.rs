//! The heaviest keys of a namespace: those of recent hours from memory, else one pass over its totals in archive
//! and deltas, which also gives the sum of all of them.
//!
//! The totals of a namespace stand together in every run, sorted by key, so the keys of all sources
//! are met in order and only the best are held. Time is that of reading the namespace's totals.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::ops::{ControlFlow, Range};
use std::sync::Arc;

use tallyring_archive::{BlockCache, Run};
use tallyring_records::line::hours;
use tallyring_records::{COUNT_MAX, TimeCode};

use super::View;
use super::gather::concerns;
use super::minutes::{Each, Ends, Minutes, divides, whole_hours};
use super::ranking::{CountedSpan, NamespaceTotals, Ranking, TopKey};
use crate::budget::Charge;
use crate::delta::{Delta, DeltaStore, SectionKey};
use crate::error::Result;

/// Keys summed at a time: bounds memory however many keys there are.
const CHUNK_KEYS: usize = 100_000;
const CHUNK_KEYS_MIN: usize = 500;
/// The part of the budget of reads that those sums may take.
const CHUNK_SHARE: usize = 8;
/// Memory of a sum with its key, at most: a stored key is short.
const SUM_BYTES: usize = 144;

impl View<'_> {
    /// The `limit` heaviest keys of a namespace in `range` (Unix seconds) with their exact counts, from one view;
    /// `by_minute` where it keeps minutes, which then count at the range's ends. Of recent hours there may be heavier ones,
    /// within the ranking's bound.
    ///
    /// # Errors
    /// When a generation is not kept or a block is damaged.
    pub fn top(
        &self,
        namespace: &str,
        range: Range<i64>,
        by_minute: bool,
        limit: usize,
        as_of: Option<u64>,
    ) -> Result<Ranking> {
        if as_of.is_none()
            && let Some(ranking) = self.top_recent(namespace, &range, limit)?
        {
            return Ok(ranking);
        }
        self.top_exact(namespace, range, by_minute, limit, as_of)
    }

    /// As [`View::top`], and of recent hours too no other key is heavier: all totals are read.
    ///
    /// # Errors
    /// As [`View::top`].
    pub fn top_exact(
        &self,
        namespace: &str,
        range: Range<i64>,
        by_minute: bool,
        limit: usize,
        as_of: Option<u64>,
    ) -> Result<Ranking> {
        let minutes = match by_minute {
            true => Minutes::Ends(Ends::of(&range)),
            false => Minutes::None,
        };
        let section = Section::new(namespace, range, &minutes);
        let mut scan = self.scan(&section, Best::new(limit), minutes, as_of)?;
        let mut named = 0;
        if let Minutes::Ends(ends) = &scan.minutes {
            scan.best.total = ends.change.of(scan.best.total);
            named = ends.named;
        }
        let is_cut = scan.best.divided > named;
        let mut keys = Vec::with_capacity(scan.best.heap.len());
        for Reverse((count, Reverse(key))) in scan.best.heap.into_sorted_vec() {
            let stored = String::from_utf8_lossy(&key[section.name.len()..]);
            let key = self.text_of(&stored, &scan.runs)?;
            keys.push(TopKey { key, count });
        }
        Ok(Ranking {
            generation: as_of.unwrap_or(self.generation()),
            minutes_from: self.minutes_from(as_of),
            total: scan.best.total.min(COUNT_MAX),
            keys,
            counted: scan.best.counted,
            is_cut,
            bound: None,
        })
    }

    /// The sum of all keys of a namespace by base bucket in `range` (Unix seconds), from one view; `by_minute` where it
    /// keeps minutes, of a range of whole base buckets. Takes the memory of one count for each bucket besides that of
    /// [`View::top`].
    ///
    /// # Errors
    /// As [`View::top`].
    pub fn totals(
        &self,
        namespace: &str,
        range: Range<i64>,
        by_minute: bool,
        as_of: Option<u64>,
    ) -> Result<NamespaceTotals> {
        let mut best = Best::new(0);
        best.totals = Some(BTreeMap::new());
        let minutes = match by_minute {
            true => Minutes::Each(Each::default()),
            false => Minutes::None,
        };
        let section = Section::new(namespace, range, &minutes);
        let scan = self.scan(&section, best, minutes, as_of)?;
        let totals = scan.best.totals.unwrap_or_default();
        let totals = match scan.minutes {
            Minutes::Each(each) => each.with_rest_of(&totals),
            Minutes::None | Minutes::Ends(_) => totals,
        };
        Ok(NamespaceTotals {
            generation: as_of.unwrap_or(self.generation()),
            minutes_from: self.minutes_from(as_of),
            totals: totals.into_iter().collect(),
        })
    }

    /// Reads every total of a section once, and the minutes that are needed.
    fn scan(
        &self,
        section: &Section,
        mut best: Best,
        mut minutes: Minutes,
        as_of: Option<u64>,
    ) -> Result<Scan> {
        let Section { name, whole, .. } = section;
        let view = &self.snapshot;
        let (deltas, mut runs): (Vec<&Delta>, Vec<Arc<Run>>) = match as_of {
            Some(number) => (Vec::new(), view.kept(number)?.to_vec()),
            None => {
                let stores = || view.ring.stores().filter(|store| concerns(whole, store));
                let flushed = stores().flat_map(|store| store.runs.iter().map(|run| &run.run));
                let runs = flushed.chain(&view.archive.runs).map(Arc::clone);
                (
                    stores().flat_map(DeltaStore::deltas).collect(),
                    runs.collect(),
                )
            }
        };
        runs.retain(|run| run.meta().overlaps(whole.start, whole.end));
        for delta in &deltas {
            minutes.memory(delta, name, whole, &self.reading)?;
        }
        for run in &runs {
            minutes.run(&self.live.cache, run, name, whole, &self.reading)?;
        }
        let mut charge = self.reading.charge();
        let mut sources = Vec::with_capacity(deltas.len() + runs.len());
        for delta in &deltas {
            let keys = delta.section_keys(name.as_bytes(), &mut charge)?;
            sources.push(Source::Memory { delta, keys, at: 0 });
        }
        sources.extend(runs.iter().map(|run| Source::File {
            run,
            from: Some(name.as_bytes().to_vec()),
        }));
        let exact = |key: &[u8], count| minutes.exact(&self.live.cache, &deltas, &runs, key, count);
        self.merge_section(section, sources, &mut best, &exact)?;
        Ok(Scan {
            best,
            minutes,
            runs,
        })
    }

    /// Sums the section's keys in order, a chunk at a time: a chunk ends at the smallest key that some
    /// source has only been read up to. Only the sources that stand there are read on, so that none is further ahead than a
    /// chunk.
    fn merge_section(
        &self,
        section: &Section,
        mut sources: Vec<Source<'_>>,
        best: &mut Best,
        exact: &Exact<'_>,
    ) -> Result<()> {
        let mut sums = Sums {
            by_key: BTreeMap::new(),
            charge: self.reading.charge(),
        };
        let room = self.live.read_budget.limit() / CHUNK_SHARE / SUM_BYTES;
        let chunk = (room.min(CHUNK_KEYS) / sources.len().max(1)).max(CHUNK_KEYS_MIN);
        while let Some(complete) = sources.iter().filter_map(Source::next).min() {
            let complete = complete.to_vec();
            while let Some(first) = sums.by_key.first_entry() {
                if *first.key() >= complete {
                    break;
                }
                let (key, sum) = first.remove_entry();
                best.take(key, sum, exact)?;
            }
            for source in &mut sources {
                if source.next() == Some(&complete) {
                    self.reading.check()?;
                    source.read(&self.live.cache, section, chunk, &mut sums, best)?;
                }
            }
        }
        for (key, sum) in sums.by_key {
            best.take(key, sum, exact)?;
        }
        Ok(())
    }
}

/// Sums of keys on their way.
struct Sums {
    by_key: BTreeMap<Vec<u8>, Sum>,
    charge: Charge,
}

impl Sums {
    fn add(&mut self, key: &[u8], added: Sum) -> Result<()> {
        if added.at_most() == 0 {
            return Ok(());
        }
        match self.by_key.get_mut(key) {
            Some(sum) => sum.unite(added),
            None => {
                self.charge.grow_to((self.by_key.len() + 1) * SUM_BYTES)?;
                self.by_key.insert(key.to_vec(), added);
            }
        }
        Ok(())
    }
}

/// Sorted totals of a section, and up to where they have been read.
enum Source<'r> {
    /// A memory delta.
    Memory {
        delta: &'r Delta,
        keys: Vec<SectionKey>,
        at: usize,
    },
    /// A run; `from` is none at the section's end.
    File { run: &'r Run, from: Option<Vec<u8>> },
}

impl Source<'_> {
    /// The key to go on from; none at the end. Of a run it is there, or after it.
    fn next(&self) -> Option<&[u8]> {
        match self {
            Self::Memory { delta, keys, at } => keys.get(*at).map(|key| delta.section_key(*key)),
            Self::File { from, .. } => from.as_deref(),
        }
    }

    /// Adds up to `chunk` keys.
    fn read(
        &mut self,
        cache: &BlockCache,
        section: &Section,
        chunk: usize,
        sums: &mut Sums,
        best: &mut Best,
    ) -> Result<()> {
        match self {
            Self::Memory { delta, keys, at } => {
                let end = keys.len().min(*at + chunk);
                for &key in &keys[*at..end] {
                    let mut added = Sum::default();
                    delta.section_total(key, &mut |code, count| {
                        section.add(code, count, &mut added, best);
                    });
                    sums.add(delta.section_key(key), added)?;
                }
                *at = end;
            }
            Self::File { run, from } => {
                if let Some(start) = from.take() {
                    *from = read_chunk(run, cache, section, &start, chunk, sums, best)?;
                }
            }
        }
        Ok(())
    }
}

/// Adds up to `chunk` keys of a run from `start` on; the key to go on from, none at the section's end.
fn read_chunk(
    run: &Run,
    cache: &BlockCache,
    section: &Section,
    start: &[u8],
    chunk: usize,
    sums: &mut Sums,
    best: &mut Best,
) -> Result<Option<Vec<u8>>> {
    let (mut lines, mut next, mut refused) = (0, None, None);
    let mut before: Vec<u8> = Vec::new();
    run.visit_from(cache, start, &mut |key, payload| {
        if !key.starts_with(section.name.as_bytes()) {
            return ControlFlow::Break(());
        }
        // A key may have several lines, of which the next chunk would read all again.
        if lines >= chunk && before != key {
            next = Some(key.to_vec());
            return ControlFlow::Break(());
        }
        lines += 1;
        before.clear();
        before.extend_from_slice(key);
        let mut added = Sum::default();
        for (code, count) in hours(payload).flatten() {
            section.add(code, count, &mut added, best);
        }
        match sums.add(key, added) {
            Ok(()) => ControlFlow::Continue(()),
            Err(error) => {
                refused = Some(error);
                ControlFlow::Break(())
            }
        }
    })?;
    refused.map_or(Ok(next), Err)
}

/// What of a namespace is read.
struct Section {
    /// With which its total keys begin: `u|`.
    name: String,
    range: Range<i64>,
    /// The range, or more than it: what begins earlier does not count by itself, but is seen to be divided.
    whole: Range<i64>,
}

impl Section {
    fn new(namespace: &str, range: Range<i64>, minutes: &Minutes) -> Self {
        let whole = match minutes {
            Minutes::Each(_) => range.clone(),
            Minutes::None | Minutes::Ends(_) => whole_hours(&range),
        };
        Self {
            name: format!("{namespace}|"),
            range,
            whole,
        }
    }

    /// Adds a count of some key to its sum and to what is known of all keys, where it is in the range or near it.
    fn add(&self, code: TimeCode, count: u64, sum: &mut Sum, best: &mut Best) {
        if self.whole.contains(&code.start()) {
            best.note(&self.range, code, count);
            sum.add(&self.range, code, count);
        }
    }
}

/// A section that was read.
struct Scan {
    best: Best,
    minutes: Minutes,
    runs: Vec<Arc<Run>>,
}

/// A key's count by minutes, of that by base buckets.
type Exact<'e> = dyn Fn(&[u8], u64) -> Result<u64> + 'e;

/// A key's sum by base buckets.
#[derive(Debug, Default, Clone, Copy)]
struct Sum {
    /// Of those that start in the range.
    within: u64,
    /// Of the one that the range's start divides.
    before: u64,
}

impl Sum {
    fn add(&mut self, range: &Range<i64>, code: TimeCode, count: u64) {
        let side = match range.contains(&code.start()) {
            true => &mut self.within,
            false => &mut self.before,
        };
        *side = side.saturating_add(count);
    }

    fn unite(&mut self, other: Self) {
        self.within = self.within.saturating_add(other.within);
        self.before = self.before.saturating_add(other.before);
    }

    /// However the minutes lie.
    fn at_most(self) -> u64 {
        self.within.saturating_add(self.before)
    }
}

/// The best so far: the heap's top is the worst of them.
struct Best {
    limit: usize,
    total: u64,
    counted: Option<CountedSpan>,
    /// Sum of the base buckets that the range divides.
    divided: u64,
    /// Sums by base bucket, where they are wanted.
    totals: Option<BTreeMap<TimeCode, u64>>,
    heap: BinaryHeap<Reverse<(u64, Reverse<Vec<u8>>)>>,
}

impl Best {
    fn new(limit: usize) -> Self {
        Self {
            limit,
            total: 0,
            counted: None,
            divided: 0,
            totals: None,
            heap: BinaryHeap::new(),
        }
    }

    /// Takes note of a count of some key.
    fn note(&mut self, range: &Range<i64>, code: TimeCode, count: u64) {
        if divides(range, code) {
            self.divided = self.divided.saturating_add(count);
        }
        if !range.contains(&code.start()) {
            return;
        }
        CountedSpan::note(&mut self.counted, code);
        if let Some(totals) = &mut self.totals {
            let sum = totals.entry(code).or_insert(0);
            *sum = sum.saturating_add(count);
        }
    }

    /// A key behind all that were taken.
    fn take(&mut self, key: Vec<u8>, sum: Sum, exact: &Exact<'_>) -> Result<()> {
        self.total = self.total.saturating_add(sum.within);
        let worst = self.heap.peek().filter(|_| self.heap.len() == self.limit);
        let least = worst.map_or(0, |Reverse((count, _))| *count);
        // Of equals the first one stays.
        if self.limit == 0 || sum.at_most() <= least {
            return Ok(());
        }
        let count = exact(&key, sum.within)?.min(COUNT_MAX);
        if count > least {
            self.heap.push(Reverse((count, Reverse(key))));
            if self.heap.len() > self.limit {
                self.heap.pop();
            }
        }
        Ok(())
    }
}
