//! Verdicts of a day that follow from ids: duplicates, whose id an earlier record of the log has, however long ago it
//! came, and records whose id was voided.
//!
//! The ids of the day come from the log, as 128 keyed bits. They are sorted in chunks, which go to `incoming/` where
//! memory does not hold them, and are merged with the runs of remembered ids, which reach as far back as the log. The
//! first of all records with one id counts. A void of the id is merged with them: it takes the first, where that is of
//! the day, and what repeats the first is a duplicate as before.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::Arc;

use rayon::prelude::*;
use tallyring_archive::{Blobs, Content, Cursor, Error as ArchiveError, Run, RunEntry, names};
use tallyring_records::line::entries;
use tallyring_records::{Increment, LongKeys};

use super::log::Part;
use super::verdict::Verdict;
use crate::error::{Error, Result};
use crate::intake::{id_bits, voided_bits};

/// Bytes of a pair on disk: the bits, the record, and its kind.
const PAIR_BYTES: usize = 25;
/// Pairs that are written and read together.
const PAIRS_TOGETHER: usize = 1 << 12;
/// Verdicts that a day may have: eight bytes of memory each.
const VERDICTS_MAX: usize = 1 << 26;

/// An id and a record that has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Pair {
    high: u64,
    low: u64,
    sequence: u64,
    kind: Kind,
}

/// How a record knows an id.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    /// A record of any day, from the runs of ids.
    Remembered,
    /// The id of a record of the day.
    OfDay,
    /// The id of a record of the day, as a sender without an identity would have sent it.
    OfNobody,
    /// A void of the id.
    Void,
}

/// Collects the ids of a day.
pub(super) struct IdsOfDay<'b> {
    blobs: &'b Blobs,
    keys: &'b LongKeys,
    load: &'b str,
    pairs: Vec<Pair>,
    pairs_max: usize,
    spilled: Vec<String>,
    /// Whether some ids may belong to no identity.
    has_unowned: bool,
}

impl<'b> IdsOfDay<'b> {
    /// Holds `bytes_max` bytes in memory; files of `incoming/` begin with `load`.
    pub(super) fn new(
        blobs: &'b Blobs,
        keys: &'b LongKeys,
        load: &'b str,
        (bytes_max, has_unowned): (u64, bool),
    ) -> Self {
        let pairs_max = usize::try_from(bytes_max).unwrap_or(usize::MAX) / size_of::<Pair>();
        Self {
            blobs,
            keys,
            load,
            pairs: Vec::new(),
            pairs_max: pairs_max.max(1),
            spilled: Vec::new(),
            has_unowned,
        }
    }

    /// Takes the ids of records, and those that were voided. Fails when the disk does.
    pub(super) fn take(&mut self, part: &Part) -> Result<()> {
        let (keys, has_unowned) = (self.keys, self.has_unowned);
        let pairs = part.sent.par_iter().flat_map_iter(|sent| {
            let of_day = pairs_of(keys, sent.sequence, &sent.increment);
            of_day.filter(move |pair| has_unowned || pair.kind != Kind::OfNobody)
        });
        self.pairs.par_extend(pairs);
        let voids = part.voids.iter();
        self.pairs.extend(
            voids.map(|(sequence, void)| Pair::new(voided_bits(keys, void), *sequence, Kind::Void)),
        );
        match self.pairs.len() >= self.pairs_max {
            true => self.spill(),
            false => Ok(()),
        }
    }

    fn spill(&mut self) -> Result<()> {
        self.pairs.par_sort_unstable();
        let name = format!(
            "{}/{}.ids-{}",
            names::INCOMING,
            self.load,
            self.spilled.len()
        );
        let mut file = self.blobs.begin(&name)?;
        let mut bytes = Vec::with_capacity(PAIR_BYTES * PAIRS_TOGETHER);
        for pairs in self.pairs.chunks(PAIRS_TOGETHER) {
            bytes.clear();
            pairs.iter().for_each(|pair| pair.encode(&mut bytes));
            file.write(&bytes)?;
        }
        file.put(&name)?;
        self.spilled.push(name);
        self.pairs.clear();
        Ok(())
    }

