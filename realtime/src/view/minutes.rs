//! Minutes of all keys of a namespace: every minute of a range, or those at the ends of a range that divides base
//! buckets.
//!
//! A range counts the base buckets that start in it. Where minutes are kept, the minutes decide instead: a minute
//! within the range counts although its base bucket starts before the range, and a minute behind the range does not
//! count although its base bucket starts within. Counts without minutes stay where their base bucket starts.

use std::collections::BTreeMap;
use std::ops::{ControlFlow, Range};

use tallyring_archive::{Run, RunMeta};
use tallyring_records::line::{self, entries};
use tallyring_records::{Grain, MINUTES, TimeCode, minute_of, shard_of};

use super::less::buckets_less;
use super::parts::File;
use super::tally::Sources;
use crate::budget::{Charge, Reading};
use crate::delta::Delta;
use crate::error::{Error, Result};

/// The minutes that a pass over a namespace needs, and their sums.
pub(super) enum Minutes {
    /// No minutes: base buckets suffice.
    None,
    /// Every minute, of all keys together.
    Each(Each),
    /// The minutes of base buckets that the range divides.
    Ends(Ends),
}

/// Sums of all keys by minute.
#[derive(Default)]
pub(super) struct Each {
    counts: BTreeMap<TimeCode, u64>,
    /// The part of each base bucket that minutes account for.
    named: BTreeMap<TimeCode, u64>,
    charge: Option<Charge>,
    refused: Option<Error>,
}

/// Memory of a minute in a map of minutes.
const MINUTE_BYTES: usize = 40;

/// Corrections by minutes at the ends of a range.
pub(super) struct Ends {
    range: Range<i64>,
    /// Hours in which the range divides base buckets: none, one or two.
    hours: Vec<TimeCode>,
    /// The correction for all keys together.
    pub change: Change,
    /// The part of the divided base buckets that minutes account for.
    pub named: u64,
}

/// The correction that minutes make to a count by base buckets.
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct Change {
    more: u64,
    less: u64,
}

impl Change {
    /// Corrects a count by base buckets. Neither count is capped at 2^53−1 before.
    pub(super) fn of(self, count: u64) -> u64 {
        count.saturating_add(self.more).saturating_sub(self.less)
    }

    /// Takes the correction back that `less` makes.
    fn take_away(&mut self, less: Self) {
        self.more = self.more.saturating_add(less.less);
        self.less = self.less.saturating_add(less.more);
    }

    fn note(&mut self, within: (bool, bool), count: u64) {
        let side = match within {
            (false, true) => &mut self.more,
            (true, false) => &mut self.less,
            _ => return,
        };
        *side = side.saturating_add(count);
    }
}

impl Ends {
    /// Begins the corrections for a range. Base buckets are hours, or shorter where a finer grain was declared.
    pub(super) fn of(range: &Range<i64>) -> Self {
        let width = Grain::Hour.seconds();
        let edges = [range.start, range.end].into_iter();
        let mut hours: Vec<TimeCode> = edges
            .filter(|edge| edge.rem_euclid(width) != 0)
            .map(|edge| TimeCode::containing(edge, Grain::Hour))
            .collect();
        hours.dedup();
        Self {
            range: range.clone(),
            hours,
            change: Change::default(),
            named: 0,
        }
    }

    /// Whether the base bucket lies in the range, and whether the minute does.
    fn within(&self, base: TimeCode, value: &[u8]) -> (bool, bool) {
        let minute = minute_of(base, value).unwrap_or(base);
        let within = |code: TimeCode| self.range.contains(&code.start());
        (within(base), within(minute))
    }

    fn note(&mut self, (base, value): (TimeCode, &[u8]), count: u64) {
        let within = self.within(base, value);
        self.change.note(within, count);
        if minute_of(base, value).is_some() {
            self.named = self.named.saturating_add(count);
        }
    }
}

impl Each {
    fn note(&mut self, (base, value): (TimeCode, &[u8]), count: u64) {
        let Some(minute) = minute_of(base, value) else {
            return;
        };
        let bytes = (self.counts.len() + self.named.len()) * MINUTE_BYTES;
        if let Some(Err(refused)) = self.charge.as_mut().map(|charge| charge.grow_to(bytes)) {
            self.refused = Some(refused);
            return;
        }
        for (sums, code) in [(&mut self.counts, minute), (&mut self.named, base)] {
            let sum = sums.entry(code).or_insert(0);
            *sum = sum.saturating_add(count);
        }
    }

    /// The sums by minute, and for each base bucket the counts without minutes.
    pub(super) fn with_rest_of(
        mut self,
        totals: &BTreeMap<TimeCode, u64>,
    ) -> BTreeMap<TimeCode, u64> {
        for (&base, &total) in totals {
            let named = self.named.get(&base).copied().unwrap_or(0);
            if total > named {
                self.counts.insert(base, total - named);
            }
        }
        self.counts
    }
}

/// The smallest range of whole hours around `range`. Base buckets that are not folded are an hour at most.
pub(super) fn whole_hours(range: &Range<i64>) -> Range<i64> {
    let width = Grain::Hour.seconds();
    range.start - range.start.rem_euclid(width)..range.end + (-range.end).rem_euclid(width)
}

/// True for a base bucket that the range divides.
pub(super) fn divides(range: &Range<i64>, base: TimeCode) -> bool {
    let (start, end) = (base.start(), base.start() + base.grain().seconds());
    let within = |edge: i64| start < edge && edge < end;
    within(range.start) || within(range.end)
}

