//! One pass over all totals of a namespace in archive and deltas, which finds the heaviest keys.
//!
//! The totals of a namespace are adjacent in every run and sorted by key. A pass therefore meets the keys of all
//! sources in order, and holds the best keys only. It takes the time of reading the namespace's totals.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::ops::{ControlFlow, Range};

use tallyring_archive::Sign;
use tallyring_records::line::hours;
use tallyring_records::{COUNT_MAX, TimeCode};

use super::View;
use super::less::below_zero;
use super::minutes::{Minutes, whole_hours};
use super::parts::File;
use super::tally::{Sources, Tally};
use crate::budget::Charge;
use crate::delta::{Delta, SectionKey};
use crate::error::Result;

/// Keys that are summed at a time, which bounds memory whatever the number of keys.
const CHUNK_KEYS: usize = 100_000;
const CHUNK_KEYS_MIN: usize = 500;
/// The part of the budget of reads that these sums may take: one in so many.
const CHUNK_SHARE: usize = 8;
/// Memory of a sum with its key, at most: a stored key is short.
const SUM_BYTES: usize = 144;

impl View<'_> {
    /// Reads every total of a section once, and the minutes that are needed.
    pub(super) fn scan(
        &self,
        section: &Section,
        mut best: Best,
        mut minutes: Minutes,
        as_of: Option<u64>,
    ) -> Result<Scan> {
        let name = &section.name;
        let all = self.sources(section, as_of)?;
        let Sources {
            deltas,
            plus,
            minus,
        } = &all;
        self.note_minutes(&mut minutes, section, (deltas, plus))?;
        if !minus.is_empty() {
            best.tally = Tally::by_bucket(&section.range);
            let mut less = minutes.without_counts();
            self.note_minutes(&mut less, section, (&[], minus))?;
            if !minutes.take_away(&less) {
                return Err(below_zero(name.as_bytes(), minus));
            }
        }
        let mut charge = self.reading.charge();
        let mut sources = Vec::with_capacity(deltas.len() + plus.len() + minus.len());
        for delta in deltas {
            let keys = delta.section_keys(name.as_bytes(), &|_| true, &mut charge)?;
            sources.push(Source::Memory {
                delta,
                keys,
                index: 0,
            });
        }
        sources.extend(plus.iter().chain(minus).map(|file| Source::File {
            file: *file,
            from: Some(name.as_bytes().to_vec()),
        }));
        let of = KeysOf {
            exact: &|key, count| minutes.exact(&all, key, count),
            text: &|key| {
                let stored = String::from_utf8_lossy(&key[name.len()..]);
                self.text_of(&stored, plus.iter().copied())
            },
        };
        self.merge_section(section, sources, &mut best, &of, minus)?;
        Ok(Scan { best, minutes })
    }

    /// Takes the minutes of a section that are needed.
    pub(super) fn note_minutes(
        &self,
        minutes: &mut Minutes,
        section: &Section,
        (deltas, files): (&[&Delta], &[File<'_>]),
    ) -> Result<()> {
        let Section { name, whole, .. } = section;
        for delta in deltas {
            minutes.memory(delta, name, whole, &self.reading)?;
        }
        for file in files {
            minutes.run(*file, name, whole, &self.reading)?;
        }
        Ok(())
    }

    /// Sums the section's keys in order, one chunk at a time. A chunk ends at the smallest key that some source has not
    /// been read beyond. Only the sources at that key are read on, so no source is further ahead than a chunk.
    fn merge_section(
        &self,
        section: &Section,
        mut sources: Vec<Source<'_>>,
        best: &mut Best,
        of: &KeysOf<'_>,
        minus: &[File<'_>],
    ) -> Result<()> {
        let mut sums = Sums {
            by_key: BTreeMap::new(),
            less: BTreeMap::new(),
            tally_less: Tally::by_bucket(&section.range),
            minus,
            charge: self.reading.charge(),
        };
        let room = self.first.live.read_budget.limit() / CHUNK_SHARE / SUM_BYTES;
        let chunk = (room.min(CHUNK_KEYS) / sources.len().max(1)).max(CHUNK_KEYS_MIN);
        while let Some(complete) = sources.iter().filter_map(Source::next).min() {
            let complete = complete.to_vec();
            while let Some(first) = sums.by_key.first_entry() {
                if *first.key() >= complete {
                    break;
                }
                let (key, sum) = first.remove_entry();
                let sum = sums.net(&key, sum)?;
                best.take(&key, sum, of)?;
            }
            for source in &mut sources {
                if source.next() == Some(&complete) {
                    self.reading.check()?;
                    source.read(section, chunk, &mut sums, best)?;
                }
            }
        }
        for (key, sum) in std::mem::take(&mut sums.by_key) {
            let sum = sums.net(&key, sum)?;
            best.take(&key, sum, of)?;
        }
        sums.end(&mut best.tally)
    }
}

/// Sums of keys that are not complete yet.
struct Sums<'r> {
    by_key: BTreeMap<Vec<u8>, Sum>,
    /// Counts that are taken away from them.
    less: BTreeMap<Vec<u8>, Sum>,
    /// Sums of all counts that are taken away.
    tally_less: Tally,
    /// The runs whose counts are taken away.
    minus: &'r [File<'r>],
    charge: Charge,
}

