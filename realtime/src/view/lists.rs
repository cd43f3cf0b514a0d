//! Lists of heavy keys, of runs and of recent hours, and the bounds that they give every key of a section.
//!
//! A list names the heaviest keys of a span, and the most that any other key counts there: its *rest*. A key counts at
//! most what the lists say that name it, and the rests of the others. A count takes what lists say exactly, and reads
//! only the runs whose lists do not have the key: those first that may change it most, until it is known or too small.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::ops::{ControlFlow, Range};

use hashbrown::HashMap;
use tallyring_archive::BLOCK_BYTES;
use tallyring_records::line::hours;
use tallyring_records::{COUNT_MAX, Day, Grain, KeyCrc, TimeCode, is_hash};

use super::View;
use super::candidates::{Bounded, Candidate, ListedFile, known_least};
use super::gather::{Gather, concerns};
use super::part_lists::PartLists;
use super::parts::{File, Part};
use super::ranking::TopKey;
use super::scan::Section;
use super::tally::Tally;
use crate::budget::Charge;
use crate::delta::DeltaStore;
use crate::error::Result;
use crate::heavy::{RankedHours, Standing};

/// Lines of sections without summaries are read where they have no more plain bytes in all.
const SCANNED_BYTES_MAX: u64 = 2 << 20;
/// Counters in memory beside those of recent hours that are read, at most.
const COUNTERS_MAX: u64 = 200_000;
/// Keys that are read file by file, at most: what they count has to stay in the cache.
const READ_AHEAD: usize = 200;
/// Blocks that keys may decode one by one, at least, before one pass over the section is made instead.
const DECODED_MIN: u64 = 256;
/// Memory of a candidate, at most: a stored key is short, and doubling tables are counted.
const CANDIDATE_BYTES: usize = 600;
/// Memory of a file that names a candidate, at most: lists of such files double.
const NAMED_BYTES: usize = 2 * size_of::<(u32, u64)>();

/// The keys of a section that lists name in a range.
pub(super) struct Lists<'v> {
    view: &'v View<'v>,
    section: Section,
    /// Hours that the heavy keys of memory stand for; empty where none do.
    recent: Range<i64>,
    pub tally: Tally,
    /// By stored key.
    candidates: HashMap<Vec<u8>, Candidate>,
    charge: Charge,
    /// Files of the archive that count something of the section in the range.
    files: Vec<ListedFile<'v>>,
    /// The kept generation that is read; none where the view is.
    as_of: Option<u64>,
    /// Plain bytes of lines that were read.
    scanned_bytes: u64,
    /// Sums of the rests of all lists: for each number of shards, by shard.
    rests: BTreeMap<u16, Vec<u128>>,
}

/// Hours whose counts are all in the delta stores of one part, and their heavy keys.
pub(super) struct Recent {
    /// The number of the part.
    pub part: usize,
    pub range: Range<i64>,
    /// These hours as they are now: no key counts more in the view.
    pub hours: RankedHours,
    /// Whether their sums are those of the view, too.
    pub is_of_view: bool,
}

impl<'v> Lists<'v> {
    pub(super) fn new(view: &'v View<'v>, section: Section, as_of: Option<u64>) -> Self {
        Self {
            view,
            tally: Tally::new(&section.range),
            section,
            recent: 0..0,
            candidates: HashMap::new(),
            charge: view.reading.charge(),
            files: Vec::new(),
            as_of,
            scanned_bytes: 0,
            rests: BTreeMap::new(),
        }
    }

    /// Takes the heaviest keys of recent hours in one part, at most so many. All parts have the same hours.
    pub(super) fn recent(&mut self, recent: Recent, most: usize) -> Result<()> {
        let hours = recent.hours;
        let _charge = self.view.reading.charge_of(hours.bytes_to_rank())?;
        let sums: Vec<(i64, u64)> = hours.sums().collect();
        let Standing { floor, mut keys } = hours.standing();
        // An increment copies an hour that is held.
        drop(hours);
        match recent.is_of_view {
            true => sums.into_iter().for_each(|(start, sum)| {
                let code = TimeCode::containing(start, Grain::Hour);
                self.tally.note(code, sum);
            }),
            false => self.sum_stores(recent.part, &recent.range)?,
        }
        let others = keys.split_off(keys.len().min(most));
        let rest = others.first().map_or(floor, |&(_, most)| most.max(floor));
        for (key, most) in keys {
            let candidate = self.candidate(key.as_bytes())?;
            candidate.most += u128::from(most);
            candidate.rest += u128::from(rest);
        }
        self.add_rest((0, 1), rest.into());
        self.recent = recent.range;
        Ok(())
    }