/// True when the run may hold counts of the hour.
fn may_hold(run: &Run, hour: TimeCode) -> bool {
    let end = hour.start() + hour.grain().seconds();
    run.meta().overlaps(hour.start(), end)
}

impl Minutes {
    /// Takes the minutes in memory of a section (`u|`) in `range`, a range of whole base buckets. Fails when the budget
    /// has no room for the minutes.
    pub(super) fn memory(
        &mut self,
        delta: &Delta,
        section: &str,
        range: &Range<i64>,
        reading: &Reading,
    ) -> Result<()> {
        let section = section.as_bytes();
        self.charged_to(reading);
        match self {
            Self::None => {}
            Self::Each(each) => delta.section_minutes(
                section,
                &|base| range.contains(&base.start()),
                &mut |_, base, value, count| each.note((base, value), count),
            ),
            Self::Ends(ends) => {
                let range = ends.range.clone();
                delta.section_minutes(
                    section,
                    &|base| divides(&range, base),
                    &mut |_, base, value, count| ends.note((base, value), count),
                );
            }
        }
        self.refused()
    }

    fn charged_to(&mut self, reading: &Reading) {
        if let Self::Each(each) = self {
            each.charge.get_or_insert_with(|| reading.charge());
        }
    }

    fn refused(&mut self) -> Result<()> {
        match self {
            Self::Each(each) => each.refused.take().map_or(Ok(()), Err),
            Self::None | Self::Ends(_) => Ok(()),
        }
    }

    /// Takes the minutes of the section in a run. Fails when a block is damaged, or the budget has no room for the
    /// minutes.
    pub(super) fn run(
        &mut self,
        File { run, cache, .. }: File<'_>,
        section: &str,
        range: &Range<i64>,
        reading: &Reading,
    ) -> Result<()> {
        reading.check()?;
        self.charged_to(reading);
        let is_needed = match self {
            Self::None => false,
            Self::Each(_) => true,
            Self::Ends(ends) => ends.hours.iter().any(|hour| may_hold(run, *hour)),
        };
        if !is_needed {
            return Ok(());
        }
        let section = format!("{MINUTES}.{section}");
        run.visit_from(cache, section.as_bytes(), &mut |key, payload| {
            if !key.starts_with(section.as_bytes()) {
                return ControlFlow::Break(());
            }
            let Some((_, _, base)) = line::split_subtotal(key) else {
                return ControlFlow::Continue(());
            };
            let values = || entries(payload).flatten();
            match self {
                Self::Each(each) if range.contains(&base.start()) => {
                    values().for_each(|(value, count)| each.note((base, value), count));
                }
                Self::Ends(ends) if divides(&ends.range, base) => {
                    values().for_each(|(value, count)| ends.note((base, value), count));
                }
                _ => {}
            }
            ControlFlow::Continue(())
        })?;
        self.refused()
    }

    /// Minutes for the same range, with nothing counted.
    pub(super) fn without_counts(&self) -> Self {
        match self {
            Self::None => Self::None,
            Self::Each(_) => Self::Each(Each::default()),
            Self::Ends(ends) => Self::Ends(Ends::of(&ends.range)),
        }
    }

    /// Takes away what other minutes count, which are of the same range. False where less was counted.
    pub(super) fn take_away(&mut self, less: &Self) -> bool {
        match (self, less) {
            (Self::Each(each), Self::Each(less)) => {
                buckets_less(&mut each.counts, &less.counts)
                    && buckets_less(&mut each.named, &less.named)
            }
            (Self::Ends(ends), Self::Ends(less)) => {
                ends.change.take_away(less.change);
                ends.named = ends.named.saturating_sub(less.named);
                true
            }
            _ => true,
        }
    }

    /// Corrects one key's count by base buckets. Fails when a block is damaged.
    pub(super) fn exact(&self, sources: &Sources<'_>, key: &[u8], count: u64) -> Result<u64> {
        let Self::Ends(ends) = self else {
            return Ok(count);
        };
        let mut change = ends.change_in(&sources.plus, key)?;
        for delta in &sources.deltas {
            delta.subtotals(key, MINUTES, &mut |base, value, count| {
                if divides(&ends.range, base) {
                    change.note(ends.within(base, value), count);
                }
            });
        }
        change.take_away(ends.change_in(&sources.minus, key)?);
        Ok(change.of(count))
    }
}

impl Ends {
    /// The correction that the minutes of a key in these runs make.
    fn change_in(&self, files: &[File<'_>], key: &[u8]) -> Result<Change> {
        let mut change = Change::default();
        let prefix = [MINUTES.as_bytes(), b".", key, b"."].concat();
        let holds = |meta: &RunMeta| shard_of(key, meta.shards) == meta.shard;
        for File { run, cache, .. } in files.iter().filter(|file| holds(file.run.meta())) {
            for hour in self.hours.iter().filter(|hour| may_hold(run, **hour)) {
                let mut from = prefix.clone();
                hour.write_to(&mut from);
                run.visit_prefix(cache, (&prefix, &from), &mut |found, payload| {
                    if !found.starts_with(&from) {
                        return ControlFlow::Break(());
                    }
                    if let Ok(base) = TimeCode::parse(&found[prefix.len()..])
                        && divides(&self.range, base)
                    {
                        for (value, count) in entries(payload).flatten() {
                            change.note(self.within(base, value), count);
                        }
                    }
                    ControlFlow::Continue(())
                })?;
            }
        }
        Ok(change)
    }
}