impl Sums<'_> {
    fn add(&mut self, key: &[u8], added: Sum, sign: Sign) -> Result<()> {
        if added.at_most() == 0 {
            return Ok(());
        }
        let keys = self.by_key.len() + self.less.len();
        let side = match sign {
            Sign::Plus => &mut self.by_key,
            Sign::Minus => &mut self.less,
        };
        match side.get_mut(key) {
            Some(sum) => sum.unite(added),
            None => {
                self.charge.grow_to((keys + 1) * SUM_BYTES)?;
                side.insert(key.to_vec(), added);
            }
        }
        Ok(())
    }

    /// The sum of a complete key, less what is taken away from it.
    fn net(&mut self, key: &[u8], sum: Sum) -> Result<Sum> {
        let Some(less) = self.less.remove(key) else {
            return Ok(sum);
        };
        sum.less(less).ok_or_else(|| below_zero(key, self.minus))
    }

    /// Ends a pass over all keys, with the sums of all that was added.
    fn end(self, tally: &mut Tally) -> Result<()> {
        if self.minus.is_empty() {
            return Ok(());
        }
        if let Some(key) = self.less.keys().next() {
            return Err(below_zero(key, self.minus));
        }
        match tally.take_away(&self.tally_less) {
            true => Ok(()),
            false => Err(below_zero(b"all keys", self.minus)),
        }
    }
}

/// Sorted totals of a section, and the key from which to read on.
enum Source<'r> {
    /// A delta in memory; `index` is the next key.
    Memory {
        delta: &'r Delta,
        keys: Vec<SectionKey>,
        index: usize,
    },
    /// A run; `from` is none at the end of the section.
    File {
        file: File<'r>,
        from: Option<Vec<u8>>,
    },
}

impl Source<'_> {
    /// The key from which to read on; none at the end. In a run, the next key is this one or a later one.
    fn next(&self) -> Option<&[u8]> {
        match self {
            Self::Memory { delta, keys, index } => {
                keys.get(*index).map(|key| delta.section_key(*key))
            }
            Self::File { from, .. } => from.as_deref(),
        }
    }

    /// Adds up to `chunk` keys.
    fn read(
        &mut self,
        section: &Section,
        chunk: usize,
        sums: &mut Sums<'_>,
        best: &mut Best,
    ) -> Result<()> {
        match self {
            Self::Memory { delta, keys, index } => {
                let end = keys.len().min(*index + chunk);
                for &key in &keys[*index..end] {
                    let mut added = Sum::default();
                    delta.section_total(key, &mut |code, count| {
                        section.add(code, count, &mut added, &mut best.tally);
                    });
                    sums.add(delta.section_key(key), added, Sign::Plus)?;
                }
                *index = end;
            }
            Self::File { file, from } => {
                if let Some(start) = from.take() {
                    *from = read_chunk(*file, section, &start, chunk, sums, best)?;
                }
            }
        }
        Ok(())
    }
}

/// Adds up to `chunk` keys of a run from `start` on. Returns the key from which to read on, none at the end of the
/// section.
fn read_chunk(
    File { run, cache, .. }: File<'_>,
    section: &Section,
    start: &[u8],
    chunk: usize,
    sums: &mut Sums<'_>,
    best: &mut Best,
) -> Result<Option<Vec<u8>>> {
    let sign = run.sign();
    let (mut lines, mut next, mut refused) = (0, None, None);
    let mut before: Vec<u8> = Vec::new();
    run.visit_from(cache, start, &mut |key, payload| {
        if !key.starts_with(section.name.as_bytes()) {
            return ControlFlow::Break(());
        }
        // The next chunk would read all lines of this key again, so the chunk does not end between them.
        if lines >= chunk && before != key {
            next = Some(key.to_vec());
            return ControlFlow::Break(());
        }
        lines += 1;
        before.clear();
        before.extend_from_slice(key);
        let mut added = Sum::default();
        let tally = match sign {
            Sign::Plus => &mut best.tally,
            Sign::Minus => &mut sums.tally_less,
        };
        for (code, count) in hours(payload).flatten() {
            section.add(code, count, &mut added, tally);
        }
        match sums.add(key, added, sign) {
            Ok(()) => ControlFlow::Continue(()),
            Err(error) => {
                refused = Some(error);
                ControlFlow::Break(())
            }
        }
    })?;
    refused.map_or(Ok(next), Err)
}

