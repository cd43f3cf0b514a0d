//! Learns the heavy keys of recent hours from what was counted before the store was in service, or the ring turned.

use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, Ordering};

use tallyring_archive::Run;
use tallyring_records::line::hours;

use super::{Live, flushed_runs};
use crate::error::Result;
use crate::heavy::Heavy;

impl Live {
    /// Learns from the counts which keys of recent hours are heavy, while the store is in service. Rankings read all
    /// totals until these are known. Once `stop` is set, the function returns soon and nothing is learned. Nor is
    /// anything where the ring turns meanwhile. Fails when a run is damaged; nothing is learned then.
    pub fn learn_heavy_keys(&self, stop: &AtomicBool) -> Result<()> {
        if self.newest.read().knows_heavy {
            return Ok(());
        }
        let view = {
            let mut newest = self.newest.write();
            // Later counts are learned as they come, the earlier ones from this view.
            let view = newest.snapshot();
            newest.heavy = Heavy::new(view.schema.counted_namespaces(), view.ring.today());
            view
        };
        let today = view.ring.today();
        let mut learned = Heavy::new(view.schema.counted_namespaces(), today);
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
        let now = newest.snapshot();
        if now.ring.today() != today {
            // Hours that the ring has taken in since are not among the learned ones.
            return Ok(());
        }
        let since = std::mem::replace(&mut newest.heavy, learned);
        // Namespaces may have been declared meanwhile.
        newest.heavy.make_room(now.schema.counted_namespaces());
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
