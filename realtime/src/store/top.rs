//! The heaviest keys of a namespace: those of recent hours from memory, else one pass over its totals in archive
//! and deltas, which also gives the sum of all of them.
//!
//! The totals of a namespace stand together in every run, sorted by key, so the keys of all sources
//! are met in order and only the best are held. Time is that of reading the namespace's totals.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::ops::{ControlFlow, Range};
use std::sync::Arc;

use tallyring_archive::Run;
use tallyring_records::line::hours;
use tallyring_records::{COUNT_MAX, TimeCode};

use super::Store;
use super::copied::Copied;
use super::minutes::{Each, Ends, Minutes, divides, whole_hours};
use super::ranking::{CountedSpan, NamespaceTotals, Ranking, TopKey};
use crate::delta::Delta;
use crate::error::Result;

/// Keys summed at a time: bounds memory however many keys there are.
const CHUNK_KEYS: usize = 100_000;

impl Store {
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

    /// As [`Store::top`], and of recent hours too no other key is heavier: all totals are read.
    ///
    /// # Errors
    /// As [`Store::top`].
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
            let known = scan.texts.remove(&*stored);
            let key = self.text_of(&stored, known, &scan.runs)?;
            keys.push(TopKey { key, count });
        }
        Ok(Ranking {
            generation: scan.generation,
            minutes_from: scan.minutes_from,
            total: scan.best.total.min(COUNT_MAX),
            keys,
            counted: scan.best.counted,
            is_cut,
            bound: None,
        })
    }

    /// The sum of all keys of a namespace by base bucket in `range` (Unix seconds), from one view; `by_minute` where it
    /// keeps minutes, of a range of whole base buckets. Takes the memory of one count for each bucket besides that of
    /// [`Store::top`].
    ///
    /// # Errors
    /// As [`Store::top`].
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
            generation: scan.generation,
            minutes_from: scan.minutes_from,
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
        let Section { name, range, whole } = section;
        let mut copied = Copied::default();
        let mut frozen: Vec<Arc<Delta>> = Vec::new();
        let mut runs: Vec<Arc<Run>> = Vec::new();
        let (generation, minutes_from) = {
            let live = self.live();
            match as_of {
                Some(number) => runs.extend_from_slice(live.kept(number)?),
                None => {
                    for store in live.ring.stores() {
                        for delta in store.changing() {
                            copied.add(delta, name, whole);
                            minutes.memory(delta, name, whole);
                        }
                        frozen.extend(store.frozen.iter().map(Arc::clone));
                        runs.extend(store.runs.iter().map(|run| Arc::clone(&run.run)));
                    }
                    runs.extend(live.archive.runs.iter().map(Arc::clone));
                }
            }
            let generation = as_of.unwrap_or(live.archive.generation);
            let minutes_from = live.archive.minutes_from.get(&generation).copied();
            (generation, minutes_from)
        };
        for delta in frozen {
            copied.add(&delta, name, whole);
            minutes.memory(&delta, name, whole);
        }
        let memory = sums(&copied, range, &mut best);
        runs.retain(|run| run.meta().overlaps(whole.start, whole.end));
        for run in &runs {
            minutes.run(self, run, name, whole)?;
        }
        let exact = |key: &[u8], count| minutes.exact(self, &runs, key, count);
        self.merge_section(section, &runs, memory, &mut best, &exact)?;
        Ok(Scan {
            generation,
            minutes_from,
            best,
            minutes,
            texts: copied.texts,
            runs,
        })
    }

    /// Sums the section's keys in order, a chunk at a time: a chunk ends at the smallest key that some
    /// run has only read up to. Only the runs that stand there are read on, so that none is further ahead than a chunk.
    fn merge_section(
        &self,
        section: &Section,
        runs: &[Arc<Run>],
        mut sums: BTreeMap<Vec<u8>, Sum>,
        best: &mut Best,
        exact: &Exact<'_>,
    ) -> Result<()> {
        let mut froms: Vec<Option<Vec<u8>>> = runs
            .iter()
            .map(|_| Some(section.name.as_bytes().to_vec()))
            .collect();
        let chunk = (CHUNK_KEYS / runs.len().max(1)).max(1_000);
        while let Some(complete) = froms.iter().flatten().min().cloned() {
            while let Some(first) = sums.first_entry().filter(|first| *first.key() < complete) {
                let (key, sum) = first.remove_entry();
                best.take(key, sum, exact)?;
            }
            for (run, from) in runs.iter().zip(&mut froms) {
                if let Some(start) = from.take_if(|from| *from == complete) {
                    let sums = &mut sums;
                    *from = self.read_chunk(run, section, &start, chunk, sums, best)?;
                }
            }
        }
        for (key, sum) in sums {
            best.take(key, sum, exact)?;
        }
        Ok(())
    }

    /// Adds up to `chunk` keys from `start` on; the key to go on from, none at the section's end.
    fn read_chunk(
        &self,
        run: &Run,
        section: &Section,
        start: &[u8],
        chunk: usize,
        sums: &mut BTreeMap<Vec<u8>, Sum>,
        best: &mut Best,
    ) -> Result<Option<Vec<u8>>> {
        let (mut lines, mut next) = (0, None);
        let mut before: Vec<u8> = Vec::new();
        run.visit_from(&self.cache, start, &mut |key, payload| {
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
            let counts = hours(payload).flatten();
            let mut added = Sum::default();
            for (code, count) in counts.filter(|(code, _)| section.whole.contains(&code.start())) {
                best.note(&section.range, code, count);
                added.add(&section.range, code, count);
            }
            if added.at_most() > 0 {
                sums.entry(key.to_vec()).or_default().unite(added);
            }
            ControlFlow::Continue(())
        })?;
        Ok(next)
    }
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
}

/// Sums by key of what memory held.
fn sums(copied: &Copied, range: &Range<i64>, best: &mut Best) -> BTreeMap<Vec<u8>, Sum> {
    let mut sums: BTreeMap<Vec<u8>, Sum> = BTreeMap::new();
    for (key, code, count) in copied.counts() {
        best.note(range, code, count);
        match sums.get_mut(key) {
            Some(sum) => sum.add(range, code, count),
            None => {
                let mut sum = Sum::default();
                sum.add(range, code, count);
                sums.insert(key.to_vec(), sum);
            }
        }
    }
    sums
}

/// A section that was read.
struct Scan {
    generation: u64,
    minutes_from: Option<i64>,
    best: Best,
    minutes: Minutes,
    /// Texts of long keys in memory, by their hash.
    texts: BTreeMap<String, String>,
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