    /// Finds the verdicts that follow from all ids that `remembered` and the day have. Fails when a run of ids is
    /// damaged.
    pub(super) fn verdicts(mut self, remembered: &[&RunEntry]) -> Result<IdVerdicts> {
        if self.pairs.is_empty() && self.spilled.is_empty() {
            return Ok(IdVerdicts::default());
        }
        self.pairs.par_sort_unstable();
        let mut sources = vec![Source::Memory(std::mem::take(&mut self.pairs).into_iter())];
        for name in &self.spilled {
            sources.push(Source::Spilled(Spilled {
                name: name.clone(),
                content: self.blobs.content(name)?,
                at: 0,
                pairs: Vec::new(),
            }));
        }
        for run in Run::open_all(self.blobs, remembered.iter().copied())? {
            sources.push(Source::Ids(Ids::new(&run)));
        }
        let found = Merge::new(sources)?.verdicts();
        for name in &self.spilled {
            self.blobs.remove(name)?;
        }
        found
    }
}

fn pairs_of(
    keys: &LongKeys,
    sequence: u64,
    increment: &Increment,
) -> impl Iterator<Item = Pair> + use<> {
    let (own, nobodys) = id_bits(keys, increment).unzip();
    let own = own.map(|bits| Pair::new(bits, sequence, Kind::OfDay));
    let nobodys = nobodys.flatten();
    let nobodys = nobodys.map(|bits| Pair::new(bits, sequence, Kind::OfNobody));
    own.into_iter().chain(nobodys)
}

impl Pair {
    fn new(bits: u128, sequence: u64, kind: Kind) -> Self {
        Self {
            high: (bits >> 64) as u64,
            low: bits as u64,
            sequence,
            kind,
        }
    }

    fn bits(&self) -> (u64, u64) {
        (self.high, self.low)
    }

    fn encode(&self, out: &mut Vec<u8>) {
        for number in [self.high, self.low, self.sequence] {
            out.extend_from_slice(&number.to_le_bytes());
        }
        out.push(self.kind as u8);
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        let (numbers, kind) = bytes.split_at_checked(24)?;
        let number = |at: usize| Some(u64::from_le_bytes(numbers[at..at + 8].try_into().ok()?));
        Some(Self {
            high: number(0)?,
            low: number(8)?,
            sequence: number(16)?,
            kind: match kind.first()? {
                0 => Kind::Remembered,
                1 => Kind::OfDay,
                2 => Kind::OfNobody,
                _ => Kind::Void,
            },
        })
    }
}

/// Pairs in ascending order.
enum Source {
    Memory(std::vec::IntoIter<Pair>),
    Spilled(Spilled),
    Ids(Ids),
}

impl Source {
    fn next(&mut self) -> Result<Option<Pair>> {
        match self {
            Self::Memory(pairs) => Ok(pairs.next()),
            Self::Spilled(spilled) => spilled.next(),
            Self::Ids(ids) => ids.next(),
        }
    }
}

/// A sorted chunk in a file.
struct Spilled {
    name: String,
    content: Content,
    /// Bytes that were read.
    at: u64,
    /// Pairs that were read, the next one last.
    pairs: Vec<Pair>,
}

impl Spilled {
    fn next(&mut self) -> Result<Option<Pair>> {
        if self.pairs.is_empty() && self.at < self.content.len() {
            let left = self.content.len() - self.at;
            let bytes = left.min((PAIR_BYTES * PAIRS_TOGETHER) as u64) as usize;
            let part = self.content.part(self.at, bytes);
            let part = part.map_err(ArchiveError::io("read", &self.name))?;
            self.at += bytes as u64;
            let pairs: Option<Vec<Pair>> =
                part.chunks(PAIR_BYTES).rev().map(Pair::decode).collect();
            let what = "the file ends within an id";
            self.pairs = pairs.ok_or_else(|| ArchiveError::malformed(&self.name, what))?;
        }
        Ok(self.pairs.pop())
    }
}

/// The lines of a run of ids.
struct Ids {
    run: Arc<Run>,
    cursor: Cursor,
    /// Further records of the line, the next one last.
    more: Vec<Pair>,
}

impl Ids {
    fn new(run: &Arc<Run>) -> Self {
        Self {
            run: Arc::clone(run),
            cursor: run.cursor(),
            more: Vec::new(),
        }
    }