    /// Adds the sums of these hours in all delta stores of a part.
    fn sum_stores(&mut self, part: usize, hours: &Range<i64>) -> Result<()> {
        let view = self.view;
        let mut note = |code: TimeCode, count| {
            if hours.contains(&code.start()) {
                self.tally.note(code, count);
            }
        };
        let part = view.part(part);
        for delta in part.deltas_in(hours) {
            view.tally_memory(delta, &self.section, &mut note)?;
        }
        let flushed = part.stores_in(hours).flat_map(|store| part.flushed(store));
        for file in flushed.filter(|file| file.run.meta().overlaps(hours.start, hours.end)) {
            view.tally_file(file, &self.section, &mut note)?;
        }
        Ok(())
    }

    /// Takes the lists of all runs, and what else is counted. False where too much has no list.
    pub(super) fn sources(&mut self) -> Result<bool> {
        let (view, whole) = (self.view, self.section.whole.clone());
        let archived = match self.as_of {
            Some(number) => view.kept(number)?,
            None => view.plus().collect(),
        };
        let of_part = |part: &'v Part<'v>| part.snapshot.ring.stores().map(move |of| (part, of));
        let stores = view
            .parts()
            .flat_map(of_part)
            .filter(|_| self.as_of.is_none());
        let stores: Vec<_> = stores.filter(|(_, of)| self.is_beside(of)).collect();
        let deltas = || stores.iter().flat_map(|(_, store)| store.deltas());
        if deltas().map(|delta| delta.counters()).sum::<u64>() > COUNTERS_MAX {
            return Ok(false);
        }
        for delta in deltas() {
            let (range, recent) = (whole.clone(), self.recent.clone());
            let mut refused = Ok(());
            delta.each_total(&mut |key, code, count| {
                let start = code.start();
                let is_other = range.contains(&start) && !recent.contains(&start);
                let stored = key.strip_prefix(self.section.name.as_bytes());
                if let Some(stored) = stored.filter(|_| is_other && refused.is_ok()) {
                    self.tally.note(code, count);
                    let named = self.candidate(stored);
                    refused = named.map(|named| named.most += u128::from(count));
                }
            });
            refused?;
        }
        for file in archived {
            if !self.file(file, true)? {
                return Ok(false);
            }
        }
        for file in (stores.iter()).flat_map(|(part, store)| part.flushed(store)) {
            if !self.file(file, false)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// True for a delta store that may count what the heavy keys of recent hours do not stand for.
    fn is_beside(&self, store: &DeltaStore) -> bool {
        let is_within = |day: Day| {
            let (start, end) = (day.start(), day.next().start());
            let range = &self.section.whole;
            let (start, end) = (start.max(range.start), end.min(range.end));
            self.recent.contains(&start) && end <= self.recent.end
        };
        concerns(&self.section.whole, store) && !store.id.day().is_some_and(is_within)
    }

    /// Takes the lists of a run. `is_final` says that nothing else stands for a part of its counts. False where too
    /// much has no list.
    fn file(&mut self, file: File<'v>, is_final: bool) -> Result<bool> {
        let File { run, cache, .. } = file;
        let (meta, range) = (run.meta(), self.section.whole.clone());
        let name = self.section.name.clone();
        if !meta.overlaps(range.start, range.end) || !meta.sums.contains_key(&name) {
            return Ok(true);
        }
        self.view.reading.check()?;
        let recent = self.recent.clone();
        let is_other = |code: TimeCode| is_final || !recent.contains(&code.start());
        let Some(summary) = run.summary(cache, name.as_bytes())? else {
            self.scanned_bytes += run.section_bytes(name.as_bytes());
            if self.scanned_bytes > SCANNED_BYTES_MAX {
                return Ok(false);
            }
            self.read_lines(file, is_final)?;
            return Ok(true);
        };
        for (code, sum) in summary.totals().filter(|(code, _)| is_other(*code)) {
            self.tally
                .note(code, u64::try_from(sum).unwrap_or(u64::MAX));
        }
        let lists = PartLists::of(&summary, run, &range);
        let of_spans = lists.rest_of_spans();
        let rest = of_spans.min(lists.rest_of_whole());
        self.add_rest((meta.shard, meta.shards), rest);
        let index = is_final.then_some(self.files.len() as u32);
        for (key, named) in lists.named() {
            let unknown = of_spans.saturating_sub(named.rest);
            let is_known = is_final && lists.is_exact && unknown == 0;
            let most = (u128::from(named.count) + unknown).min(named.most);
            self.charge.grow(NAMED_BYTES)?;
            let candidate = self.candidate(key)?;
            candidate.most += most;
            candidate.rest += rest;
            let open = match is_known {
                true => 0,
                false => u64::try_from(most).unwrap_or(u64::MAX),
            };
            if is_known {
                candidate.exact = candidate.exact.saturating_add(named.count);
            }
            candidate.named.extend(index.map(|index| (index, open)));
        }
        if is_final {
            self.files.push(ListedFile { file, rest });
        }
        Ok(true)
    }

    /// Takes every line of a run without a summary, which says the counts of its keys exactly where it `is_final`.
    fn read_lines(&mut self, file: File<'_>, is_final: bool) -> Result<()> {
        let (name, range) = (self.section.name.clone(), self.section.whole.clone());
        let recent = self.recent.clone();
        let is_other = |code: TimeCode| is_final || !recent.contains(&code.start());
        let mut refused = Ok(());
        file.run
            .visit_from(file.cache, name.as_bytes(), &mut |key, payload| {
                let Some(stored) = key.strip_prefix(name.as_bytes()) else {
                    return ControlFlow::Break(());
                };
                let mut sum = 0_u64;
                for (code, count) in hours(payload).flatten().filter(|(code, _)| is_other(*code)) {
                    self.tally.note(code, count);
                    if range.contains(&code.start()) {
                        sum = sum.saturating_add(count);
                    }
                }
                if sum > 0 {
                    let named = self.candidate(stored);
                    refused = named.map(|named| {
                        named.most += u128::from(sum);
                        if is_final {
                            named.exact = named.exact.saturating_add(sum);
                        }
                    });
                }
                match refused {
                    Ok(()) => ControlFlow::Continue(()),
                    Err(_) => ControlFlow::Break(()),
                }
            })?;
        refused
    }

    fn candidate(&mut self, stored: &[u8]) -> Result<&mut Candidate> {
        if !self.candidates.contains_key(stored) {
            self.charge.grow(CANDIDATE_BYTES)?;
        }
        Ok(self.candidates.entry_ref(stored).or_default())
    }

    fn add_rest(&mut self, (shard, shards): (u16, u16), rest: u128) {
        let sums = self.rests.entry(shards).or_default();
        sums.resize(shards.into(), 0);
        sums[usize::from(shard)] += rest;
    }

    /// The most that a key counts that no list names.
    fn unlisted(&self) -> u128 {
        self.rests
            .values()
            .filter_map(|sums| sums.iter().max())
            .sum()
    }

    /// The most that a candidate counts.
    fn at_most(&self, crc: KeyCrc, candidate: &Candidate) -> u128 {
        let rests = self.rests.iter();
        let rests = rests.map(|(shards, sums)| sums[usize::from(crc.shard(*shards))]);
        candidate.most + rests.sum::<u128>().saturating_sub(candidate.rest)
    }

    /// All candidates, those that may count most first.
    pub(super) fn bounded(&mut self) -> Vec<Bounded> {
        let candidates = std::mem::take(&mut self.candidates).into_iter();
        let mut candidates: Vec<Bounded> = candidates
            .map(|(key, candidate)| {
                let crc = KeyCrc::of(&[self.section.name.as_bytes(), &key].concat());
                Bounded {
                    most: self.at_most(crc, &candidate),
                    key,
                    crc,
                    candidate,
                }
            })
            .collect();
        candidates.sort_unstable_by(|a, b| b.most.cmp(&a.most).then_with(|| a.key.cmp(&b.key)));
        candidates
    }

    /// False where so few candidates may count more than an unlisted key that no ranking of this length is exact.
    pub(super) fn may_decide(&self, candidates: &[Bounded], limit: usize) -> bool {
        let unlisted = self.unlisted();
        let heavier = candidates.iter().take(limit);
        unlisted == 0 || heavier.filter(|of| of.most > unlisted).count() == limit
    }

    /// The `limit` heaviest candidates with their counts, and the most that a key counts that was not counted. Counts
    /// at most `spare` candidates beyond them. Returns none where a cache that is too small for them has blocks decoded
    /// again and again, so that one pass is cheaper.
    pub(super) fn count(
        &self,
        candidates: Vec<Bounded>,
        limit: usize,
        spare: usize,
    ) -> Result<Option<(Vec<TopKey>, u128)>> {
        let mut best: BinaryHeap<Reverse<u64>> = BinaryHeap::new();
        let mut counted: Vec<(u64, Vec<u8>)> = Vec::new();
        let (mut too_small, mut bound) = (0, self.unlisted());
        let known = known_least(&candidates, limit);
        let decoded_max = self.view.blocks_decoded() + self.blocks_worth_decoding();
        self.read_ahead(&candidates, known)?;
        for candidate in candidates {
            let last = best.peek().filter(|_| best.len() == limit);
            let least = last.map_or(known, |Reverse(last)| known.max(*last));
            if candidate.most < u128::from(least) || limit == 0 {
                break;
            }
            if counted.len() + too_small == limit + spare {
                bound = bound.max(candidate.most);
                break;
            }
            if self.view.blocks_decoded() > decoded_max {
                return Ok(None);
            }
            match self.count_of(&candidate, least)? {
                Some(0) => {}
                Some(count) => {
                    counted.push((count, candidate.key));
                    best.push(Reverse(count));
                    if best.len() > limit {
                        best.pop();
                    }
                }
                None => too_small += 1,
            }
        }
        let least = best.peek().filter(|_| best.len() == limit);
        let least = least.map_or(0, |Reverse(least)| *least);
        let mut keys = Vec::new();
        for (count, key) in counted.into_iter().filter(|(count, _)| *count >= least) {
            let key = self.text(&key)?;
            keys.push(TopKey { key, count });
        }
        keys.sort_unstable_by(|a, b| b.count.cmp(&a.count).then_with(|| a.key.cmp(&b.key)));
        keys.truncate(limit);
        Ok(Some((keys, bound)))
    }

    /// Twice the blocks of one pass over the section. Blocks of other reads are taken for those of this one.
    fn blocks_worth_decoding(&self) -> u64 {
        let name = self.section.name.as_bytes();
        let files = self.files.iter();
        let bytes: u64 = files.map(|of| of.file.run.section_bytes(name)).sum();
        DECODED_MIN.max(2 * bytes / BLOCK_BYTES as u64)
    }

    /// A key as it was counted. Where a hash stands for it, a run that counts the key has its text, or memory.
    fn text(&self, key: &[u8]) -> Result<String> {
        let stored = String::from_utf8_lossy(key);
        match is_hash(key) {
            true => {
                let mut gather = self.gather(&stored);
                gather.begin(self.view, self.as_of)?;
                self.view.text_of(&stored, gather.runs)
            }
            false => Ok(stored.into_owned()),
        }
    }

    /// The exact count of a candidate; none where it turns out to count less than `least`. Reads only files that do not
    /// say its count, and those first in which it may count most.
    fn count_of(&self, of: &Bounded, least: u64) -> Result<Option<u64>> {
        let mut gather = self.gather(&String::from_utf8_lossy(&of.key));
        let files = (0..).zip(&self.files);
        let mut open: Vec<(u128, File<'_>)> = files
            .map(|(index, listed)| (of.open_in(index, listed), listed.file))
            .filter(|(most, _)| *most > 0)
            .collect();
        open.sort_by_key(|(most, _)| Reverse(*most));
        let (mut count, mut most) = (of.candidate.exact, of.most);
        for (in_file, file) in open {
            if most < u128::from(least) {
                return Ok(None);
            }
            let sum = self.sum_of(file, &of.key)?;
            count = count.saturating_add(sum);
            most = most.saturating_sub(in_file).saturating_add(sum.into());
        }
        if most < u128::from(least) {
            return Ok(None);
        }
        if self.as_of.is_none() {
            gather.begin_deltas(self.view)?;
        }
        for file in std::mem::take(&mut gather.runs) {
            count = count.saturating_add(self.sum_of(file, &of.key)?);
        }
        let rest = gather.sum()?;
        Ok(Some(count.saturating_add(rest).min(COUNT_MAX)))
    }

    /// Reads keys that are likely to be listed, file by file in the order of blocks: a small cache would decode a block
    /// again for each of its keys. The cache remembers what they count.
    fn read_ahead(&self, candidates: &[Bounded], known: u64) -> Result<()> {
        let mut likely: Vec<&Bounded> = candidates
            .iter()
            .filter(|of| known > 0 && of.candidate.exact >= known)
            .take(READ_AHEAD)
            .collect();
        likely.sort_unstable_by(|a, b| a.key.cmp(&b.key));
        for (index, listed) in (0..).zip(&self.files) {
            for of in likely.iter().filter(|of| of.open_in(index, listed) > 0) {
                self.sum_of(listed.file, &of.key)?;
            }
        }
        Ok(())
    }

    /// The counts of a key in a run.
    fn sum_of(&self, file: File<'_>, key: &[u8]) -> Result<u64> {
        self.view.reading.check()?;
        let total_key = [self.section.name.as_bytes(), key].concat();
        Ok(file
            .run
            .sum_of(file.cache, &total_key, &self.section.range)?)
    }

    /// A read of a key in its stored form.
    fn gather(&self, stored: &str) -> Gather<'v> {
        let namespace = self.section.name.trim_end_matches('|');
        let range = self.section.range.clone();
        Gather::new(&self.view.reading, namespace, stored, None, range)
    }
}
