//! Top keys of recent hours: candidates from memory, their exact counts from the view.
//!
//! Counts are always exact. What is only known within a bound is whether a key that was no candidate has more
//! than the last one listed; where the bound says that none has, the ranking is exact too.

use std::collections::BTreeSet;
use std::ops::{ControlFlow, Range};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tallyring_archive::Run;
use tallyring_records::line::hours;
use tallyring_records::{COUNT_MAX, Day};

use super::ranking::{Ranking, TopKey};
use super::read::Totals;
use super::{Live, Store};
use crate::error::Result;
use crate::heavy::{Heavy, Standing};

/// Longest ranking that is made of candidates.
const LIMIT_MAX: usize = 100;

/// Candidates beyond those that are listed.
const SPARE: usize = 100;

impl Store {
    /// The heaviest keys of a range of whole hours of yesterday, today and tomorrow, in a time that does not
    /// depend on how many keys there are; none where that is not known.
    pub(super) fn top_recent(
        &self,
        namespace: &str,
        range: &Range<i64>,
        limit: usize,
    ) -> Result<Option<Ranking>> {
        let live = self.live();
        if limit > LIMIT_MAX || !live.knows_heavy || in_archive(&live, range) {
            return Ok(None);
        }
        let Some(Standing {
            sum,
            floor,
            mut keys,
        }) = live.heavy.standing(namespace, range)
        else {
            return Ok(None);
        };
        let others = keys.split_off(keys.len().min(limit + SPARE));
        let bound = others.first().map_or(floor, |&(_, most)| most.max(floor));
        let candidates: Vec<String> = keys.iter().map(|(key, _)| key.text()).collect();
        let generation = live.archive.generation;
        let minutes_from = live.archive.minutes_from.get(&generation).copied();
        let mut totals = Totals::gather(live, namespace, range, candidates);
        let mut counted = totals.read(self)?;
        counted.sort_unstable_by(|a, b| b.count.cmp(&a.count).then(a.stored.cmp(&b.stored)));
        counted.retain(|total| total.count > 0);
        counted.truncate(limit);
        if counted.len() < limit && bound > 0 {
            // There are others, of which nothing is known.
            return Ok(None);
        }
        let last = counted.last().filter(|_| counted.len() == limit);
        let is_exact = bound == 0 || last.is_some_and(|last| last.count > bound);
        let mut listed = Vec::with_capacity(counted.len());
        for total in counted {
            let key = self.text_of(&total.stored, total.text, &totals.runs)?;
            let count = total.count;
            listed.push(TopKey { key, count });
        }
        Ok(Some(Ranking {
            generation,
            minutes_from,
            total: sum,
            keys: listed,
            counted: None,
            is_cut: false,
            bound: (!is_exact).then_some(bound.min(COUNT_MAX)),
        }))
    }

    /// Learns which keys of recent hours are heavy from what is counted already; serving goes on meanwhile.
    /// Until it returns, rankings are read from all totals.
    ///
    /// Once `stop` is set it ends soon, and nothing is learned.
    ///
    /// # Errors
    /// When a run is damaged; then nothing is learned.
    pub fn learn_heavy_keys(&self, stop: &AtomicBool) -> Result<()> {
        if self.live().knows_heavy {
            return Ok(());
        }
        let (mut learned, runs) = {
            // Nothing is counted while memory is looked through; reads go on.
            let _writer = self.folded_writer();
            let empty = |live: &Live| Heavy::new(self.schema.namespaces.len(), live.ring.today());
            let mut live = self.live_mut();
            live.heavy = empty(&live);
            drop(live);
            let live = self.live();
            let mut learned = empty(&live);
            let mut runs: Vec<Arc<Run>> = Vec::new();
            for store in live.ring.stores() {
                for delta in store.deltas() {
                    delta.each_total(&mut |key, code, count| learned.add(key, code, count));
                }
                runs.extend(store.runs.iter().map(|run| Arc::clone(&run.run)));
            }
            (learned, runs)
        };
        for run in runs {
            self.learn_from(&run, &mut learned, stop)?;
        }
        if stop.load(Ordering::Relaxed) {
            return Ok(());
        }
        let mut live = self.live_mut();
        let since = std::mem::replace(&mut live.heavy, learned);
        let today = live.ring.today();
        live.heavy.turn(today);
        live.heavy.unite(since);
        live.knows_heavy = true;
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

/// True when the archive may hold some of the range too: nobody has learned which keys are heavy there.
fn in_archive(live: &Live, range: &Range<i64>) -> bool {
    let holds = |run: &Arc<Run>| {
        let meta = run.meta();
        meta.first < range.end && Day::of(meta.last).next().start() > range.start
    };
    live.archive.runs.iter().any(holds)
}
