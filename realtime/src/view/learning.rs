//! Top keys of recent hours: candidates from memory, with exact counts from the view.
//!
//! Counts are always exact. Only one thing is known within a bound: whether an unlisted key that was no candidate has
//! more than the last listed key. Where the bound excludes that, the ranking is exact too.

use std::collections::BTreeSet;
use std::ops::{ControlFlow, Range};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tallyring_archive::Run;
use tallyring_records::line::hours;
use tallyring_records::{COUNT_MAX, Day};

use super::ranking::{Ranking, TopKey};
use super::snapshot::Snapshot;
use super::{Live, View, flushed_runs};
use crate::error::Result;
use crate::heavy::{Heavy, Standing};

/// Longest ranking that is made of candidates.
const LIMIT_MAX: usize = 100;

/// Candidates beyond the listed keys.
const SPARE: usize = 100;

impl View<'_> {
    /// The heaviest keys of a range of whole hours of yesterday, today and tomorrow, from the newest view. The time
    /// does not depend on the number of keys. Returns none where the heavy keys are not known.
    pub(super) fn top_recent(
        &self,
        namespace: &str,
        range: &Range<i64>,
        limit: usize,
    ) -> Result<Option<Ranking>> {
        if limit > LIMIT_MAX {
            return Ok(None);
        }
        // Candidates and counts come from one view.
        let (snapshot, hours) = {
            let newest = self.live.newest.read();
            let hours = newest.heavy.hours(namespace, range);
            (newest.snapshot(), hours.filter(|_| newest.knows_heavy))
        };
        let Some(hours) = hours.filter(|_| !in_archive(&snapshot, range)) else {
            return Ok(None);
        };
        let _charge = self.reading.charge_of(hours.bytes_to_rank())?;
        let Standing {
            sum,
            floor,
            mut keys,
        } = hours.standing();
        let newest = View {
            live: self.live,
            snapshot,
            reading: self.reading.clone(),
        };
        let others = keys.split_off(keys.len().min(limit + SPARE));
        let bound = others.first().map_or(floor, |&(_, most)| most.max(floor));
        let candidates: Vec<String> = keys.iter().map(|(key, _)| key.text()).collect();
        let counted = newest.totals_of(namespace, range, candidates)?;
        let runs = flushed_runs(&newest.snapshot);
        let mut counted = counted
            .into_iter()
            .map(|(stored, count)| Ok((newest.text_of(&stored, &runs)?, count)))
            .collect::<Result<Vec<_>>>()?;
        counted.sort_unstable_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
        counted.truncate(limit);
        if counted.len() < limit && bound > 0 {
            // Other keys exist, and nothing is known of them.
            return Ok(None);
        }
        let last = counted.last().filter(|_| counted.len() == limit);
        let is_exact = bound == 0 || last.is_some_and(|&(_, count)| count > bound);
        let listed = counted
            .into_iter()
            .map(|(key, count)| TopKey { key, count });
        Ok(Some(Ranking {
            generation: newest.generation(),
            minutes_from: newest.minutes_from(None),
            total: sum,
            keys: listed.collect(),
            counted: None,
            is_cut: false,
            bound: (!is_exact).then_some(bound.min(COUNT_MAX)),
        }))
    }
}

impl Live {
    /// Learns from the counts which keys of recent hours are heavy, while the store is in service. Until this function
    /// returns, rankings read all totals. Once `stop` is set, the function returns soon and nothing is learned.
    ///
    /// # Errors
    /// When a run is damaged; nothing is learned then.
    pub fn learn_heavy_keys(&self, stop: &AtomicBool) -> Result<()> {
        let view = {
            let mut newest = self.newest.write();
            if newest.knows_heavy {
                return Ok(());
            }
            // Later counts are learned as they come, the earlier ones from this view.
            let view = newest.snapshot();
            newest.heavy = Heavy::new(self.schema.namespaces.len(), view.ring.today());
            view
        };
        let mut learned = Heavy::new(self.schema.namespaces.len(), view.ring.today());
        for store in view.ring.stores() {
            for delta in store.deltas() {
                delta.each_total(&mut |key, code, count| learned.add(key, code, count));
            }
        }
        let runs = flushed_runs(&view);
        // Memory is held no longer than it is read.
        drop(view);
        for run in runs {
            self.learn_from(&run, &mut learned, stop)?;
        }
        if stop.load(Ordering::Relaxed) {
            return Ok(());
        }
        let mut newest = self.newest.write();
        let since = std::mem::replace(&mut newest.heavy, learned);
        let today = newest.snapshot().ring.today();
        newest.heavy.turn(today);
        newest.heavy.unite(since);
        newest.knows_heavy = true;
        Ok(())
    }

    fn learn_from(&self, run: &Run, learned: &mut Heavy, stop: &AtomicBool) -> Result<()> {
        let sections = run.meta().sums.keys();
        let totals: BTreeSet<&String> = sections.filter(|name| !name.contains('.')).collect();
        for section in totals {
            run.visit_from(&self.cache, section.as_bytes(), &mut |key, payload| {
                if !key.starts_with(section.as_bytes()) || stop.load(Ordering::Relaxed) {
                    return ControlFlow::Break(());
                }
                for (code, count) in hours(payload).flatten() {
                    learned.add(key, code, count);
                }
                ControlFlow::Continue(())
            })?;
        }
        Ok(())
    }
}

/// True when the archive may hold a part of the range, too: the heavy keys of the archive were not learned.
fn in_archive(view: &Snapshot, range: &Range<i64>) -> bool {
    let holds = |run: &Arc<Run>| {
        let meta = run.meta();
        meta.first < range.end && Day::of(meta.last).next().start() > range.start
    };
    view.archive.runs.iter().any(holds)
}
