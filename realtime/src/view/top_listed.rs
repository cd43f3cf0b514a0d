//! The heaviest keys of a range of whole hours from lists: of runs, and of recent hours in memory.
//!
//! Keys are counted in the order of their bounds (`lists.rs`) until no bound reaches the last listed count. (Threshold
//! algorithm: Fagin, Lotem and Naor, "Optimal aggregation algorithms for middleware", 2003.)
//!
//! Where counts are taken away in the range, lists are not asked. They bound each key from above all the same, but what
//! lists say exactly of a key would have to be corrected, and a heavy key that lost most of its counts would hold back
//! the keys below it.
//!
//! Invariant: counts are exact. One thing alone may be known within a bound: whether an unlisted key has more than the
//! last listed one. Only recent hours are ranked then; other ranges are read in one pass (`scan.rs`).

use std::ops::Range;
use std::sync::Arc;

use tallyring_records::{COUNT_MAX, Day, Grain, capped};

use super::View;
use super::lists::{Lists, Recent};
use super::minutes::Minutes;
use super::parts::Part;
use super::ranking::Ranking;
use super::scan::Section;
use super::snapshot::Snapshot;
use crate::error::Result;

/// Longest ranking that is made of lists.
const LIMIT_MAX: usize = 1_000;
/// Keys that are counted beyond the listed ones, at most.
const SPARE: usize = 1_000;
/// Keys that are counted beyond the listed ones where recent hours alone are ranked, or as many as are listed. Such a
/// ranking may stay approximate, whatever is counted.
const SPARE_RECENT: usize = 100;

impl View<'_> {
    /// The heaviest keys of a range of whole hours. Returns none where lists do not decide it.
    pub(super) fn top_listed(
        &self,
        namespace: &str,
        range: &Range<i64>,
        limit: usize,
        as_of: Option<u64>,
    ) -> Result<Option<Ranking>> {
        let width = Grain::Hour.seconds();
        if limit > LIMIT_MAX || range.start % width != 0 || range.end % width != 0 {
            return Ok(None);
        }
        if as_of.is_some() {
            return self.rank(namespace, range, limit, as_of, Vec::new());
        }
        let looked: Vec<Looked> = (self.parts())
            .map(|part| part.look(namespace, range))
            .collect();
        let hours = |of: &Looked| (of.is_recent, of.recent.as_ref().map(|of| of.range.clone()));
        let (first, others) = looked.split_first().expect("BUG: a view has a part");
        let is_recent = first.is_recent;
        // Heavy keys of all strands stand for the same hours, or those of none are asked.
        let agree = others.iter().all(|of| hours(of) == hours(first));
        let view = match agree {
            true => self.with(|part| Arc::clone(&looked[part.number].snapshot)),
            false => self.with(|part| Arc::clone(&part.snapshot)),
        };
        let recent = looked.into_iter().filter(|_| agree);
        let recent: Vec<Recent> = recent.filter_map(|of| of.recent).collect();
        // Hours do not tell where the quarters of an hour lie that count.
        let grain = self.schema().namespace(namespace).map(|known| known.grain);
        if grain != Some(Grain::Hour) && !recent.is_empty() && !is_recent {
            return Ok(None);
        }
        view.rank(namespace, range, limit, None, recent)
    }

    fn rank(
        &self,
        namespace: &str,
        range: &Range<i64>,
        limit: usize,
        as_of: Option<u64>,
        recent: Vec<Recent>,
    ) -> Result<Option<Ranking>> {
        if as_of.is_none() && self.minus_in(range).next().is_some() {
            return Ok(None);
        }
        let section = Section::new(namespace, range.clone(), &Minutes::None);
        let is_recent = recent.first().is_some_and(|recent| recent.range == *range);
        let mut lists = Lists::new(self, section, as_of);
        for recent in recent {
            lists.recent(recent, limit + SPARE)?;
        }
        let spare = match is_recent {
            true => limit.max(SPARE_RECENT),
            false if lists.sources()? => SPARE,
            false => return Ok(None),
        };
        let candidates = lists.bounded();
        if !is_recent && !lists.may_decide(&candidates, limit) {
            return Ok(None);
        }
        let Some((keys, bound)) = lists.count(candidates, limit, spare)? else {
            return Ok(None);
        };
        let last = keys.last().filter(|_| keys.len() == limit);
        let is_exact = bound == 0 || last.is_some_and(|last| u128::from(last.count) > bound);
        if !is_exact && (!is_recent || last.is_none()) {
            return Ok(None);
        }
        Ok(Some(Ranking {
            generation: as_of.unwrap_or(self.generation()),
            minutes_from: self.minutes_from(as_of),
            total: lists.tally.total.min(COUNT_MAX),
            keys,
            counted: lists.tally.counted,
            is_cut: lists.tally.divided > 0,
            bound: (!is_exact).then(|| capped(bound)),
        }))
    }
}

/// A part as its recent hours are ranked.
struct Looked {
    /// A ranking of recent hours alone is of the newest counts, whatever the view.
    is_recent: bool,
    snapshot: Arc<Snapshot>,
    recent: Option<Recent>,
}

impl Part<'_> {
    fn look(&self, namespace: &str, range: &Range<i64>) -> Looked {
        let newest = self.live.newest.read();
        let latest = newest.snapshot();
        let recent_of = |view: &Snapshot| {
            let recent = unarchived(view, &newest.heavy.held(), range);
            recent.filter(|_| newest.knows_heavy)
        };
        let recent = recent_of(&latest);
        let is_recent = recent.as_ref() == Some(range);
        let (snapshot, recent) = match is_recent {
            true => (latest, recent),
            false => (Arc::clone(&self.snapshot), recent_of(&self.snapshot)),
        };
        let recent = recent.and_then(|recent| {
            Some(Recent {
                part: self.number,
                hours: newest.heavy.hours(namespace, &recent)?,
                range: recent,
                is_of_view: newest.snapshot().applied() == snapshot.applied(),
            })
        });
        Looked {
            is_recent,
            snapshot,
            recent,
        }
    }
}

/// The part of a range that heavy keys are known of: held hours that no run of the archive counts, so that their counts
/// are all in delta stores. None where there is none.
fn unarchived(view: &Snapshot, held: &Range<i64>, range: &Range<i64>) -> Option<Range<i64>> {
    let part = range.start.max(held.start)..range.end.min(held.end);
    let archived = view.archive.plus.iter().chain(&view.archive.minus);
    let archived = archived.map(|run| run.meta());
    let archived = archived.filter(|meta| meta.overlaps(part.start, part.end));
    let end = archived.map(|meta| Day::of(meta.last).next().start()).max();
    let part = part.start.max(end.unwrap_or(i64::MIN))..part.end;
    (!part.is_empty()).then_some(part)
}