    fn next(&mut self) -> Result<Option<Pair>> {
        if let Some(pair) = self.more.pop() {
            return Ok(Some(pair));
        }
        if !self.cursor.advance()? {
            return Ok(None);
        }
        let Some((key, payload)) = self.cursor.line()? else {
            return Ok(None);
        };
        let hex = key
            .strip_prefix(b"id|")
            .and_then(|hex| std::str::from_utf8(hex).ok());
        let bits = hex.and_then(|hex| u128::from_str_radix(hex, 16).ok());
        let sequences: Option<Vec<u64>> = entries(payload)
            .map(|entry| entry.map(|(_, sequence)| sequence))
            .collect();
        let Some((bits, mut sequences)) = bits.zip(sequences) else {
            let what = "the run has a line that is not an id";
            return Err(ArchiveError::malformed(self.run.name(), what).into());
        };
        sequences.sort_unstable_by_key(|sequence| Reverse(*sequence));
        let pair = |sequence| Pair::new(bits, sequence, Kind::Remembered);
        self.more = sequences.into_iter().map(pair).collect();
        Ok(self.more.pop())
    }
}

/// All sources, merged.
struct Merge {
    sources: Vec<Source>,
    heads: BinaryHeap<Reverse<(Pair, usize)>>,
}

impl Merge {
    fn new(sources: Vec<Source>) -> Result<Self> {
        let mut merge = Self {
            heads: BinaryHeap::with_capacity(sources.len()),
            sources,
        };
        for index in 0..merge.sources.len() {
            merge.refill(index)?;
        }
        Ok(merge)
    }

    fn refill(&mut self, index: usize) -> Result<()> {
        if let Some(pair) = self.sources[index].next()? {
            self.heads.push(Reverse((pair, index)));
        }
        Ok(())
    }

    fn next(&mut self) -> Result<Option<Pair>> {
        let Some(Reverse((pair, index))) = self.heads.pop() else {
            return Ok(None);
        };
        self.refill(index)?;
        Ok(Some(pair))
    }

    /// The verdicts that follow from all pairs. Pairs of one id come in the order of their records.
    fn verdicts(mut self) -> Result<IdVerdicts> {
        let mut found = IdVerdicts::default();
        let mut id = None;
        // The first record that has the id, and whether it is of the day.
        let mut first: Option<(u64, bool)> = None;
        while let Some(pair) = self.next()? {
            if id != Some(pair.bits()) {
                id = Some(pair.bits());
                first = None;
            }
            match (pair.kind, first) {
                (Kind::OfDay | Kind::OfNobody, Some((sequence, of_day))) => {
                    if sequence < pair.sequence {
                        found.push(pair.sequence, if of_day { DUPLICATE } else { OF_OTHER_DAY })?;
                    }
                    // The runs of ids have the record of the day, too.
                    if sequence == pair.sequence && pair.kind == Kind::OfDay {
                        first = Some((sequence, true));
                    }
                }
                (Kind::OfDay | Kind::Remembered, None) => {
                    first = Some((pair.sequence, pair.kind == Kind::OfDay));
                }
                (Kind::Void, Some((sequence, true))) => found.push(sequence, VOIDED)?,
                (Kind::Void | Kind::Remembered | Kind::OfNobody, _) => {}
            }
        }
        found.records.par_sort_unstable();
        found.records.dedup_by_key(|found| *found >> VERDICT_BITS);
        Ok(found)
    }
}

/// Verdicts as numbers; of two on one record the lower one stands, so a duplicate is never voided.
const DUPLICATE: u64 = 0;
const OF_OTHER_DAY: u64 = 1;
const VOIDED: u64 = 2;
const VERDICT_BITS: u32 = 2;

/// Records of a day that do not count because of their ids, ascending.
#[derive(Debug, Default)]
pub(super) struct IdVerdicts {
    /// The sequence number, and a verdict in the lowest bits.
    records: Vec<u64>,
    /// Records that were asked for already.
    passed: usize,
}

impl IdVerdicts {
    fn push(&mut self, sequence: u64, verdict: u64) -> Result<()> {
        if self.records.len() == VERDICTS_MAX {
            return Err(Error::Reconcile(format!(
                "it has more than {VERDICTS_MAX} duplicates beyond the window of ids, and voids"
            )));
        }
        self.records.push(sequence << VERDICT_BITS | verdict);
        Ok(())
    }

    /// The verdict on a record; none where its id lets it count. The records are asked for in ascending order.
    pub(super) fn of(&mut self, sequence: u64) -> Option<Verdict> {
        let is_before = |found: &u64| found >> VERDICT_BITS < sequence;
        while self.records.get(self.passed).is_some_and(is_before) {
            self.passed += 1;
        }
        let found = self.records.get(self.passed)?;
        (found >> VERDICT_BITS == sequence).then(|| match found & ((1 << VERDICT_BITS) - 1) {
            DUPLICATE => Verdict::Duplicate,
            OF_OTHER_DAY => Verdict::DuplicateOfOtherDay,
            _ => Verdict::Voided,
        })
    }
}