/// The part of a namespace that is read.
pub(super) struct Section {
    /// Prefix of the namespace's total keys: `u|`.
    pub name: String,
    pub range: Range<i64>,
    /// The range, extended to whole hours where minutes may count at its ends. Base buckets before the range do not
    /// count by themselves, but are noted as divided.
    pub whole: Range<i64>,
}

impl Section {
    pub(super) fn new(namespace: &str, range: Range<i64>, minutes: &Minutes) -> Self {
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

    /// Adds a count of a key to `sum` and to `tally`, if the base bucket is in the range or near it.
    fn add(&self, code: TimeCode, count: u64, sum: &mut Sum, tally: &mut Tally) {
        if self.whole.contains(&code.start()) {
            tally.note(code, count);
            sum.add(&self.range, code, count);
        }
    }
}

/// The result of reading a section.
pub(super) struct Scan {
    pub best: Best,
    pub minutes: Minutes,
}

/// The look-ups for a stored key.
struct KeysOf<'v> {
    /// Corrects the count of the key by base buckets with the minutes of the key.
    exact: &'v dyn Fn(&[u8], u64) -> Result<u64>,
    /// The key as it was counted.
    text: &'v dyn Fn(&[u8]) -> Result<String>,
}

/// A key's sum by base buckets.
#[derive(Debug, Default, Clone, Copy)]
struct Sum {
    /// Counts of base buckets that start in the range.
    within: u64,
    /// Counts of the base bucket that the start of the range divides.
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

    /// The rest of it; none where it has less than is taken away.
    fn less(self, less: Self) -> Option<Self> {
        Some(Self {
            within: self.within.checked_sub(less.within)?,
            before: self.before.checked_sub(less.before)?,
        })
    }

    /// The most that the key may count, wherever its minutes lie.
    fn at_most(self) -> u64 {
        self.within.saturating_add(self.before)
    }
}

/// The best keys so far; the top of the heap is the worst of them.
pub(super) struct Best {
    limit: usize,
    pub tally: Tally,
    /// Keys as they were counted, because equal counts are ranked by them.
    pub heap: BinaryHeap<Reverse<(u64, Reverse<String>)>>,
    /// Memory of the keys in `heap`, bytes.
    key_bytes: usize,
    charge: Charge,
}

/// Memory of a listed key beside its text, bytes.
const LISTED_BYTES: usize = 64;

impl Best {
    pub(super) fn new(section: &Section, limit: usize, charge: Charge) -> Self {
        Self {
            limit,
            tally: Tally::new(&section.range),
            heap: BinaryHeap::new(),
            key_bytes: 0,
            charge,
        }
    }

    /// Takes the next key in order of the stored keys.
    fn take(&mut self, key: &[u8], sum: Sum, of: &KeysOf<'_>) -> Result<()> {
        let worst = self.heap.peek().filter(|_| self.heap.len() == self.limit);
        let least = worst.map_or(1, |Reverse((count, _))| *count);
        if self.limit == 0 || sum.at_most() < least {
            return Ok(());
        }
        let text = (of.text)(key)?;
        // Among keys with equal counts, the first ones as texts stay.
        let precedes = |count| {
            worst.is_none_or(|Reverse(worst)| {
                (count, Reverse(&text)) > (worst.0, Reverse(&worst.1.0))
            })
        };
        if !precedes(sum.at_most()) {
            return Ok(());
        }
        let count = (of.exact)(key, sum.within)?.min(COUNT_MAX);
        if count < least || !precedes(count) {
            return Ok(());
        }
        self.key_bytes += text.len() + LISTED_BYTES;
        self.charge.grow_to(self.key_bytes)?;
        self.heap.push(Reverse((count, Reverse(text))));
        if self.heap.len() > self.limit
            && let Some(Reverse((_, Reverse(gone)))) = self.heap.pop()
        {
            self.key_bytes -= gone.len() + LISTED_BYTES;
        }
        Ok(())
    }
}
