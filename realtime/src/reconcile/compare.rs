//! Compares two sets of books of one day, line by line.
//!
//! All runs are read together in the order of their keys. A run has a weight, and of every line and bucket the counts
//! times the weights must sum to zero. Sketches of users, actions and breakdowns by minute are not compared.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use tallyring_archive::{Cursor, Error as ArchiveError, Run};
use tallyring_records::line::{self, Kind};
use tallyring_records::{
    Day, TimeCode, is_actions_section, is_breakdown_section, is_minutes_section,
};

use crate::error::Result;

/// Lines that are named, at most.
const NAMED_MAX: usize = 5;

/// Counts that no verdict explains.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Unexplained {
    /// Counters that differ.
    pub counters: u64,
    /// Sum of all differences without their signs.
    pub n: u128,
    /// The first of these, such as `u|jehiah c41l: 3 more are served than the log has`.
    pub first: Vec<String>,
}

impl Unexplained {
    /// True where every difference is explained.
    pub fn is_none(&self) -> bool {
        self.counters == 0
    }

    fn note(&mut self, key: &[u8], what: &[u8], more: i128) {
        self.counters += 1;
        self.n += more.unsigned_abs();
        if self.first.len() < NAMED_MAX {
            let direction = if more > 0 { "more" } else { "less" };
            self.first.push(format!(
                "{} {}: {} {direction} served than the log explains",
                line::shown(key),
                line::shown(what),
                more.unsigned_abs()
            ));
        }
    }
}

/// One run and the sign that its counts have in the sum.
pub(super) type Weighed = (Arc<Run>, i128);

/// Sums the runs over the counts of `day`. Minutes are compared where `with_minutes`. Fails when a run is damaged.
pub(super) fn compare(runs: Vec<Weighed>, day: Day, with_minutes: bool) -> Result<Unexplained> {
    let mut merge = Merge::new(runs)?;
    let mut found = Unexplained::default();
    let mut sums: BTreeMap<Vec<u8>, i128> = BTreeMap::new();
    while let Some(key) = merge.smallest() {
        let is_compared = is_compared(&key, day, with_minutes);
        sums.clear();
        while let Some(index) = merge.pop(&key) {
            if is_compared {
                merge.add(index, (&key, day), &mut sums)?;
            }
            merge.refill(index)?;
        }
        for (what, more) in sums.iter().filter(|(_, more)| **more != 0) {
            found.note(&key, what, *more);
        }
    }
    Ok(found)
}

/// Whether lines with this key have counts of the day that are compared.
pub(super) fn is_compared(key: &[u8], day: Day, with_minutes: bool) -> bool {
    let section = String::from_utf8_lossy(line::section(key));
    if is_actions_section(&section) || is_breakdown_section(&section) {
        return false;
    }
    match line::kind_of(key) {
        Some(Kind::Total) => true,
        Some(Kind::Subtotal) => {
            let of_day = line::split_subtotal(key).is_some_and(|(_, _, code)| is_of(day, code));
            of_day && (with_minutes || !is_minutes_section(&section))
        }
        _ => false,
    }
}

fn is_of(day: Day, code: TimeCode) -> bool {
    (day.start()..day.next().start()).contains(&code.start())
}

struct Source {
    run: Arc<Run>,
    cursor: Cursor,
    weight: i128,
}

impl Source {
    /// Adds the counts of the line that the cursor stands on.
    fn add(&self, key: &[u8], day: Day, sums: &mut BTreeMap<Vec<u8>, i128>) -> Result<()> {
        let Some((_, payload)) = self.cursor.line()? else {
            return Ok(());
        };
        let unreadable = || {
            let what = format!("`{}` has no counts", line::shown(key));
            ArchiveError::malformed(self.run.name(), what)
        };
        let mut add = |what: &[u8], count: u64| {
            let more = i128::from(count) * self.weight;
            match sums.get_mut(what) {
                Some(sum) => *sum += more,
                None => {
                    sums.insert(what.to_vec(), more);
                }
            }
        };
        if line::kind_of(key) == Some(Kind::Total) {
            for entry in line::hours(payload) {
                let (code, count) = entry.ok_or_else(unreadable)?;
                if is_of(day, code) {
                    add(code.to_string().as_bytes(), count);
                }
            }
            return Ok(());
        }
        for entry in line::entries(payload) {
            let (value, count) = entry.ok_or_else(unreadable)?;
            add(value, count);
        }
        Ok(())
    }
}

/// The lines of runs in the order of their keys.
pub(super) struct Merge {
    sources: Vec<Source>,
    /// The key of the line on which each source stands.
    heads: BinaryHeap<Reverse<(Vec<u8>, usize)>>,
}

impl Merge {
    /// Fails when a run is damaged.
    pub(super) fn new(runs: impl IntoIterator<Item = Weighed>) -> Result<Self> {
        let mut merge = Self {
            sources: Vec::new(),
            heads: BinaryHeap::new(),
        };
        for (run, weight) in runs {
            let cursor = run.cursor();
            merge.sources.push(Source {
                run,
                cursor,
                weight,
            });
            merge.refill(merge.sources.len() - 1)?;
        }
        Ok(merge)
    }

    /// Adds the counts of `day` of the line with this key on which a source stands, by bucket or value, with the weight
    /// of the source.
    pub(super) fn add(
        &self,
        index: usize,
        (key, day): (&[u8], Day),
        sums: &mut BTreeMap<Vec<u8>, i128>,
    ) -> Result<()> {
        self.sources[index].add(key, day, sums)
    }

    /// The key and the payload of the line on which a source stands.
    pub(super) fn line(&self, index: usize) -> Result<Option<(&[u8], &[u8])>> {
        Ok(self.sources[index].cursor.line()?)
    }

    /// Moves a source to its next line.
    pub(super) fn refill(&mut self, index: usize) -> Result<()> {
        let source = &mut self.sources[index];
        if source.cursor.advance()?
            && let Some((key, _)) = source.cursor.line()?
        {
            self.heads.push(Reverse((key.to_vec(), index)));
        }
        Ok(())
    }

    /// The smallest key on which a source stands.
    pub(super) fn smallest(&self) -> Option<Vec<u8>> {
        self.heads.peek().map(|Reverse((key, _))| key.clone())
    }

    /// A source that stands on a line with this key.
    pub(super) fn pop(&mut self, key: &[u8]) -> Option<usize> {
        let Reverse((next, _)) = self.heads.peek()?;
        if next != key {
            return None;
        }
        self.heads.pop().map(|Reverse((_, index))| index)
    }
}
